/* The six layers of all-MiniLM-L6-v2 in 8-bit integers, for processors with AVX-512 VNNI.
 *
 * What `minilm_int8` lets onnxruntime do in some hundred steps, each of which writes its results to memory for the next
 * one, is done here while the numbers are at hand: a tile of a product is scaled, shifted, sent through GELU and turned
 * into integers while it is in the first cache, and attention is computed for two heads at a time. `minilm_compiled`
 * writes the file that is read here, and says what is in it.
 *
 * In this order: the file, the memory, how texts are grouped; products, norms, attention; what Python calls.
 *
 * Rows never meet but in the attention of their own text, so texts of any length are computed together, and each gives
 * the same to the bit whatever it comes with.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

enum {
    LAYERS = 6,
    DIMS = 384,
    HEADS_AT_ONCE = 2,
    HEAD = 32,
    PANEL = 64, /* columns of a product that are computed together, of which VECTOR are in a register */
    VECTOR = 16,
    TILE = 6, /* rows that are */
    LONGEST = 256,
    QUERIES = 8, /* rows of attention that are */
    STEPS = 32,  /* pieces of the curve that is GELU */
    ALIGNMENT = 64,
    MAGIC = 0x314c4648
};

typedef struct {
    const int32_t *start; /* what the sums of the products begin with */
    const float *scale, *bias;
    const int8_t *weights;
    int depth, width;
} Product;

typedef struct {
    const float *gain, *shift;       /* for the numbers */
    const float *gain8, *shift8;     /* for the integers that go into the next product */
} Norm;

typedef struct {
    Product look, attend, widen, narrow;
    Norm attended, narrowed;
} Layer;

typedef struct {
    const float *places;
    Norm embedded;
    float unit; /* what a step of the curve is in integers after GELU, and that curve, below its bend, in such */
    const float *curve;
    Layer layers[LAYERS];
} Model;

/* Reading the file: sections, each of which begins at a multiple of ALIGNMENT. */

typedef struct {
    const char *at, *end;
} Cursor;

static const void *
section(Cursor *cursor, Py_ssize_t size)
{
    const char *found = cursor->at;
    size = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    if (found == NULL || cursor->end - found < size) {
        cursor->at = NULL;
        return NULL;
    }
    cursor->at = found + size;
    return found;
}

static Product
read_product(Cursor *cursor, int depth, int width)
{
    Product product = {.depth = depth, .width = width};
    product.start = section(cursor, 4 * (Py_ssize_t)width);
    product.scale = section(cursor, 4 * (Py_ssize_t)width);
    product.bias = section(cursor, 4 * (Py_ssize_t)width);
    product.weights = section(cursor, (Py_ssize_t)depth * width);
    return product;
}

static Norm
read_norm(Cursor *cursor)
{
    Norm norm;
    norm.gain = section(cursor, 4 * DIMS);
    norm.shift = section(cursor, 4 * DIMS);
    norm.gain8 = section(cursor, 4 * DIMS);
    norm.shift8 = section(cursor, 4 * DIMS);
    return norm;
}

static int
read_model(const Py_buffer *file, Model *model, int *widest)
{
    Cursor cursor = {file->buf, (const char *)file->buf + file->len};
    const int32_t *header = section(&cursor, ALIGNMENT);
    *widest = 0;
    if (header == NULL || (uintptr_t)file->buf % ALIGNMENT || header[0] != MAGIC || header[1] != LAYERS) {
        return 0;
    }
    memcpy(&model->unit, header + 2, sizeof(float));
    model->curve = section(&cursor, 3 * 4 * STEPS);
    model->places = section(&cursor, 4 * LONGEST * DIMS);
    model->embedded = read_norm(&cursor);
    for (int number = 0; number < LAYERS; number++) {
        Layer *layer = &model->layers[number];
        int width = header[3 + number];
        if (width <= 0 || width % VECTOR || width > 16 * DIMS) {
            return 0;
        }
        if (width > *widest) {
            *widest = width;
        }
        layer->look = read_product(&cursor, DIMS, 3 * DIMS);
        layer->attend = read_product(&cursor, DIMS, DIMS);
        layer->attended = read_norm(&cursor);
        layer->widen = read_product(&cursor, DIMS, width);
        layer->narrow = read_product(&cursor, width, DIMS);
        layer->narrowed = read_norm(&cursor);
    }
    return cursor.at != NULL && cursor.at == cursor.end;
}

