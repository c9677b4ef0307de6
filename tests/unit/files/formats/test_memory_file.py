"""Memory files: rendered text is parsed back exactly, and hand-written files are read without losing text."""

from __future__ import annotations

import datetime as dt
import re

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from programs.seeds import examples

from duramen.errors import FileMalformed, InvalidInput
from duramen.files.formats import list_items as items
from duramen.files.formats.frontmatter import split, written
from duramen.files.formats.memory_file import MemoryFile, parse, render

pytestmark = pytest.mark.promise("F1")

TIME = dt.datetime(2026, 3, 2, 8, 15, tzinfo=dt.UTC)
COMPLETE = MemoryFile(
    id="01J9ZK",
    kind="procedure",
    title="Book the ferry",
    content="Book early in summer.\n\nThe site is slow on Mondays.",
    steps=("Open the site", "Choose 8:00\nor 9:30 on Sundays"),
    evidence=("trip-456#12: booked",),
    tags=("ferry", "travel"),
    policy="check before use",
    observed=TIME,
    verified=TIME,
    source="trip-456#12",
)
TEXT = """\
---
id: "01J9ZK"
kind: procedure
tags: [ferry, travel]
policy: check before use
observed: 2026-03-02T08:15:00Z
verified: 2026-03-02T08:15:00Z
source: trip-456#12
---
# Book the ferry

Book early in summer.

The site is slow on Mondays.

## Steps

1. Open the site
2. Choose 8:00
   or 9:30 on Sundays

## Evidence

- trip-456#12: booked
"""


def test_a_memory_file_has_the_documented_format() -> None:
    assert render(COMPLETE) == TEXT
    assert parse(TEXT, "p.md") == COMPLETE


def test_the_first_paragraph_is_the_default_summary() -> None:
    text = render(MemoryFile(id="a", kind="fact", title="Ferry", content="The ferry leaves at 8."))
    assert text == "---\nid: a\nkind: fact\n---\n# Ferry\n\nThe ferry leaves at 8.\n"
    memory_file = parse(text, "p.md")
    assert (memory_file.summary, memory_file.gist) == (None, "The ferry leaves at 8.")
    other = MemoryFile(title="Ferry", summary="Early", content="It leaves at 8.\n\nOn Sundays at 9.")
    assert parse(render(other), "p.md").gist == "Early"
    assert parse("One\ntwo\n\nthree", "p.md").gist == "One\ntwo"


# -- hand-written files


def test_plain_text_is_a_valid_memory_file() -> None:
    assert parse("Ships are slow.", "p.md") == MemoryFile("Ships are slow.")
    assert parse("", "p.md") == MemoryFile("")
    assert parse("\n\n# Ships  \n\nThey are slow.\n\n\n", "p.md") == MemoryFile("They are slow.", title="Ships")
    assert parse("\ufeff# Ships\r\n\r\nThey\r\nare slow.\r\n", "p.md") == MemoryFile("They\nare slow.", title="Ships")
    assert parse("#Ships\n## Two\ntext", "p.md") == MemoryFile("#Ships\n## Two\ntext")


def test_hand_written_lists_are_read() -> None:
    text = """# Deploy
Do it at night.
## STEPS:
* Build
  the image
+ Push
3) Restart,
and wait

   then look

## Notes
These are kept.
## Evidence

Seen in the log.

- run 7
-
"""
    memory_file = parse(text, "p.md")
    assert memory_file.content == "Do it at night.\n## Notes\nThese are kept."
    assert memory_file.steps == ("Build\nthe image", "Push", "Restart,\nand wait\n\nthen look")
    assert memory_file.evidence == ("Seen in the log.", "run 7", "")


def test_hand_written_front_matter_is_read() -> None:
    text = """---
id: 007
kind: no
title: null
summary: 2024-01-01
tags:
  - 1e3
  - yes
  - 2024-01-01
policy: ~
observed: 2026-03-02
verified: 2026-03-02 09:15:00+01:00
source: "null"
colour: {a: [1, 2.5, true, null, no], b: 0123}
rating: 5
day: 2024-01-01
---
text
"""
    memory_file = parse(text, "p.md")
    assert (memory_file.id, memory_file.kind, memory_file.title, memory_file.summary) == (
        "007",
        "no",
        None,
        "2024-01-01",
    )
    assert memory_file.tags == ("1e3", "yes", "2024-01-01")
    assert (memory_file.policy, memory_file.source) == (None, "null")
    assert memory_file.observed == dt.datetime(2026, 3, 2, tzinfo=dt.UTC)
    assert memory_file.verified == TIME
    assert memory_file.extra == {
        "colour": {"a": [1, 2.5, True, None, "no"], "b": "0123"},
        "rating": 5,
        "day": "2024-01-01",
    }
    assert parse(render(memory_file), "p.md") == memory_file
    assert parse("---\ntags: ferry, travel\n---\n", "p.md").tags == ("ferry", "travel")
    assert parse("---\n# only a remark\n---\nx", "p.md") == MemoryFile("x")


