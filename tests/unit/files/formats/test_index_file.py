"""Index files: readable lines that are parsed back exactly, in a fixed order."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from programs.seeds import examples, seeded

from duramen.files.formats.index_file import (
    Index,
    IndexLine,
    brief,
    linked,
    order,
    parse,
    parse_line,
    render,
    render_line,
)

pytestmark = pytest.mark.promise("F1")

FERRY = IndexLine(
    "Book the ferry", "knowledge/procedures/book.md", "procedure", "check before use", ("ferry", "travel"), "Early."
)


def test_a_line_has_the_documented_format() -> None:
    assert render_line(FERRY) == (
        "- [Book the ferry](knowledge/procedures/book.md) [procedure] [verify: check before use] [ferry, travel]"
        " - Early."
    )
    assert render_line(IndexLine("a [b] (c)", "x y(1).md", "fact")) == r"- [a \[b\] (c)](x%20y%281%29.md) [fact]"
    assert render_line(IndexLine("two\nlines", "a.md")) == "- [two&#10;lines](a.md)"


def test_an_index_is_sorted_independently_of_the_input_order() -> None:
    lines = [
        FERRY,
        IndexLine("b", "b.md", "fact"),
        IndexLine("A", "a2.md", "fact"),
        IndexLine("a", "a1.md", "fact"),
        IndexLine("z", "z.md", "preference"),
        IndexLine("other", "o.md", "dream"),
        IndexLine("SOUL", "SOUL.md"),
    ]
    text = render("Memory", lines)
    assert [index_line.path for index_line in parse(text).lines] == [
        *("z.md", "a1.md", "a2.md", "b.md", "knowledge/procedures/book.md", "SOUL.md", "o.md")
    ]
    for seed in range(5):
        seeded("index", seed).shuffle(lines)
        assert render("Memory", lines) == text
    assert text.startswith("# Memory\n\n- [z](z.md) [preference]\n")
    assert text.endswith("\n")
    assert render("Memory", []) == "# Memory\n"


def test_hand_written_indexes_are_parsed_leniently() -> None:
    text = """\ufeff# Notes\r
\r
* [Seat](preference/seat.md) — the aisle\r
- [Ferry](<a.md>) [fact] [a,b]: at 8
- [No](broken
see also the wiki
- [Only tags](b.md) [verify: soon]
"""
    assert parse(text) == Index(
        "Notes",
        (
            IndexLine("Seat", "preference/seat.md", summary="the aisle"),
            IndexLine("Ferry", "a.md", "fact", tags=("a", "b"), summary="at 8"),
            IndexLine("Only tags", "b.md", policy="soon"),
        ),
        ((5, "- [No](broken"), (6, "see also the wiki")),
    )


def test_links_are_relative_to_the_index() -> None:
    assert linked("workspace/acme/knowledge/facts/a.md", "workspace/acme/MEMORY.md") == "knowledge/facts/a.md"
    assert linked("workspace/acme/MEMORY.md", "MEMORY.md") == "workspace/acme/MEMORY.md"


def test_a_brief_summary_is_one_line() -> None:
    assert brief(" one\n\n two ") == "one two"
    assert brief("word " * 100) == "word " * 31 + "word…"
    assert len(brief("x" * 1000)) == 160
    assert brief("x" * 160) == "x" * 160


PIECES = st.sampled_from(
    [*"\\[](),:& \n\r\t-#", "&amp;", "&#10;", "&#", "verify: ", "](", " - ", "%20", "\u2028", "é", "a"]
)
TEXTS = st.lists(PIECES | st.text(max_size=4), max_size=8).map("".join)
ENTRIES = st.builds(
    IndexLine,
    title=TEXTS,
    path=TEXTS,
    kind=st.none() | TEXTS,
    policy=st.none() | TEXTS,
    tags=st.lists(TEXTS, max_size=3).map(tuple),
    summary=TEXTS,
)


@settings(max_examples=examples(800), deadline=None)
@given(ENTRIES)
@example(IndexLine("", "", tags=("",)))
@example(IndexLine("", "", tags=("", "")))
@example(IndexLine("a", "b", kind="verify: x"))
@example(IndexLine("a", "b", tags=("verify: x",)))
def test_every_line_is_parsed_back_exactly(index_line: IndexLine) -> None:
    text = render_line(index_line)
    assert len(text.splitlines()) == 1
    assert parse_line(text) == index_line


@settings(max_examples=examples(200), deadline=None)
@given(TEXTS.filter(str.strip), st.lists(ENTRIES, max_size=6))
def test_every_index_is_parsed_back_exactly(heading: str, lines: list[IndexLine]) -> None:
    text = render(heading, lines)
    assert parse(text) == Index(heading, tuple(sorted(lines, key=order)))
