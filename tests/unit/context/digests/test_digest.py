"""Digests of large tool outputs: they show what matters, within a limit."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import re
import struct
import subprocess
import sys
import time
import unicodedata
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.seeds import examples, seeded

from duramen.context.digests.digest import digest, minimum

REFERENCE = 'fetch("#17")'


def type_name(value: object) -> str:
    """A short name of a test case."""
    return type(value).__name__


class CharacterCounter:
    """One token for three characters, more than any tokenizer takes for English."""

    name = "characters"

    def count(self, text: str) -> int:
        return len(text) // 3 + 1


class WordCounter:
    """One token for each word, and more for each line: the whole takes more than its parts."""

    name = "words"

    def count(self, text: str) -> int:
        return 1 + len(text.split()) + text.count("\n") ** 2


class OverheadCounter(CharacterCounter):
    """Adds a few tokens to every text, as the estimate does."""

    def count(self, text: str) -> int:
        return super().count(text) + 5


COUNTER = CharacterCounter()


def digested(output: object, limit: int = 100) -> str:
    text = digest(output, limit=limit, counter=COUNTER, reference=REFERENCE)
    assert COUNTER.count(text) <= limit, text
    assert text.endswith(f"\nfull: {REFERENCE}")
    return text


def is_safe(text: str) -> bool:
    """Whether a text has no control characters, line separators, bidirectional controls or lone surrogates."""
    bidirectional = [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]
    return not any(
        unicodedata.category(char) in ("Cc", "Cs", "Zl", "Zp") or ord(char) in bidirectional
        for char in text.replace("\n", "")
    )


# -- outputs of common programs

PYTEST = (
    "============================= test session starts ==============================\n"
    "platform linux -- Python 3.11.7, pytest-8.3.3\ncollected 123 items\n\n"
    + "".join(f"tests/test_{n}.py ....... [ {n}%]\n" for n in range(90))
    + """
=================================== FAILURES ===================================
___________________________ test_refund_rounds_down ____________________________

    def test_refund_rounds_down():
>       assert refund(10.005) == 10.00
E       AssertionError: assert 10.01 == 10.0

