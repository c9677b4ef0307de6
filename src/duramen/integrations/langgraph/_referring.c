/* Whether objects still refer to what they referred to, and dicts and lists still hold what they held.
 *
 * Nothing is made, counted or written to, so that a long conversation is only read; and what is about to be read is
 * asked for ahead, as most of it has long left the processor's caches. Without this module `watching` does the same
 * with `gc.get_referents` and by comparing copies, in several times the time.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#if defined(__GNUC__)
#define FETCH(address) __builtin_prefetch(address)
#else
#define FETCH(address) ((void)(address))
#endif

enum { FAR = 24, NEAR = 12, LINE = 64, LINES_OF_KEYS = 5 };

typedef struct {
    PyObject **expected;
    Py_ssize_t left;
    int failed; /* some types go on although they are told to stop */
} Expectation;

static int
compare(PyObject *found, void *argument)
{
    Expectation *expectation = argument;
    if (expectation->failed || expectation->left == 0 || *expectation->expected != found) {
        expectation->failed = 1;
        return 1;
    }
    expectation->expected++;
    expectation->left--;
    return 0;
}

/* Objects first, what dicts have elsewhere when the dict itself is there. */
static void
fetch_ahead(PyObject **objects, Py_ssize_t at, Py_ssize_t count)
{
    if (at + FAR < count) {
        FETCH(objects[at + FAR]);
    }
    if (at + NEAR < count && PyDict_CheckExact(objects[at + NEAR])) {
        PyDictObject *dict = (PyDictObject *)objects[at + NEAR];
        if (dict->ma_used) {
            for (int line = 0; line < LINES_OF_KEYS; line++) {
                FETCH((char *)dict->ma_keys + line * LINE);
            }
        }
    }
}

static int
is_row(PyObject *given)
{
    return PyList_Check(given) || PyTuple_Check(given);
}

/* The objects to look at, how many, and what is expected of them; 0 with an exception if they are not given so. */
static int
read_arguments(PyObject *const *arguments, Py_ssize_t given, PyObject ***objects, Py_ssize_t *count,
               Expectation *expectation)
{
    if (given != 2 || !is_row(arguments[0]) || !is_row(arguments[1])) {
        PyErr_SetString(PyExc_TypeError, "it takes two lists or tuples");
        return 0;
    }
    *objects = PySequence_Fast_ITEMS(arguments[0]);
    *count = PySequence_Fast_GET_SIZE(arguments[0]);
    *expectation = (Expectation){PySequence_Fast_ITEMS(arguments[1]), PySequence_Fast_GET_SIZE(arguments[1]), 0};
    return 1;
}

PyDoc_STRVAR(refers_to_doc,
"refers_to(objects, expected, /)\n--\n\n"
"Whether gc.get_referents(*objects) would be these very objects, in that order.");

static PyObject *
refers_to(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    PyObject **objects;
    Py_ssize_t count;
    Expectation expectation;
    if (!read_arguments(arguments, given, &objects, &count, &expectation)) {
        return NULL;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        fetch_ahead(objects, at, count);
        traverseproc traverse = Py_TYPE(objects[at])->tp_traverse;
        /* A static type has none, and refers to nothing, as in `gc`. */
        if (traverse != NULL && PyObject_IS_GC(objects[at])) {
            traverse(objects[at], compare, &expectation);
        }
        if (expectation.failed) {
            Py_RETURN_FALSE;
        }
    }
    return PyBool_FromLong(expectation.left == 0);
}

PyDoc_STRVAR(holds_doc,
"holds(containers, expected, /)\n--\n\n"
"Whether these dicts and lists hold these very objects: the keys and values of a dict, the items of a list, each\n"
"container followed by itself, so that nothing can move from one to the next unnoticed.");

static PyObject *
holds(PyObject *module, PyObject *const *arguments, Py_ssize_t given)
{
    PyObject **containers;
    Py_ssize_t count;
    Expectation expectation;
    if (!read_arguments(arguments, given, &containers, &count, &expectation)) {
        return NULL;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        PyObject *container = containers[at];
        fetch_ahead(containers, at, count);
        if (PyDict_CheckExact(container)) {
            PyObject *key, *value;
            Py_ssize_t place = 0;
            while (PyDict_Next(container, &place, &key, &value)) {
                if (compare(key, &expectation) || compare(value, &expectation)) {
                    Py_RETURN_FALSE;
                }
            }
        }
        else if (PyList_CheckExact(container)) {
            for (Py_ssize_t place = 0; place < PyList_GET_SIZE(container); place++) {
                if (compare(PyList_GET_ITEM(container, place), &expectation)) {
                    Py_RETURN_FALSE;
                }
            }
        }
        else {
            PyErr_SetString(PyExc_TypeError, "holds() looks into dicts and lists only");
            return NULL;
        }
        if (compare(container, &expectation)) {
            Py_RETURN_FALSE;
        }
    }
    return PyBool_FromLong(expectation.left == 0);
}

static PyMethodDef methods[] = {
    {"holds", (PyCFunction)(void (*)(void))holds, METH_FASTCALL, holds_doc},
    {"refers_to", (PyCFunction)(void (*)(void))refers_to, METH_FASTCALL, refers_to_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_referring", .m_size = 0, .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__referring(void)
{
    return PyModuleDef_Init(&definition);
}