/* What a text passes through, in the memory that the caller lends. */

typedef struct {
    float *hidden;                         /* rows of DIMS */
    uint8_t *whole, *seen;                 /* rows of DIMS: what goes into a product */
    uint8_t *wide;                         /* rows of a layer's width */
    float *queries, *keys, *values;        /* rows of PANEL */
    float *across, *scores;                /* keys of one text, and the scores of some of its queries */
} Room;

static Py_ssize_t
lay_out(Room *room, char *memory, Py_ssize_t rows, int widest)
{
    uintptr_t start = (uintptr_t)memory;
    Py_ssize_t used = 0;
    rows += VECTOR; /* the last rows of attention are computed whole */
#define SHARE(field, size)                                            \
    room->field = (void *)(start + used);                             \
    used += ((size) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    SHARE(hidden, rows * DIMS * 4)
    SHARE(whole, rows * DIMS)
    SHARE(seen, rows * DIMS)
    SHARE(wide, rows * widest)
    SHARE(queries, rows * PANEL * 4)
    SHARE(keys, rows * PANEL * 4)
    SHARE(values, rows * PANEL * 4)
    SHARE(across, HEAD * LONGEST * 4)
    SHARE(scores, QUERIES * LONGEST * 4)
#undef SHARE
    return used;
}

typedef struct {
    const float *words;
    const int32_t *ids, *lengths;
    Py_ssize_t texts, rows;
    float *out;
} Job;

/* The texts from some place on that are computed together, if all are to be parted in so many groups of about the same
 * number of rows. `first` is the row at which the first of them begins. */
static Job
group_at(const Job *all, Py_ssize_t groups, Py_ssize_t text, Py_ssize_t first)
{
    Job group = *all;
    group.ids += first;
    group.lengths += text;
    group.out += text * DIMS;
    group.texts = group.rows = 0;
    Py_ssize_t number = -1;
    for (; text < all->texts; text++) {
        Py_ssize_t middle = first + group.rows + all->lengths[text] / 2;
        if (number >= 0 && middle * groups / all->rows != number) {
            break;
        }
        number = middle * groups / all->rows;
        group.rows += all->lengths[text];
        group.texts++;
    }
    return group;
}

static Py_ssize_t
largest_group(const Job *all, Py_ssize_t groups)
{
    Py_ssize_t largest = 0, text = 0, first = 0;
    while (text < all->texts) {
        Job group = group_at(all, groups, text, first);
        largest = group.rows > largest ? group.rows : largest;
        text += group.texts;
        first += group.rows;
    }
    return largest;
}

#if defined(__GNUC__) && defined(__x86_64__)

#include <immintrin.h>

#define VNNI __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni")))
#define INLINE static inline __attribute__((always_inline)) VNNI
#define EACH(name, count) _Pragma("GCC unroll 32") for (int name = 0; name < (count); name++)

static int
can_compute(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512vnni");
}

/* Sixteen numbers as integers from 0 to 255. */
INLINE void
put_whole(uint8_t *to, __m512 numbers)
{
    __m512i rounded = _mm512_max_epi32(_mm512_cvtps_epi32(numbers), _mm512_setzero_si512());
    _mm_storeu_si128((__m128i *)to, _mm512_cvtusepi32_epi8(rounded));
}

/* The same for four times as many, which takes half as many instructions. */
INLINE void
put_panel(uint8_t *to, __m512 a, __m512 b, __m512 c, __m512 d)
{
    __m512i first = _mm512_packs_epi32(_mm512_cvtps_epi32(a), _mm512_cvtps_epi32(b));
    __m512i second = _mm512_packs_epi32(_mm512_cvtps_epi32(c), _mm512_cvtps_epi32(d));
    __m512i order = _mm512_set_epi32(15, 11, 7, 3, 14, 10, 6, 2, 13, 9, 5, 1, 12, 8, 4, 0);
    _mm512_storeu_si512(to, _mm512_permutexvar_epi32(order, _mm512_packus_epi16(first, second)));
}

/* Of a number, given in steps of the curve. */
INLINE __m512
gelu(__m512 x, const __m512 *curve, __m512 unit)
{
    /* Beyond its end what is below the bend is nearly nothing. */
    __m512 place = _mm512_min_ps(_mm512_abs_ps(x), _mm512_set1_ps(STEPS - 0.001f));
    __m512i step = _mm512_cvttps_epi32(place);
    __m512 part = _mm512_reduce_ps(place, _MM_FROUND_TO_NEG_INF);
    __m512 y = _mm512_permutex2var_ps(curve[0], step, curve[1]);
    y = _mm512_fmadd_ps(y, part, _mm512_permutex2var_ps(curve[2], step, curve[3]));
    y = _mm512_fmadd_ps(y, part, _mm512_permutex2var_ps(curve[4], step, curve[5]));
    return _mm512_fmadd_ps(_mm512_max_ps(x, _mm512_setzero_ps()), unit, y);
}

typedef enum { STORE, ADD, GELU } Kind;

typedef struct {
    float *numbers;
    uint8_t *whole;
    Py_ssize_t stride;
    const float *curve;
    float unit;
} Target;

/* Sums of products of four integers each. As an instruction in place: compilers tend to copy what is summed up. */
#define ADD_PRODUCTS(sums, x, w) __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(x), "v"(w))

/* The sums of some rows and some registers full of columns of a product; `rows` and `cols` are constants once this is
 * inlined. */
INLINE void
sum_up(const int32_t *start, const uint8_t *in, const int8_t *weights, int depth, int32_t *to, int rows, int cols)
{
    __m512i sums[TILE][PANEL / VECTOR];
    EACH(r, rows) EACH(c, cols) sums[r][c] = _mm512_loadu_si512(start + c * VECTOR);
    for (const uint8_t *end = in + depth; in < end; in += 4, weights += cols * ALIGNMENT) {
        __m512i w[PANEL / VECTOR];
        EACH(c, cols) w[c] = _mm512_loadu_si512(weights + c * ALIGNMENT);
        EACH(r, rows)
        {
            int32_t four;
            memcpy(&four, in + r * (Py_ssize_t)depth, 4);
            __m512i x = _mm512_set1_epi32(four);
            EACH(c, cols) ADD_PRODUCTS(sums[r][c], x, w[c]);
        }
    }
    EACH(r, rows) EACH(c, cols) _mm512_storeu_si512(to + r * PANEL + c * VECTOR, sums[r][c]);
}

#define SUM_UP(rows, cols)                                                                                      \
    static __attribute__((noinline)) VNNI void sum_up_##rows##_##cols(const int32_t *start, const uint8_t *in,  \
                                                                      const int8_t *weights, int depth,         \
                                                                      int32_t *to)                              \
    {                                                                                                           \
        sum_up(start, in, weights, depth, to, rows, cols);                                                      \
    }
