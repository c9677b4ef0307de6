"""Indexes: lines that people read, that are read back exactly, and that do not change unless what they list did."""

from __future__ import annotations

import random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from duramen.files.formats.index_file import Entry, Index, brief, line, linked, order, parse, read_line, render

pytestmark = pytest.mark.promise("F1")

FERRY = Entry(
    "Book the ferry", "knowledge/procedures/book.md", "procedure", "check before use", ("ferry", "travel"), "Early."
)


def test_a_line_reads_like_this() -> None:
    assert line(FERRY) == (
        "- [Book the ferry](knowledge/procedures/book.md) [procedure] [verify: check before use] [ferry, travel]"
        " - Early."
    )
    assert line(Entry("a [b] (c)", "x y(1).md", "fact")) == r"- [a \[b\] (c)](x%20y%281%29.md) [fact]"
    assert line(Entry("two\nlines", "a.md")) == "- [two&#10;lines](a.md)"


def test_an_index_is_sorted_and_the_same_whatever_came_first() -> None:
    entries = [
        FERRY,
        Entry("b", "b.md", "fact"),
        Entry("A", "a2.md", "fact"),
        Entry("a", "a1.md", "fact"),
        Entry("z", "z.md", "preference"),
        Entry("other", "o.md", "dream"),
        Entry("SOUL", "SOUL.md"),
    ]
    text = render("Memory", entries)
    assert [entry.path for entry in parse(text).entries] == [
        *("z.md", "a1.md", "a2.md", "b.md", "knowledge/procedures/book.md", "SOUL.md", "o.md")
    ]
    for seed in range(5):
        random.Random(seed).shuffle(entries)
        assert render("Memory", entries) == text
    assert text.startswith("# Memory\n\n- [z](z.md) [preference]\n")
    assert text.endswith("\n")
    assert render("Memory", []) == "# Memory\n"


def test_what_people_write() -> None:
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
            Entry("Seat", "preference/seat.md", summary="the aisle"),
            Entry("Ferry", "a.md", "fact", tags=("a", "b"), summary="at 8"),
            Entry("Only tags", "b.md", policy="soon"),
        ),
        ((5, "- [No](broken"), (6, "see also the wiki")),
    )


def test_addresses_are_relative_to_the_index() -> None:
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
    Entry,
    title=TEXTS,
    path=TEXTS,
    kind=st.none() | TEXTS,
    policy=st.none() | TEXTS,
    tags=st.lists(TEXTS, max_size=3).map(tuple),
    summary=TEXTS,
)


@settings(max_examples=800, deadline=None)
@given(ENTRIES)
@example(Entry("", "", tags=("",)))
@example(Entry("", "", tags=("", "")))
@example(Entry("a", "b", kind="verify: x"))
@example(Entry("a", "b", tags=("verify: x",)))
def test_a_line_is_read_back_exactly(entry: Entry) -> None:
    text = line(entry)
    assert len(text.splitlines()) == 1
    assert read_line(text) == entry


@settings(max_examples=200, deadline=None)
@given(TEXTS.filter(str.strip), st.lists(ENTRIES, max_size=6))
def test_an_index_is_read_back_exactly(heading: str, entries: list[Entry]) -> None:
    text = render(heading, entries)
    assert parse(text) == Index(heading, tuple(sorted(entries, key=order)))