tests/test_billing.py:41: AssertionError
=========================== short test summary info ============================
FAILED tests/test_billing.py::test_refund_rounds_down - AssertionError: assert 10.01 == 10.0
FAILED tests/test_billing.py::test_credit_note - KeyError: 'customer'
FAILED tests/test_mail.py::test_sends - ConnectionRefusedError: [Errno 111]
======================== 3 failed, 120 passed in 4.21s =========================
"""
)


def test_a_test_run_shows_how_many_and_which_tests_failed() -> None:
    text = digested(PYTEST)
    assert "\n3 failed, 120 passed in 4.21s\n" in text
    assert "! FAILED tests/test_billing.py::test_refund_rounds_down - AssertionError: assert 10.01 == 10.0" in text
    assert "test_credit_note" in text
    assert text.startswith("[tool output, ")
    assert f"{len(PYTEST):,} characters, {PYTEST.count(chr(10)):,} lines]" in text


@pytest.mark.promise("W5")
def test_a_stack_trace_in_50k_lines_is_shown() -> None:
    log = [
        f"2024-05-01 12:00:{n % 60:02},123 INFO worker.{n % 7} request {n} errors=0 in {n % 90} ms"
        for n in range(50_000)
    ]
    log[25_000:25_000] = [
        "Traceback (most recent call last):",
        '  File "app.py", line 3, in <module>',
        "    main()",
        '  File "db.py", line 88, in connect',
        "    raise OperationalError(message)",
        "sqlalchemy.exc.OperationalError: could not reach host db-3, port 5432",
    ]
    output = "\n".join(log)
    assert COUNTER.count(output) > 50_000
    text = digested(output)
    assert "! sqlalchemy.exc.OperationalError: could not reach host db-3, port 5432" in text
    assert "50,006 lines" in text
    assert "request 0" in digested(output, 160)
    assert "request 49999" in digested(output, 160)
    assert "errors=0" not in "".join(line for line in text.splitlines() if line.startswith("!"))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("src/x.c:14:5: error: 'foo' undeclared (first use)", "! src/x.c:14:5: error: 'foo' undeclared (first use)"),
        ("error[E0308]: mismatched types", "! error[E0308]: mismatched types"),
        ("2024-05-01T10:00:00Z ERROR payment: card refused", "! ERROR payment: card refused"),
        ("\x1b[31mERROR\x1b[0m: disk is full", "! ERROR: disk is full"),
        ("panic: runtime error: index out of range [5]", "! panic: runtime error: index out of range [5]"),
        ("thread 'main' panicked at src/main.rs:4:5", "! thread 'main' panicked at src/main.rs:4:5"),
        ("bash: /etc/shadow: Permission denied", "! bash: /etc/shadow: Permission denied"),
        ("fatal: not a git repository", "! fatal: not a git repository"),
        ("Caused by: java.io.IOException: pipe closed", "! Caused by: java.io.IOException: pipe closed"),
        ("npm ERR! code ERESOLVE", "! npm ERR! code ERESOLVE"),
        ("downloading 99%\rdownloading failed: timeout", "! downloading failed: timeout"),
        ("Segmentation fault (core dumped)", "! Segmentation fault (core dumped)"),
    ],
)
def test_lines_with_errors_are_shown(error: str, expected: str) -> None:
    normal = [f"step {name} went well" for name in ("one", "two", "three")] * 700
    assert expected in digested("\n".join([*normal, error, *normal])).splitlines()


def test_a_repeated_error_is_shown_once_and_rare_ones_too() -> None:
    lines = [f"12:00:{n % 60:02} ERROR: request {n} timed out" for n in range(3000)]
    lines[1500] = "12:00:00 ERROR: no space left on the device"
    shown = [line for line in digested("\n".join(lines)).splitlines() if line.startswith("!")]
    assert [line.partition(": ")[2][:12] for line in shown] == ["request 0 ti", "no space lef"]


def test_errors_that_differ_in_an_address_are_shown_once() -> None:
    lines = [f"ERROR: bad pointer 0x{n * 7919:08x} in audience" for n in range(40)]
    shown = [line for line in digested("\n".join(lines), 400).splitlines() if line.startswith("!")]
    assert len(shown) == 1


def test_mentions_of_no_errors_are_not_shown_as_errors() -> None:
    lines = ["checked module a", "0 errors, no failures", "error count: 0", "errors=[]", "src/errors.py", "on_error(x)"]
    assert "\n!" not in digested("\n".join(lines * 300), 400)


@pytest.mark.parametrize(
    "line",
    [
        *("Process exited with code 137", "exit status: 137", "exit code 137", "returncode=137", "exit 137"),
        *('"exit_code": 137,', "Command failed with exit code 137", "rc=137", "return code was 137"),
    ],
)
def test_the_exit_status_is_shown(line: str) -> None:
    output = "exit status 0\n" + "compiling the next unit\n" * 3000 + line + "\n" + "cleaning up\n" * 500
    assert "exit status 137" in digested(output).splitlines()
    assert "exit status 0" not in digested(output).splitlines()


@pytest.mark.parametrize("text", ["rc1 of version 2", "return 5", "the exit is near", "sys.exit(3)"])
def test_other_numbers_are_not_shown_as_an_exit_status(text: str) -> None:
    assert "exit status" not in digested(f"{text}\n" * 400, 300)


@pytest.mark.parametrize(
    "line",
    [
        *("Found 12 errors in 3 files (checked 40 source files)", "Tests run: 31, Failures: 2, Errors: 0, Skipped: 1"),
        *("added 120 packages, and audited 121 packages in 3s", "5 files changed, 30 insertions(+), 2 deletions(-)"),
        "Total: 1,204",
    ],
)
def test_counts_are_shown(line: str) -> None:
    assert line in digested("working on it\n" * 3000 + f"==== {line} ====\n" + "bye\n").splitlines()


def test_repeated_lines_with_numbers_are_not_shown_as_counts() -> None:
    lines = digested("\n".join(f"worker {n} wrote {n * 3} rows" for n in range(900))).splitlines()[1:]
    assert lines == ["first: worker 0 wrote 0 rows", "last: worker 899 wrote 2697 rows", f"full: {REFERENCE}"]


def test_source_code_with_the_word_error_is_not_shown_as_errors() -> None:
    code = "def load(x):\n    # error: never mind\n    if error: return\n    raise ValueError('load failed')\n"
    assert "!" not in digested(code * 200, 300)


def test_an_http_response_shows_its_status() -> None:
    assert (
        "HTTP/1.1 404 Not Found"
        in digested("HTTP/1.1 404 Not Found\nserver: x\n\n" + "lorem ipsum\n" * 999).splitlines()
    )


def test_a_commit_log_shows_the_number_and_subjects_of_commits() -> None:
    log = "".join(
        f"commit {n:040x}\nAuthor: Ann <a@b.example>\nDate:   Mon May {n % 28 + 1} 2024\n\n    Change {n}: an error\n\n"
        for n in range(56, 0, -1)
    )
    text = digested(log)
    assert "\n56 commits\n" in text
    assert "Change 56" in text
    assert "last: 000000000 Change 1:" in text
    assert "!" not in text


def test_a_diff_shows_the_files_and_the_number_of_changes() -> None:
    one = (
        "diff --git a/src/{0} b/src/{0}\nindex 1..2 100644\n--- a/src/{0}\n+++ b/src/{0}\n@@ -1,3 +1,4 @@\n error: x\n"
    )
    text = digested("".join(one.format(f"f{n}.py") + "+added\n" * 50 + "-removed\n" * 20 for n in range(8)))
    assert "8 files changed, +400 -160 lines" in text
    assert "src/f0.py, src/f1.py" in text
    assert "[tool output, diff, " in text
    plain = "--- old.txt\t2024\n+++ new.txt\t2024\n@@ -1 +1 @@\n-a\n+b\n" + " same\n" * 500
    assert "1 file changed, +1 -1 lines\nnew.txt" in digested(plain)


def test_a_file_listing_shows_the_number_of_files_and_folders() -> None:
    folder = "{}:\ntotal 12\ndrwxr-xr-x 2 a b 4096 Jan  1 00:00 sub\n" + "".join(
        f"-rw-r--r-- 1 a b 12 Jan  1 00:00 error_{n}.py\n" for n in range(30)
    )
    text = digested("\n".join(folder.format(f"./folder{n}") for n in range(40)))
    assert "1,200 files, 40 directories" in text
    assert "./folder0" in text
    assert "error_0.py, error_1.py" in text
    assert "\n!" not in text


def test_a_web_page_shows_its_title_and_headings() -> None:
    page = (
        "<!DOCTYPE html><html><head><title>Pricing &amp; plans</title></head><body>\n<h1>Plans <b>for</b> teams</h1>"
        + '<p class="error">lorem</p>\n' * 5000
        + "<H2 id=x>Enterprise</H2><a href=/>x</a></body></html>"
    )
    text = digested(page)
    assert "title: Pricing &amp; plans\n" in text
    assert "headings: Plans for teams; Enterprise\n" in text
    assert "1 link, 0 images" in text
    assert "<" not in text


def test_a_long_line_shows_its_start_and_end() -> None:
    code = "/*! charts v2.1 */!function(e){" + "".join(
        f"var a{n}=function(e){{return e.error||{n}}};" for n in range(9000)
    )
    text = digested(code + "window.theEnd=1}();")
    assert "1 line]" in text
    assert "first: /*! charts v2.1 */!function(e)" in text
    assert "window.theEnd=1}();\nfull: " in text


# -- data

ANSWER: dict[str, Any] = {
    "status": "ok",
    "total": 1204,
    "next": None,
    "items": [
        {"id": n, "name": f"Product {n}", "price": n + 0.5, "tags": ["a"], "state": "sold" if n % 4 else "free"}
        for n in range(1204)
    ],
}


@pytest.mark.parametrize("output", [ANSWER, json.dumps(ANSWER), json.dumps(ANSWER, indent=2).encode()], ids=type_name)
def test_json_shows_its_structure(output: object) -> None:
    text = digested(output)
    assert "status: ok\ntotal: 1204\n" in text
    assert "items: list of 1,204 objects with id, name, price, tags, state}" in text
    assert 'by state: "sold" 903, "free" 301' in text
    assert 'first: {id: 0, name: "Product 0", price: 0.5' in text


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ([1, 2, 3], "list of 3 integers"),
        ([1, "a", None], "list of 3 (integer, text, null)"),
        ([[1, 2], [3]], "list of 2, the first a list of 2 integers"),
        ({"a": {"b": {"c": {"d": 1}}}}, "{a: {b: {c: object of 1 key}}}"),
        ({"blob": b"12345", "on": True, "long": "x " * 500}, "{blob: 5 bytes, on: true, long: text of 1,000}"),
        ({3: 4, None: 5}, "{3: 4, null: 5}"),
        ({1, 2, 3}, "set of 3 (integer)"),
        ({"when": dt.date(2024, 5, 1), "price": Decimal("1.10")}, "{when: 2024-05-01, price: 1.10}"),
        ({"at": PurePosixPath("/a/b")}, "{at: "),
        (10**5000, "integer of 16,610 bits"),
        ({"a.b": {"code": 3}, "a": 5, "b": {"": {"": {"code": 4}}}}, "{a.b: object of 1 key, a: 5, b: {"),
        (None, "null"),
        (2.5, "2.5"),
        ([], "empty list"),
        ('{"price": 1.10, "mass": 1e5}', "{price: 1.10, mass: 1e5}"),
        ('{"k": 123456789012345678901234567890}', "{k: 123456789012345678901234567890}"),
    ],
    ids=type_name,
)
def test_data_shows_its_structure(output: object, expected: str) -> None:
    assert any(line.startswith(expected) for line in digested(output).splitlines()), digested(output)


def test_json_lines_are_shown_as_a_list() -> None:
    text = digested("\n".join(json.dumps({"level": "error" if n == 5 else "info", "n": n}) for n in range(900)))
    assert "JSON lines" in text
    assert "list of 900 objects with level, n" in text
    assert 'by level: "info" 899, "error" 1' in text


def test_errors_in_data_are_shown() -> None:
    text = digested({"error": {"code": 404, "message": "User 17 is not here"}, "data": [1] * 3000, "errors": None})
    assert "error.code: 404" in text
    assert "error.message: User 17 is not here" in text
    items = [{"id": n, "error": "quota exceeded" if n == 700 else None} for n in range(1000)]
    assert "! quota exceeded" in digested(items)
    assert "\nerror: " not in digested({"error": None, "items": [1, 2]})


def test_program_output_inside_data_is_digested() -> None:
    text = digested({"stdout": PYTEST, "stderr": "", "exit_code": 1})
    assert "exit_code: 1" in text
    assert "3 failed, 120 passed" in text
    assert "test_refund_rounds_down" in text


def test_content_blocks_are_joined() -> None:
    blocks = [{"type": "text", "text": PYTEST[:2000]}, {"type": "text", "text": PYTEST[2000:]}]
    image = {"type": "image", "source": {"type": "base64", "data": "iVBOR" * 9000}}
    text = digested([*blocks, image])
    assert "\n2 texts, 1 image\n" in text
    assert "3 failed, 120 passed" in text
    assert "iVBOR" not in text
    result = {"type": "tool_result", "tool_use_id": "t", "is_error": True, "content": PYTEST}
    assert "1 text, 1 error" in digested(result)
    for whole in (
        result,
        {"content": blocks, "isError": False},
        {"role": "tool", "tool_call_id": "c", "content": PYTEST},
    ):
        assert "3 failed, 120 passed" in digested(whole)
        assert "data" not in digested(whole).splitlines()[0]
    assert "list of 2 objects with type" in digested([{"type": "dog"}, {"type": "cat"}])


# -- tables


@pytest.mark.parametrize(
    ("output", "size"),
    [
        (
            "id,name,price\n" + "".join(f'{n},"Name, {n}",{n}.5\n' for n in range(5000)),
            "CSV table, 5,000 rows, 3 columns",
        ),
        (
            "id,name,price\r\n" + "".join(f'{n},"Na\nme, {n}",{n}.5\r\n' for n in range(500)),
            "CSV table, 500 rows, 3 columns",
        ),
        (
            "id\tname\tprice\n" + "".join(f"{n}\tName {n}\t{n}.5\n" for n in range(300)),
            "TSV table, 300 rows, 3 columns",
        ),
        ("id;name;price\n" + "".join(f"{n};Name {n};{n},5\n" for n in range(300)), "CSV table, 300 rows, 3 columns"),
        (
            "| id | name | price |\n|----|:-----|------:|\n" + "".join(f"| {n} | n{n} | 5 |\n" for n in range(300)),
            "table, 300 rows, 3 columns",
        ),
        (
            " id | name | price\n----+------+-------\n"
            + "".join(f" {n} | n{n} | 5\n" for n in range(300))
            + "(300 rows)\n",
            "table, 300 rows, 3 columns",
        ),
        (
            "| id | name | price |\n" + "".join(f"|----|------|-------|\n| {n} | name | 5.000 |\n" for n in range(900)),
            "table, 900 rows, 3 columns",
        ),
        (
            "┏━━━━┳━━━━━━┳━━━━━━━┓\n┃ id ┃ name ┃ price ┃\n┡━━━━╇━━━━━━╇━━━━━━━┩\n"
            + "".join(f"│ {n:2} │ name │ 5.000 │\n├────┼──────┼───────┤\n" for n in range(50)),
            "table, 50 rows, 3 columns",
        ),
        (
            "id    name          price\n" + "".join(f"{n:<6}Name {n:<9}{n}.5\n" for n in range(300)),
            "table, 300 rows, 3 columns",
        ),
    ],
    ids=type_name,
)
def test_tables_show_columns_and_the_first_row(output: str, size: str) -> None:
    text = digested(output)
    assert f"[tool output, {size}, " in text
    assert "\ncolumns: id, name, price\n" in text
    assert "\nfirst row: 0, " in text


@pytest.mark.parametrize(
    "output",
    [
        "Well, this is prose.\nIt has commas, as prose has.\nBut it is, of course, no table.\n" * 50,
        "2024-05-01 10:00:00,123 INFO started\n" * 500,
        "one line, only",
        "def f(a, b):\n    return a, b\n" * 50,
    ],
    ids=type_name,
)
def test_other_text_is_not_shown_as_a_table(output: str) -> None:
    assert "table" not in digested(output).splitlines()[0]


# -- bytes


def test_an_image_shows_its_format_and_size() -> None:
    body = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 640, 480) + bytes(range(256)) * 200
    text = digested(body)
    assert f"[tool output, PNG image of 640 x 480, {len(body):,} bytes]" in text
    assert f"sha256 {hashlib.sha256(body).hexdigest()[:16]}" in text


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"PK\3\4" + b"\0\xff" * 99, "ZIP archive"),
        (b"%PDF-1.7\nabc", "PDF document"),
        (b"SQLite format 3\0" + b"\0" * 99, "SQLite database"),
        (b"RIFF\x99\0\0\0WEBPVP8 ", "WebP image"),
        (b"\x1f\x8b\x08" + b"\xfe" * 99, "gzip archive"),
        (b"\0" * 257 + b"ustar" + b"\0" * 99, "tar archive"),
        (b"\xfe\0\1" * 99, "binary"),
    ],
    ids=type_name,
)
def test_binary_formats_are_recognised(body: bytes, kind: str) -> None:
    assert digested(body).startswith(f"[tool output, {kind}, {len(body):,} bytes]")


@pytest.mark.parametrize(
    "body",
    [
        "Grüße\n".encode() * 300,
        "Grüße\n".encode("utf-16") + "x\n".encode("utf-16-le") * 99,
        "\ufeffGrüße\n".encode() * 2,
        b"MZ is not always a program, Gr\xc3\xbc\xc3\x9fe\n" * 9,
        ("Grüße\n".encode() * 300)[:-2] + b"\xc3",
        memoryview("Grüße".encode()),
    ],
    ids=type_name,
)
def test_bytes_that_are_text_are_decoded(body: bytes) -> None:
    text = digested(body)
    assert "characters" in text
    assert "Grüße" in text


# -- safety, limits and speed


@pytest.mark.parametrize(
    "output",
    [
        "\x1b]0;title\x07\x1b[1;31mred\x1b[0m\x1b(B" * 50,
        "null\x00byte\x01\x7f\x9b31m notifier\x07" * 50,
        "\u202eevil\u2066 order\u2028separated " * 50,
        "lone \ud800 surrogate \udfff " * 50,
        '{"a\ud800": "\ud800\x1b[1m"}',
    ],
    ids=type_name,
)
def test_digests_contain_no_control_characters(output: str) -> None:
    for text in (digested(output), digested({"output": output, output[:20]: [output]}), digested([output] * 3)):
        text.encode()
        assert is_safe(text), ascii(text)


def test_deep_nesting_and_cycles_are_not_followed() -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert "list of 1, the first a list of 1" in digested(deep)
    assert "list of 1, the first a list of 1" in digested({"a": deep})
    assert "100,000 characters" in digested("[" * 50_000 + "]" * 50_000)
    cycle: list[Any] = []
    cycle += [cycle, cycle]
    assert "list of 2" in digested(cycle)


def test_the_digest_does_not_depend_on_the_depth_of_the_stack() -> None:
    # Near the recursion limit a JSON parser fails earlier. That must not change the digest.
    outputs = ["[" * depth + "1" + "]" * depth for depth in (30, 63, 64, 65, 200, 900)]
    digests = [digested(output) for output in outputs]

    def digested_deep_in_the_stack(levels: int) -> list[str]:
        return digested_deep_in_the_stack(levels - 1) if levels else [digested(output) for output in outputs]

    assert digested_deep_in_the_stack(600) == digests
    assert digests[0].startswith("[tool output, JSON")


def test_a_tiny_limit_leaves_only_the_reference() -> None:
    least = minimum(REFERENCE, COUNTER)
    assert digest(PYTEST, limit=least, counter=COUNTER, reference=REFERENCE) == REFERENCE
    assert digest(PYTEST, limit=0, counter=COUNTER, reference=REFERENCE) == REFERENCE
    assert digest(PYTEST, limit=least + 4, counter=COUNTER, reference=REFERENCE) == f"full: {REFERENCE}"
    for limit in range(least, 200):
        text = digest(PYTEST, limit=limit, counter=COUNTER, reference=REFERENCE)
        assert COUNTER.count(text) <= limit
        assert text.endswith(REFERENCE)


def test_a_short_output_is_shown_once() -> None:
    assert digested("all is well").splitlines()[1:] == ["first: all is well", f"full: {REFERENCE}"]
    assert digested("one\ntwo\n").splitlines()[1:] == ["first: one", "last: two", f"full: {REFERENCE}"]


def test_the_limit_is_nearly_used_up() -> None:
    shape = digested({f"a_rather_long_key_{n}": n for n in range(20)})
    assert COUNTER.count(shape) > 90
    assert shape.count("a_rather_long_key") > 6
    framed = digest(PYTEST, limit=100, counter=OverheadCounter(), reference=REFERENCE)
    assert 90 < OverheadCounter().count(framed) <= 100


def test_a_larger_limit_shows_more() -> None:
    lengths = [len(digested(PYTEST, limit)) for limit in (60, 100, 200, 400)]
    assert lengths == sorted(set(lengths))
    assert "collected 123 items" in digested(PYTEST, 400)
    assert "test_sends" in digested(PYTEST, 400)


KEYS = [
    "error",
    "errors",
    "message",
    "status",
    "code",
    "total",
    "type",
    "text",
    "content",
    "is_error",
    "items",
    "",
    "a.",
]
PLAIN = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(max_size=60),
        st.binary(max_size=20),
        st.just(uuid.UUID(int=7)),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=6),
        st.dictionaries(
            st.one_of(
                st.text(max_size=9),
                st.sampled_from(KEYS),
                st.integers(),
            ),
            inner,
            max_size=6,
        ),
        st.frozensets(st.integers(), max_size=5),
    ),
    max_leaves=25,
)
STRUCTURED_TEXT = st.lists(
    st.sampled_from(
        [
            *(
                "error: ",
                "Traceback (most recent call last):\n",
                "\n",
                "a,b,c\n",
                "| a | b |\n",
                "|--|--|\n",
                "exit code 3",
            ),
            *(
                "diff --git a/x b/x\n",
                "--- a/x\n+++ b/x\n@@ -1 +1 @@\n",
                "<html>",
                "<title>",
                "<h1>",
                "commit 1234567\n",
            ),
            *(
                "-rw-r--r-- 1 a\n",
                '{"a": ',
                "[",
                "]",
                "}",
                "12 passed",
                "\x1b[31m",
                "\r",
                "\t",
                "  ",
                "x" * 300,
                "ü",
                "HTTP/1.1 200",
            ),
        ]
    ),
    max_size=30,
).map("".join)
HUGE = st.integers(4400, 5000).map(lambda digits: [{"n": 10**digits}, 10**digits])
OUTPUTS = st.one_of(
    HUGE,
    st.text(),
    st.binary(),
    PLAIN,
    STRUCTURED_TEXT,
    PLAIN.map(lambda value: json.dumps(value, default=str, skipkeys=True)),
)


@pytest.mark.promise("W5")
@settings(max_examples=examples(300), deadline=None)
@given(
    output=OUTPUTS,
    limit=st.integers(0, 300),
    counter=st.sampled_from([CharacterCounter(), WordCounter(), OverheadCounter()]),
    reference=st.sampled_from([REFERENCE, "#1", "session-17#204"]),
)
def test_any_digest_is_within_its_limit(output: object, limit: int, counter: CharacterCounter, reference: str) -> None:
    text = digest(output, limit=limit, counter=counter, reference=reference)
    assert text.endswith(reference)
    assert counter.count(text) <= max(limit, minimum(reference, counter))
    assert is_safe(text)
    text.encode()
    assert text == digest(output, limit=limit, counter=counter, reference=reference)


FIXED_WORDS = """
tool output characters character lines line full exit status first last row rows columns column table CSV TSV
diff file files changed commit commits log listing directories sections HTML title headings link links image images JSON
data list of object objects with key keys text integer number null boolean true false empty the a value more"""


@settings(max_examples=examples(200), deadline=None)
@given(output=st.one_of(st.text(), STRUCTURED_TEXT))
def test_every_word_is_of_the_output_or_fixed(output: str) -> None:
    text = digest(output, limit=400, counter=COUNTER, reference=REFERENCE).removesuffix(REFERENCE)
    clean = output.replace("\x1b[31m", "")
    for word in re.findall(r"[^\W\d_]+", text):
        assert (
            word in FIXED_WORDS
            or word in clean
            or word in ("JSON", "data", "list", "of", "object", "with", "key", "text")
        ), word


def test_digests_do_not_depend_on_the_hash_seed() -> None:
    program = (
        "from duramen.context.digests.digest import digest\n"
        "class CharacterCounter:\n"
        "    def count(self, text): return len(text) // 3 + 1\n"
        f"outputs = [{PYTEST!r}, {{'a', 'b', 1, None, 2.5, (1, 2), b'x'}}, [{{'status': s}} for s in 'abcabcddee'],\n"
        "    {'error': 1, 'x': {'errors': ['e', 'f'], 'total': 3}, 'y': {'count': 1}, 'z': {'code': 3}}]\n"
        "print(ascii([digest(one, limit=90, counter=CharacterCounter(), reference='r') for one in outputs]))"
    )
    outputs = [_child(program, seed) for seed in ("1", "2", "3")]
    assert outputs[0] == outputs[1] == outputs[2]
    assert "3 failed, 120 passed" in outputs[0]


def _child(program: str, seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    child = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True, text=True)
    return child.stdout


LARGE: dict[str, Callable[[], object]] = {
    "log": lambda: "".join(
        f"2024-05-01 12:00 INFO worker {n} errors=0 in {n % 90} ms and all is well\n" for n in range(76_000)
    ),
    "one line": lambda: "error " * 833_333,
    "one word": lambda: "x" * 5_000_000,
    "umlauts": lambda: "Größe ändert sich, exit 1\n" * 170_000,
    "table": lambda: "a,b,c\n" + "1,two,33333333\n" * 330_000,
    "json": lambda: json.dumps(ANSWER["items"] * 44),
    "tracebacks": lambda: "Traceback (most recent call last):\n  x\n" * 120_000,
    "bytes": lambda: seeded("five megabytes").randbytes(5_000_000),
}


@pytest.mark.parametrize("name", list(LARGE))
def test_five_megabytes_are_digested_quickly(name: str) -> None:
    output = LARGE[name]()
    # In units of a million additions. On an idle machine it takes less than 10. The limit allows for a busy machine.
    assert _relative_time(lambda: digested(output), limit=60) < 60


def _relative_time(work: Callable[[], object], limit: float) -> float:
    """The time of a call divided by the time of a million additions. Up to four attempts to stay below the limit."""
    times = []
    for _ in range(4):
        times.append(_timed(work) / _timed(lambda: sum(range(1_000_000))))
        if times[-1] < limit:
            break
    return min(times)


def _timed(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