#define SUM_UP_ROWS(cols) SUM_UP(1, cols) SUM_UP(2, cols) SUM_UP(3, cols) SUM_UP(4, cols) SUM_UP(5, cols) SUM_UP(6, cols)
SUM_UP_ROWS(1)
SUM_UP_ROWS(2)
SUM_UP_ROWS(3)
SUM_UP_ROWS(4)
#define ROWS_OF(cols) {sum_up_1_##cols, sum_up_2_##cols, sum_up_3_##cols, sum_up_4_##cols, sum_up_5_##cols, sum_up_6_##cols}

typedef void (*SumUp)(const int32_t *, const uint8_t *, const int8_t *, int, int32_t *);
static const SumUp sums_of[PANEL / VECTOR][TILE] = {ROWS_OF(1), ROWS_OF(2), ROWS_OF(3), ROWS_OF(4)};

INLINE __m512
scaled(const Product *product, int column, const int32_t *sums)
{
    __m512 scale = _mm512_loadu_ps(product->scale + column), bias = _mm512_loadu_ps(product->bias + column);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_loadu_si512(sums)), scale, bias);
}

/* What becomes of the sums: they are scaled, and go on. */
INLINE void
hand_on(const Product *product, int column, const int32_t *sums, Target to, Kind kind, int rows, int cols)
{
    if (kind == GELU) {
        __m512 curve[6], unit = _mm512_set1_ps(to.unit);
        EACH(piece, 6) curve[piece] = _mm512_loadu_ps(to.curve + piece * VECTOR);
        for (int r = 0; r < rows; r++) {
            const int32_t *row = sums + r * PANEL;
            uint8_t *place = to.whole + r * to.stride;
            if (cols == PANEL / VECTOR) {
                __m512 y[PANEL / VECTOR];
                EACH(c, PANEL / VECTOR) y[c] = gelu(scaled(product, column + c * VECTOR, row + c * VECTOR), curve, unit);
                put_panel(place, y[0], y[1], y[2], y[3]);
            }
            else {
                for (int c = 0; c < cols * VECTOR; c += VECTOR) {
                    put_whole(place + c, gelu(scaled(product, column + c, row + c), curve, unit));
                }
            }
        }
        return;
    }
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < cols * VECTOR; c += VECTOR) {
            float *place = to.numbers + r * to.stride + c;
            __m512 y = scaled(product, column + c, sums + r * PANEL + c);
            _mm512_storeu_ps(place, kind == ADD ? _mm512_add_ps(y, _mm512_loadu_ps(place)) : y);
        }
    }
}