MALFORMED = {
    "---\nid: a\n": (1, "not closed"),
    "---\nid: a\nkind: b\nid: c\n---\n": (4, "twice"),
    "---\nid: a\nx: {a: 1, a: 2}\n---\n": (3, "twice"),
    "---\nid: a: b\n---\n": (2, "mapping values"),
    "---\nid: [a\n---\n": (3, ""),
    "---\nid: a\n\tkind: b\n---\n": (3, ""),
    "---\nid: [a, b]\n---\n": (2, "`id` must be text"),
    "---\nid: a\ntags: {a: b}\n---\n": (3, "tags"),
    "---\ntags: [[a]]\n---\n": (2, "tags"),
    "---\nid: a\nobserved: yesterday\n---\n": (3, "`observed` must be a time"),
    "---\njust text\n---\n": (2, "no fields"),
    "---\n- a\n---\n": (2, "no fields"),
    "---\na: &x [1]\nb: *x\n---\n": (2, "anchors"),
    "---\nid: a\nb: *x\n---\n": (3, "anchors"),
    "---\nx: !!python/object/apply:os.system [ls]\n---\n": (2, "tags are not allowed"),
    "---\nx: !!binary aGk=\n---\n": (2, "tags are not allowed"),
    "---\n? [a]\n: b\n---\n": (2, "name of a field must be text"),
    "---\na: 1\n...\nb: 2\n---\n": (4, ""),
    "---\nid: a\nx: " + "[" * 40 + "]" * 40 + "\n---\n": (3, "deep"),
    "---\nid: a\nx: a\x00b\n---\n": (3, "character"),
    "---\nid: a\nx: " + "y" * 300_000 + "\n---\n": (1, "characters"),
    "# T\n\n<<<<<<< HEAD\na\n=======\nb\n>>>>>>> other\n": (3, "conflict"),
    "---\nid: a\n---\n# T\n\na\n>>>>>>> other\n": (7, "conflict"),
}


@pytest.mark.parametrize("text", MALFORMED)
def test_a_malformed_file_is_reported_with_its_line(text: str) -> None:
    line, reason = MALFORMED[text]
    with pytest.raises(FileMalformed, match=re.escape(reason) or None) as malformed:
        parse(text, "preference/seat.md")
    assert (malformed.value.path, malformed.value.line) == ("preference/seat.md", line)
    assert malformed.value.hint


def test_invalid_memory_files_are_rejected() -> None:
    with pytest.raises(InvalidInput, match="known field"):
        MemoryFile("x", extra={"kind": "fact"})
    with pytest.raises(InvalidInput, match="time zone"):
        MemoryFile("x", observed=dt.datetime(2026, 1, 1))
    with pytest.raises(InvalidInput, match="bytes"):
        render(MemoryFile("x", extra={"a": b"x"}))


# -- any memory file

LINES = st.sampled_from(
    [
        "",
        "## Steps",
        "## Evidence",
        "## steps: ",
        "# Title",
        "#",
        "---",
        "...",
        "- a",
        "1. a",
        "\\",
        "\\\\",
        "\\## Steps",
        "\\# Title",
        "  ",
        " a",
        "\t",
        "a: b",
        "```",
        "    code",
        "> quote",
        "<<<<<<< HEAD",
        ">>>>>>> x",
        "=======",
        "\\<<<<<<< a",
        "a\r",
        "\r",
        "\ufeff",
        "## \u017fteps",
        "{a",
        "\u2028",
        "\x85",
        "\x0b",
        "\x1c",
        "\x00",
        "text",
        "1.",
        "-",
        "10) x",
    ]
)
TEXTS = st.one_of(st.text(max_size=30), st.lists(LINES | st.text(max_size=6), max_size=8).map("\n".join))
SCALARS = st.sampled_from(
    [
        "no",
        "1e3",
        "2024-01-01",
        "null",
        "~",
        "",
        " ",
        "a: b",
        "a #b",
        "#",
        "- a",
        "[a",
        "0x1f",
        "1:20",
        "a, b",
        "é",
        "a(b)",
    ]
)
WORDS = SCALARS | st.text(max_size=12)
TIMES = st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1), timezones=st.timezones() | st.just(dt.UTC))
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
OPTIONAL_WORDS = st.none() | WORDS
MEMORY_FILES = st.builds(
    MemoryFile,
    content=TEXTS,
    title=st.none() | TEXTS,
    summary=st.none() | TEXTS,
    steps=st.lists(TEXTS, max_size=3).map(tuple),
    evidence=st.lists(TEXTS, max_size=3).map(tuple),
    id=OPTIONAL_WORDS,
    kind=OPTIONAL_WORDS,
    tags=st.lists(WORDS, max_size=4).map(tuple),
    policy=OPTIONAL_WORDS,
    observed=st.none() | TIMES,
    verified=st.none() | TIMES,
    source=OPTIONAL_WORDS,
    key=OPTIONAL_WORDS,
    subject=OPTIONAL_WORDS,
    scope=OPTIONAL_WORDS,
    extra=st.dictionaries(WORDS.map("x{}".format) | SCALARS, DATA, max_size=3),
)
MEMORY_FILES_WITHOUT_FIELDS = st.builds(
    MemoryFile, content=TEXTS, title=st.none() | TEXTS, steps=st.lists(TEXTS, max_size=3).map(tuple)
)