/* One panel of columns, for all rows. Its weights stay in the first cache meanwhile. */
INLINE void
panel(const Product *product, const uint8_t *in, Py_ssize_t rows, int column, Target to, Kind kind)
{
    const int8_t *weights = product->weights + (Py_ssize_t)column * product->depth;
    int cols = product->width - column < PANEL ? (product->width - column) / VECTOR : PANEL / VECTOR;
    Py_ssize_t size = (Py_ssize_t)cols * VECTOR * product->depth;
    const int8_t *next = weights + size, *ahead = next;
    int32_t sums[TILE * PANEL] __attribute__((aligned(ALIGNMENT)));
    for (Py_ssize_t row = 0; row < rows; row += TILE) {
        int count = rows - row < TILE ? (int)(rows - row) : TILE;
        /* What comes next is on its way from memory meanwhile, each time a part of it. */
        for (; ahead < next + size * (row + count) / rows; ahead += ALIGNMENT) {
            _mm_prefetch(ahead, _MM_HINT_T1);
        }
        sums_of[cols - 1][count - 1](product->start + column, in + row * product->depth, weights, product->depth, sums);
        Target here = to;
        if (kind == GELU) {
            here.whole += row * to.stride;
        }
        else {
            here.numbers += row * to.stride;
        }
        hand_on(product, column, sums, here, kind, count, cols);
    }
}

static VNNI void
store_panel(const Product *product, const uint8_t *in, Py_ssize_t rows, int column, float *to)
{
    Target target = {.numbers = to, .stride = PANEL};
    panel(product, in, rows, column, target, STORE);
}

static VNNI void
add_product(const Product *product, const uint8_t *in, Py_ssize_t rows, float *to)
{
    for (int column = 0; column < product->width; column += PANEL) {
        Target target = {.numbers = to + column, .stride = product->width};
        panel(product, in, rows, column, target, ADD);
    }
}

static VNNI void
widen(const Model *model, const Product *product, const uint8_t *in, Py_ssize_t rows, uint8_t *to)
{
    for (int column = 0; column < product->width; column += PANEL) {
        Target target = {.whole = to + column, .stride = product->width, .curve = model->curve, .unit = model->unit};
        panel(product, in, rows, column, target, GELU);
    }
}

INLINE __m512
normed(__m512 x, const float *gain, const float *shift)
{
    return _mm512_fmadd_ps(x, _mm512_loadu_ps(gain), _mm512_loadu_ps(shift));
}

/* A row with mean 0 and variance 1: as numbers in its place, and as integers. */
INLINE void
norm_row(float *row, const Norm *norm, uint8_t *whole)
{
    enum { COUNT = DIMS / VECTOR };
    __m512 x[COUNT], total = _mm512_setzero_ps(), squares = _mm512_setzero_ps();
    EACH(c, COUNT)
    {
        x[c] = _mm512_loadu_ps(row + c * VECTOR);
        total = _mm512_add_ps(total, x[c]);
    }
    __m512 mean = _mm512_set1_ps(_mm512_reduce_add_ps(total) / DIMS);
    EACH(c, COUNT)
    {
        x[c] = _mm512_sub_ps(x[c], mean);
        squares = _mm512_fmadd_ps(x[c], x[c], squares);
    }
    float variance = _mm512_reduce_add_ps(squares) / DIMS + 1e-12f;
    __m512 narrow = _mm512_div_ps(_mm512_set1_ps(1), _mm512_sqrt_ps(_mm512_set1_ps(variance)));
    EACH(c, COUNT)
    {
        int at = c * VECTOR;
        x[c] = _mm512_mul_ps(x[c], narrow);
        _mm512_storeu_ps(row + at, normed(x[c], norm->gain + at, norm->shift + at));
    }
    EACH(p, DIMS / PANEL)
    {
        __m512 y[PANEL / VECTOR];
        EACH(c, PANEL / VECTOR)
        {
            int at = p * PANEL + c * VECTOR;
            y[c] = normed(x[p * (PANEL / VECTOR) + c], norm->gain8 + at, norm->shift8 + at);
        }
        put_panel(whole + p * PANEL, y[0], y[1], y[2], y[3]);
    }
}

static VNNI void
norm_rows(float *rows, Py_ssize_t count, const Norm *norm, uint8_t *whole)
{
    for (Py_ssize_t row = 0; row < count; row++) {
        norm_row(rows + row * DIMS, norm, whole + row * DIMS);
    }
}

/* Two to the power of numbers, to six digits: a polynomial for what is behind their point. */
INLINE __m512
power_of_two(__m512 x)
{
    __m512 part = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF);
    __m512 y = _mm512_set1_ps(1.367031e-2f);
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(5.1745e-2f));
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(2.4160436e-1f));
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(6.9297292e-1f));
    y = _mm512_fmadd_ps(y, part, _mm512_set1_ps(1.0000035f));
    return _mm512_scalef_ps(y, x);
}

/* Sixteen rows of sixteen numbers, turned. */
INLINE void
turn(const float *from, float *to, int stride)
{
    __m512 a[VECTOR], b[VECTOR];
    EACH(r, VECTOR) a[r] = _mm512_loadu_ps(from + r * PANEL);
    EACH(r, VECTOR / 2)
    {
        b[2 * r] = _mm512_unpacklo_ps(a[2 * r], a[2 * r + 1]);
        b[2 * r + 1] = _mm512_unpackhi_ps(a[2 * r], a[2 * r + 1]);
    }
    EACH(q, VECTOR / 4) EACH(half, 2)
    {
        __m512d low = _mm512_castps_pd(b[4 * q + half]), high = _mm512_castps_pd(b[4 * q + half + 2]);
        a[4 * q + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
        a[4 * q + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
    }
    EACH(column, 4)
    {
        __m512 first = _mm512_shuffle_f32x4(a[column], a[4 + column], 0x88);
        __m512 second = _mm512_shuffle_f32x4(a[column], a[4 + column], 0xdd);
        __m512 third = _mm512_shuffle_f32x4(a[8 + column], a[12 + column], 0x88);
        __m512 fourth = _mm512_shuffle_f32x4(a[8 + column], a[12 + column], 0xdd);
        _mm512_storeu_ps(to + column * stride, _mm512_shuffle_f32x4(first, third, 0x88));
        _mm512_storeu_ps(to + (4 + column) * stride, _mm512_shuffle_f32x4(second, fourth, 0x88));
        _mm512_storeu_ps(to + (8 + column) * stride, _mm512_shuffle_f32x4(first, third, 0xdd));
        _mm512_storeu_ps(to + (12 + column) * stride, _mm512_shuffle_f32x4(second, fourth, 0xdd));
    }
}

/* How much some queries have to do with some registers full of keys, and the highest so far; keys beyond the text have
 * nothing to do with it. */
INLINE void
score(const float *queries, const float *across, int stride, int left, float *scores, __m512 *highest, int cols)
{
    __m512 sums[QUERIES][3];
    EACH(r, QUERIES) EACH(c, cols) sums[r][c] = _mm512_setzero_ps();
    for (int d = 0; d < HEAD; d++) {
        __m512 k[3];
        EACH(c, cols) k[c] = _mm512_loadu_ps(across + d * stride + c * VECTOR);
        EACH(r, QUERIES)
        {
            __m512 q = _mm512_set1_ps(queries[r * PANEL + d]);
            EACH(c, cols) sums[r][c] = _mm512_fmadd_ps(q, k[c], sums[r][c]);
        }
    }
    int beyond = cols * VECTOR - left;
    __mmask16 none = beyond > 0 ? (__mmask16)(0xffff0000u >> beyond) : 0;
    EACH(r, QUERIES)
    {
        sums[r][cols - 1] = _mm512_mask_mov_ps(sums[r][cols - 1], none, _mm512_set1_ps(-3e38f));
        EACH(c, cols)
        {
            highest[r] = _mm512_max_ps(highest[r], sums[r][c]);
            _mm512_storeu_ps(scores + r * stride + c * VECTOR, sums[r][c]);
        }
    }
}

/* Some queries of one head on the keys and values of a text. The values come in the integers of the next product. */
INLINE void
attend_some(const float *queries, const float *across, const float *values, int tokens, float *scores, uint8_t *to,
            int wanted)
{
    int padded = (tokens + VECTOR - 1) / VECTOR * VECTOR;
    __m512 highest[QUERIES], total[QUERIES];
    EACH(r, QUERIES) highest[r] = _mm512_set1_ps(-3e38f);
    for (int key = 0; key < padded; key += 3 * VECTOR) {
        switch ((padded - key) / VECTOR) {
        case 1: score(queries, across + key, padded, tokens - key, scores + key, highest, 1); break;
        case 2: score(queries, across + key, padded, tokens - key, scores + key, highest, 2); break;
        default: score(queries, across + key, padded, tokens - key, scores + key, highest, 3);
        }
    }
    EACH(r, QUERIES)
    {
        __m512 top = _mm512_set1_ps(_mm512_reduce_max_ps(highest[r]));
        total[r] = _mm512_setzero_ps();
        for (int key = 0; key < padded; key += VECTOR) {
            __m512 weight = power_of_two(_mm512_sub_ps(_mm512_loadu_ps(scores + r * padded + key), top));
            total[r] = _mm512_add_ps(total[r], weight);
            _mm512_storeu_ps(scores + r * padded + key, weight);
        }
    }
    __m512 seen[QUERIES][2];
    EACH(r, QUERIES) EACH(c, 2) seen[r][c] = _mm512_setzero_ps();
    for (int key = 0; key < tokens; key++) {
        __m512 v0 = _mm512_loadu_ps(values + key * PANEL), v1 = _mm512_loadu_ps(values + key * PANEL + VECTOR);
        EACH(r, QUERIES)
        {
            __m512 weight = _mm512_set1_ps(scores[r * padded + key]);
            seen[r][0] = _mm512_fmadd_ps(weight, v0, seen[r][0]);
            seen[r][1] = _mm512_fmadd_ps(weight, v1, seen[r][1]);
        }
    }
    EACH(r, QUERIES)
    {
        if (r < wanted) {
            __m512 share = _mm512_set1_ps(1 / _mm512_reduce_add_ps(total[r]));
            put_whole(to + r * DIMS, _mm512_mul_ps(seen[r][0], share));
            put_whole(to + r * DIMS + VECTOR, _mm512_mul_ps(seen[r][1], share));
        }
    }
}

static VNNI void
attend_text(const Room *room, Py_ssize_t first, int tokens, int column)
{
    for (int head = 0; head < HEADS_AT_ONCE; head++) {
        Py_ssize_t at = first * PANEL + head * HEAD;
        int padded = (tokens + VECTOR - 1) / VECTOR * VECTOR;
        for (int key = 0; key < padded; key += VECTOR) {
            turn(room->keys + at + key * PANEL, room->across + key, padded);
            turn(room->keys + at + key * PANEL + VECTOR, room->across + VECTOR * padded + key, padded);
        }
        for (int row = 0; row < tokens; row += QUERIES) {
            attend_some(room->queries + at + row * PANEL, room->across, room->values + at, tokens, room->scores,
                        room->seen + (first + row) * DIMS + column + head * HEAD, tokens - row);
        }
    }
}

static VNNI void
attend(const Job *job, const Room *room, const Product *look)
{
    for (int pair = 0; pair < DIMS / PANEL; pair++) {
        store_panel(look, room->whole, job->rows, (3 * pair + 0) * PANEL, room->queries);
        store_panel(look, room->whole, job->rows, (3 * pair + 1) * PANEL, room->keys);
        store_panel(look, room->whole, job->rows, (3 * pair + 2) * PANEL, room->values);
        Py_ssize_t first = 0;
        for (Py_ssize_t text = 0; text < job->texts; text++) {
            attend_text(room, first, job->lengths[text], pair * PANEL);
            first += job->lengths[text];
        }
    }
}

static VNNI void
begin(const Model *model, const Job *job, const Room *room)
{
    Py_ssize_t row = 0;
    for (Py_ssize_t text = 0; text < job->texts; text++) {
        for (int place = 0; place < job->lengths[text]; place++, row++) {
            const float *word = job->words + (Py_ssize_t)job->ids[row] * DIMS;
            Py_ssize_t soon = row + 2 < job->rows ? row + 2 : row;
            EACH(line, DIMS / VECTOR) _mm_prefetch(job->words + (Py_ssize_t)job->ids[soon] * DIMS + line * VECTOR, _MM_HINT_T0);
            for (int c = 0; c < DIMS; c++) {
                room->hidden[row * DIMS + c] = word[c] + model->places[place * DIMS + c];
            }
        }
    }
    norm_rows(room->hidden, job->rows, &model->embedded, room->whole);
}

/* The mean of each text's rows, with length 1. */
static VNNI void
finish(const Job *job, const Room *room)
{
    const float *row = room->hidden;
    for (Py_ssize_t text = 0; text < job->texts; text++) {
        float *out = job->out + text * DIMS;
        memset(out, 0, DIMS * sizeof(float));
        for (int token = 0; token < job->lengths[text]; token++, row += DIMS) {
            for (int c = 0; c < DIMS; c++) {
                out[c] += row[c];
            }
        }
        __m512 squares = _mm512_setzero_ps();
        for (int c = 0; c < DIMS; c += VECTOR) {
            __m512 x = _mm512_loadu_ps(out + c);
            squares = _mm512_fmadd_ps(x, x, squares);
        }
        __m512 length = _mm512_max_ps(_mm512_sqrt_ps(_mm512_set1_ps(_mm512_reduce_add_ps(squares))), _mm512_set1_ps(1e-12f));
        for (int c = 0; c < DIMS; c += VECTOR) {
            _mm512_storeu_ps(out + c, _mm512_div_ps(_mm512_loadu_ps(out + c), length));
        }
    }
}

static void
compute(const Model *model, const Job *job, const Room *room)
{
    begin(model, job, room);
    for (int number = 0; number < LAYERS; number++) {
        const Layer *layer = &model->layers[number];
        attend(job, room, &layer->look);
        add_product(&layer->attend, room->seen, job->rows, room->hidden);
        norm_rows(room->hidden, job->rows, &layer->attended, room->whole);
        widen(model, &layer->widen, room->whole, job->rows, room->wide);
        add_product(&layer->narrow, room->wide, job->rows, room->hidden);
        norm_rows(room->hidden, job->rows, &layer->narrowed, room->whole);
    }
    finish(job, room);
}

/* One group after the other: those whose turn is not taken by another thread. */
static void
compute_groups(const Model *model, const Job *all, Py_ssize_t groups, const Room *room, int64_t *turn)
{
    Py_ssize_t text = 0, first = 0;
    int64_t number = 0, mine = __atomic_fetch_add(turn, 1, __ATOMIC_RELAXED);
    for (; text < all->texts; number++) {
        Job group = group_at(all, groups, text, first);
        if (number == mine) {
            compute(model, &group, room);
            mine = __atomic_fetch_add(turn, 1, __ATOMIC_RELAXED);
        }
        text += group.texts;
        first += group.rows;
    }
}

#else

static int
can_compute(void)
{
    return 0;
}

static void
compute_groups(const Model *model, const Job *all, Py_ssize_t groups, const Room *room, int64_t *turn)
{
    (void)model, (void)all, (void)groups, (void)room, (void)turn;
}

#endif

/* Python's side. */

static const char *
check(const Job *job, const Py_buffer *words, const Py_buffer *out)
{
    Py_ssize_t vocabulary = words->len / (DIMS * 4), total = 0;
    for (Py_ssize_t text = 0; text < job->texts; text++) {
        if (job->lengths[text] < 1 || job->lengths[text] > LONGEST) {
            return "a text has 1 to 256 ids";
        }
        total += job->lengths[text];
    }
    if (total != job->rows) {
        return "the lengths do not add up to the number of ids";
    }
    for (Py_ssize_t row = 0; row < job->rows; row++) {
        if (job->ids[row] < 0 || job->ids[row] >= vocabulary) {
            return "an id is not in the vocabulary";
        }
    }
    if (out->len != job->texts * DIMS * 4) {
        return "out has another size";
    }
    if ((uintptr_t)words->buf % 4 || (uintptr_t)out->buf % 4) {
        return "words and out must be aligned";
    }
    return NULL;
}

/* Memory of calls that ended, for those that follow: to get so much from the system anew takes a while each time. Only
 * touched by whoever holds the interpreter's lock. */
enum { SPARES = 4, LARGEST_SPARE = 8 << 20 };
static struct {
    char *memory;
    Py_ssize_t size;
} spares[SPARES];

static char *
take_memory(Py_ssize_t *size)
{
    for (int at = 0; at < SPARES; at++) {
        if (spares[at].memory != NULL && spares[at].size >= *size) {
            char *memory = spares[at].memory;
            *size = spares[at].size;
            spares[at].memory = NULL;
            return memory;
        }
    }
    return PyMem_Malloc(*size);
}

static void
give_memory(char *memory, Py_ssize_t size)
{
    int place = 0;
    for (int at = 1; at < SPARES; at++) {
        if (spares[at].memory == NULL || (spares[place].memory != NULL && spares[at].size < spares[place].size)) {
            place = at;
        }
    }
    if (memory == NULL || size > LARGEST_SPARE || (spares[place].memory != NULL && spares[place].size >= size)) {
        PyMem_Free(memory);
        return;
    }
    PyMem_Free(spares[place].memory);
    spares[place].memory = memory;
    spares[place].size = size;
}

PyDoc_STRVAR(embed_doc,
"embed(layers, words, ids, lengths, out, groups, turn, /)\n--\n\n"
"Write one row of length 1 to `out` (float32) for each text: `lengths` (int32) says how many of the `ids` (int32) are\n"
"its own. `layers` is the file of the layers, `words` the embeddings of the ids (float32). The texts are computed in so\n"
"many groups. Threads that are to share them call this with the same `turn`, an int64 that is 0 at first.");

static PyObject *
embed(PyObject *module, PyObject *arguments)
{
    Py_buffer layers, words, ids, lengths, out, turn;
    Py_ssize_t groups;
    if (!PyArg_ParseTuple(arguments, "y*y*y*y*w*nw*", &layers, &words, &ids, &lengths, &out, &groups, &turn)) {
        return NULL;
    }
    Model model;
    Room room;
    int widest = 0;
    const char *wrong = NULL;
    char *memory = NULL;
    Py_ssize_t size = 0;
    Job job = {.words = words.buf, .rows = ids.len / 4, .texts = lengths.len / 4, .out = out.buf};
    /* Copies, which nobody can change once they are checked. */
    int32_t *given = PyMem_Malloc(job.rows * 4 + job.texts * 4 + 1);
    if (!can_compute()) {
        wrong = "this processor has no AVX-512 VNNI";
    }
    else if (!read_model(&layers, &model, &widest)) {
        wrong = "this is no file of layers";
    }
    else if (groups < 1 || turn.len != sizeof(int64_t) || (uintptr_t)turn.buf % sizeof(int64_t)) {
        wrong = "there must be a group, and an int64 that says whose turn it is";
    }
    else if (given != NULL) {
        job.ids = memcpy(given, ids.buf, job.rows * 4);
        job.lengths = memcpy(given + job.rows, lengths.buf, job.texts * 4);
        wrong = check(&job, &words, &out);
    }
    if (wrong == NULL && given != NULL) {
        groups = groups < job.rows ? groups : job.rows;
        Py_ssize_t rows = largest_group(&job, groups);
        size = lay_out(&room, NULL, rows, widest) + ALIGNMENT;
        memory = take_memory(&size);
        if (memory != NULL) {
            lay_out(&room, memory + ALIGNMENT - (uintptr_t)memory % ALIGNMENT, rows, widest);
        }
    }
    if (wrong != NULL) {
        PyErr_SetString(PyExc_ValueError, wrong);
    }
    else if (memory == NULL) {
        PyErr_NoMemory();
    }
    else {
        Py_BEGIN_ALLOW_THREADS
        compute_groups(&model, &job, groups, &room, turn.buf);
        Py_END_ALLOW_THREADS
    }
    give_memory(memory, size);
    PyMem_Free(given);
    PyBuffer_Release(&layers);
    PyBuffer_Release(&words);
    PyBuffer_Release(&ids);
    PyBuffer_Release(&lengths);
    PyBuffer_Release(&out);
    PyBuffer_Release(&turn);
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(can_embed_doc,
"can_embed()\n--\n\n"
"Whether this processor has the instructions that `embed` is made of.");

static PyObject *
can_embed(PyObject *module, PyObject *nothing)
{
    return PyBool_FromLong(can_compute());
}

static PyMethodDef methods[] = {
    {"can_embed", can_embed, METH_NOARGS, can_embed_doc},
    {"embed", embed, METH_VARARGS, embed_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_layers", .m_size = 0, .m_methods = methods,
};

PyMODINIT_FUNC
PyInit__layers(void)
{
    return PyModuleDef_Init(&definition);
}