@settings(max_examples=examples(600), deadline=None)
@given(MEMORY_FILES | MEMORY_FILES_WITHOUT_FIELDS)
@example(MemoryFile("a\r\nb\r"))
@example(MemoryFile("---\nid: a\n---\n# x"))
@example(MemoryFile("\ufeffx"))
@example(MemoryFile("", steps=("",), evidence=("\n", "\\", " \n ")))
def test_every_memory_file_is_parsed_back_exactly(memory_file: MemoryFile) -> None:
    text = render(memory_file)
    assert parse(text, "p.md") == memory_file
    assert render(parse(text, "p.md")) == text


@settings(max_examples=examples(300), deadline=None)
@given(TEXTS | st.tuples(TEXTS, TEXTS).map("\n## Steps\n".join))
def test_any_text_is_parsed_the_same_after_rendering(text: str) -> None:
    try:
        memory_file = parse(text, "p.md")
    except FileMalformed:
        return
    assert parse(render(memory_file), "p.md") == memory_file
    parsed_text = re.sub(
        r"[\s\\]",
        "",
        "".join([memory_file.title or "", memory_file.content, *memory_file.steps, *memory_file.evidence]),
    )
    for word in re.findall(r"[a-zA-Z]{4,}", text):
        assert word in parsed_text or word.lower() in ("steps", "evidence") or "---" in text


FRONT_MATTER = st.lists(
    st.sampled_from(
        ["id: ", "tags: ", "observed: ", "x: ", "- ", "  ", "\n", "[", "]", "{", "}", "&a ", "*a", "!!str ", "? ", ": "]
    )
    | st.sampled_from(
        ["|\n", ">-\n", "#", "'", '"', "%YAML 1.1\n", "...\n", "<<", "2026-01-01", "0001-01-01T00:00+23:59", "1e9999"]
    )
    | st.text(st.characters(), max_size=3),
    max_size=14,
).map("".join)


@settings(max_examples=examples(600), deadline=None)
@given(FRONT_MATTER, TEXTS)
@example("x: \ud800", "")
def test_any_front_matter_is_parsed_or_rejected_with_a_line(block: str, body: str) -> None:
    text = f"---\n{block}\n---\n{body}"
    problem = None
    try:
        memory_file = parse(text, "p.md")
    except FileMalformed as malformed:
        problem = malformed
    if problem is None:
        assert parse(render(memory_file), "p.md") == memory_file or "nan" in block.lower()
    else:
        assert 1 <= problem.line <= text.count("\n") + 2


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(TEXTS, max_size=5), st.booleans())
def test_lists_are_parsed_back_exactly(texts: list[str], numbered: bool) -> None:
    text = items.listed(texts, numbered=numbered)
    assert items.read(text.split("\n") if texts else []) == tuple(texts)
    assert all(line[:1] in ("", " ", "-") or line[0].isdigit() for line in text.split("\n"))


@settings(max_examples=examples(500), deadline=None)
@given(DATA)
@example("a:b")
@example({"a, b": "c, d", "e:f": "(g"})
def test_other_yaml_parsers_read_the_same_values(value: object) -> None:
    text = f"---\nx: {written(value)}\n---\n"
    assert split(text, "p.md")[0]["x"].value == value
    for loader in (yaml.SafeLoader, yaml.CSafeLoader):
        assert yaml.load(f"x: {written(value)}", Loader=loader) == {"x": value}


def test_a_long_memory_file_is_parsed_back_exactly() -> None:
    memory_file = MemoryFile("## Steps\n" * 50_000, title="T", steps=("a\n\nb",) * 20_000)
    assert parse(render(memory_file), "p.md") == memory_file
