"""Formats of other programs: imported files are exported unchanged, and no text is lost."""

from __future__ import annotations

import datetime as dt
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from programs.paths import DATA
from programs.seeds import examples

from duramen.errors import BoundaryRefused, InvalidInput
from duramen.files.formats import FORMATS, Note, format_named
from duramen.files.formats.basic_memory import NoteRelation, Observation, observations, relations
from duramen.files.formats.note import Role, is_safe
from duramen.files.formats.note_folder import export_folder, import_folder

pytestmark = pytest.mark.promise("F9")

MARKDOWN = ["claude", "openclaw", "basic-memory"]


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", MARKDOWN)
def test_an_imported_folder_is_exported_byte_for_byte(name: str, tmp_path: Path) -> None:
    read = import_folder(format_named(name), DATA / name)
    assert read.problems == ()
    written = export_folder(format_named(name), read.notes, tmp_path / "out")
    assert files_of(tmp_path / "out") == files_of(DATA / name)
    assert set(written) == set(files_of(DATA / name))
    assert export_folder(format_named(name), read.notes, tmp_path / "out") == ()


def test_imported_json_lines_are_exported_with_equal_values(tmp_path: Path) -> None:
    read = import_folder(format_named("jsonl"), DATA / "jsonl/memories.jsonl")
    export_folder(format_named("jsonl"), read.notes, tmp_path)
    before = [json.loads(line) for line in (DATA / "jsonl/memories.jsonl").read_text("utf-8").split("\n") if line]
    after = [json.loads(line) for line in (tmp_path / "memory.jsonl").read_text("utf-8").split("\n") if line]
    assert after == before
    ferry, seat, snow = read.notes
    assert (ferry.title, ferry.kind, ferry.tags) == ("Ferry", "fact", ("travel",))
    assert ferry.created == dt.datetime(2026, 3, 2, tzinfo=dt.UTC)
    assert (seat.key, seat.metadata["fields"]["user_id"]) == ("seat", "ada")
    assert snow.text == "Ünïcode \u2028 ☃"


def by_path(name: str) -> dict[str, Note]:
    return {note.origin: note for note in import_folder(format_named(name), DATA / name).notes}


def test_claude_code_notes_are_read() -> None:
    notes = by_path("claude")
    real = notes["feedback_real_database.md"]
    assert (real.title, real.kind) == ("Real database in tests", "preference")
    assert real.summary == "Integration tests must hit a real database: mocks hid a broken migration"
    assert real.text.startswith("Integration tests run against PostgreSQL")
    assert real.text.endswith("it takes two seconds.")
    ines = notes["user_ines.md"]
    assert (ines.kind, ines.metadata["fields"]["metadata"]["originSessionId"]) == ("identity", "7f0e3c9a")
    assert notes["project_winter_timetable.md"].kind == "fact"
    assert notes["debugging.md"].title is None
    index = notes["MEMORY.md"]
    assert (index.role, index.metadata["only_links"]) == (Role.INDEX, False)
    assert "the staging host sleeps" in index.text


def test_openclaw_notes_are_read() -> None:
    read = import_folder(format_named("openclaw"), DATA / "openclaw").notes
    titles = [(note.origin, note.title, note.role) for note in read]
    assert titles == [
        ("MEMORY.md", "Long-Term Memory", Role.NOTE),
        ("MEMORY.md", "About the user", Role.NOTE),
        ("MEMORY.md", "Preferences", Role.NOTE),
        ("MEMORY.md", "Lessons learned", Role.NOTE),
        ("MEMORY.md", "this is a comment in a script", Role.NOTE),
        ("memory/2026-03-18.md", "2026-03-18", Role.HEADING),
        ("memory/2026-03-18.md", "09:12 - Ferry booking", Role.DAILY),
        ("memory/2026-03-18.md", "17:40 Follow-ups", Role.DAILY),
        ("memory/2026-03-18.md", "Notes without a blank line", Role.HEADING),
        ("memory/2026-03-19-tides.md", None, Role.DAILY),
    ]
    assert read[6].created == dt.datetime(2026, 3, 18, 9, 12, tzinfo=dt.UTC)
    assert read[6].text == "- Booked the 8:00 to Karlskrona\n- Confirmation TZ-1182"
    assert read[9].created == dt.datetime(2026, 3, 19, tzinfo=dt.UTC)


def test_basic_memory_notes_are_read() -> None:
    notes = by_path("basic-memory")
    coffee = notes["Coffee Brewing.md"]
    assert (coffee.title, coffee.key, coffee.tags) == ("Coffee Brewing", "coffee-brewing", ("coffee", "morning"))
    assert coffee.created == dt.datetime(2026, 1, 5, tzinfo=dt.UTC)
    assert coffee.metadata["fields"] == {"status": "draft", "type": "note"}
    assert coffee.text.startswith("What works in the small kitchen.")
    assert observations(coffee.text) == (
        Observation("method", "Pour over gives a clearer cup", ("brewing", "filter"), "tried for a month"),
        Observation("temperature", "94 °C is enough"),
        Observation(None, "plain item with a", ("hashtag",)),
    )
    assert relations(coffee.text) == (
        NoteRelation("requires", "Grinding"),
        NoteRelation("goes well with", "Rye Bread", "breakfast"),
        NoteRelation("links_to", "Kettle"),
        NoteRelation("links_to", "Ola"),
    )
    grinding = notes["projects/grinding.md"]
    assert (grinding.kind, grinding.title, grinding.tags) == ("procedure", "grinding", ("coffee", "tools"))
    assert grinding.text.startswith("# Not the title")
    assert (notes["bare.md"].title, notes["bare.md"].text) == (
        "bare",
        "No front matter, and the heading is the file name.",
    )
    assert observations("```\n- [a] code\n```\n- [b] text") == (Observation("b", "text"),)


# -- changed and new notes


@pytest.mark.parametrize("name", FORMATS)
def test_only_changed_notes_are_rewritten(name: str) -> None:
    format = format_named(name)
    source = DATA / name / "memories.jsonl" if name == "jsonl" else DATA / name
    read = import_folder(format, source).notes
    at = next(at for at, note in enumerate(read) if note.role in (Role.NOTE, Role.DAILY) and note.title)
    changed = replace(read[at], text="Something else.", title="Another title")
    files = format.write([*read[:at], changed, *read[at + 1 :]])
    again = format.read(files).notes
    rewritten = next(note for note in again if note.text == "Something else.")
    assert rewritten.title == "Another title"
    assert len(again) == len(read)
    others = {(note.title, note.text) for note in read[:at] + read[at + 1 :]}
    assert others <= {(note.title, note.text) for note in again}
    if name != "jsonl":
        untouched = format.write(read)
        assert [path for path in files if files[path] != untouched[path]] == [changed.origin]


def test_unknown_fields_survive_a_change() -> None:
    coffee = by_path("basic-memory")["Coffee Brewing.md"]
    text = format_named("basic-memory").write([replace(coffee, tags=("tea",), kind="fact")])["Coffee Brewing.md"]
    again = format_named("basic-memory").read({"Coffee Brewing.md": text}).notes[0]
    assert (again.tags, again.kind, again.text) == (("tea",), "fact", coffee.text)
    assert again.metadata["fields"]["status"] == "draft"
    ines = by_path("claude")["user_ines.md"]
    text = format_named("claude").write([replace(ines, kind="reference")])["user_ines.md"]
    again = format_named("claude").read({"user_ines.md": text}).notes[0]
    assert (again.kind, again.metadata["fields"]["metadata"]["originSessionId"]) == ("reference", "7f0e3c9a")


def test_a_new_note_is_added_to_the_existing_index() -> None:
    format = format_named("claude")
    read = import_folder(format, DATA / "claude").notes
    files = format.write([*read, Note("Boats are slow.", title="Boats [old]", kind="fact")])
    before = (DATA / "claude/MEMORY.md").read_text("utf-8")
    assert files["MEMORY.md"].startswith(before)
    added = files["MEMORY.md"].removeprefix(before)
    assert added.startswith("- [Boats \\[old\\]](boats-old-")
    assert added.endswith(") - Boats are slow.\n")
    alone = format.write([Note("Boats are slow.", title="Boats")])
    assert alone["MEMORY.md"].count("\n") == 1


TEXTS = st.lists(
    st.sampled_from(["## Head", "# Title", "---", "- [a] b #c (d)", "\\## x", "```", "a\r", "\ufeff", "1. x", "  ", ""])
    | st.text(max_size=12),
    max_size=6,
).map("\n".join)
TRIMMED_TEXTS = TEXTS.map(lambda text: text.strip("\n")).filter(
    lambda text: text == "" or all(map(str.strip, (text.split("\n")[0], text.split("\n")[-1])))
)
NOTES = st.builds(
    Note,
    text=TRIMMED_TEXTS.filter(bool),
    title=st.none() | st.text(max_size=20),
    summary=st.none() | st.text(max_size=20),
    kind=st.sampled_from([None, "fact", "preference", "identity", "reference"]),
    tags=st.lists(st.text(min_size=1, max_size=6), max_size=3).map(tuple),
    key=st.none() | st.text(min_size=1, max_size=8),
    created=st.none() | st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9000, 1, 1), timezones=st.just(dt.UTC)),
    role=st.sampled_from([Role.NOTE, Role.DAILY]),
    origin=st.sampled_from(["", "../x.md", "a.md", "MEMORY.md", "/etc/x.md"]),
    metadata=st.sampled_from(
        [{}, {"format": "claude", "before": "x"}, {"format": "openclaw", "front_matter": "---\na: b\n---\n"}]
    ),
)


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(NOTES, max_size=4), st.sampled_from(FORMATS))
def test_notes_of_other_formats_keep_their_text(notes: list[Note], name: str) -> None:
    format = format_named(name)
    notes = [note for note in notes if note.metadata.get("format") != name]
    files = format.write(notes)
    assert all(map(is_safe, files))
    read = format.read(files)
    assert read.problems == ()
    texts = sorted(note.text for note in read.notes if note.role not in (Role.INDEX, Role.HEADING))
    assert texts == sorted(note.text for note in notes)
    if name in ("basic-memory", "jsonl"):
        read_fields = {(note.text, note.title, note.kind, note.tags, note.created) for note in read.notes}
        assert {(n.text, n.title, n.kind, n.tags, n.created) for n in notes if n.title is not None} <= read_fields


FRONTS = st.sampled_from(
    [
        "",
        "---\n---\n",
        "---\nname: a\ntype: user\n---\n",
        "---\ntitle: a\ntags: [x]\n---\n\n# a\n",
        "\ufeff---\nname: b\n---\n",
        "---\ntitle: a: b\n---\n",
        "---\r\ntitle: a\r\n---\r\n",
        "---\ntitle: a\n---\n\n# a\n\n",
        "\ufeff",
        "---\nbroken: [\n---\n",
    ]
)
PATHS = {
    "claude": ["MEMORY.md", "a.md", "b.md"],
    "basic-memory": ["a.md", "b/c.md"],
    "openclaw": ["MEMORY.md", "memory/2026-03-18.md"],
}


@settings(max_examples=examples(400), deadline=None)
@given(st.data(), st.sampled_from(MARKDOWN))
def test_any_folder_is_exported_unchanged(data: st.DataObject, name: str) -> None:
    texts = st.tuples(FRONTS, TEXTS).map("".join)
    files = {path: data.draw(texts) for path in PATHS[name]}
    read = format_named(name).read(files)
    bad = {problem.path for problem in read.problems}
    assert format_named(name).write(read.notes) == {path: text for path, text in files.items() if path not in bad}


@settings(max_examples=examples(100), deadline=None)
@given(TEXTS)
@example("a\n## b\n\\## c\n")
def test_any_openclaw_file_is_exported_unchanged(text: str) -> None:
    read = format_named("openclaw").read({"MEMORY.md": text})
    assert format_named("openclaw").write(read.notes) == {"MEMORY.md": text}


def test_long_sections_and_long_blanks_are_parsed_quickly() -> None:
    text = "## Log\n" + "line\n" * 300_000 + "# x" + " " * 300_000 + "y\n## a" + " " * 300_000 + "b"
    read = format_named("openclaw").read({"MEMORY.md": text})
    assert len(read.notes) == 2
    assert format_named("openclaw").write(read.notes) == {"MEMORY.md": text}


# -- bad files


def test_bad_files_are_reported_with_their_line_and_others_are_read(tmp_path: Path) -> None:
    (tmp_path / "good.md").write_text("---\nname: a\n---\n\ntext\n")
    (tmp_path / "bad.md").write_text("---\nname: a\n  - b: [\n---\n")
    (tmp_path / "bytes.md").write_bytes(b"one\ntwo\xff\n")
    (tmp_path / "link.md").symlink_to(tmp_path / "good.md")
    (tmp_path / ".hidden.md").write_text("x")
    (tmp_path / "image.png").write_bytes(b"\x89PNG")
    read = import_folder(format_named("claude"), tmp_path)
    assert [note.origin for note in read.notes] == ["good.md"]
    assert [(problem.path, problem.line) for problem in read.problems] == [
        ("bad.md", 3),
        ("bytes.md", 2),
        ("link.md", 1),
    ]
    assert all(problem.hint for problem in read.problems)


def test_bad_lines_are_reported_and_the_other_lines_are_read() -> None:
    lines = ['{"text": "one"}', "{", "[1]", '{"title": "no text"}', '{"text": 3}', '{"text": "a", "tags": "b"}']
    lines += [
        '{"text": "a", "created": "soon"}',
        '{"text": "a", "text": "b"}',
        '{"text": NaN}',
        '{"text": "a", "kind": 3}',
    ]
    lines += ["[" * 100_000, '{"text": "two"}']
    read = format_named("jsonl").read({"a.jsonl": "\n".join(lines)})
    assert [note.text for note in read.notes] == ["one", "two"]
    assert [problem.line for problem in read.problems] == list(range(2, 12))


def test_missing_folders_and_unknown_formats_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="does not exist"):
        import_folder(format_named("claude"), tmp_path / "nothing")
    with pytest.raises(InvalidInput, match="claude, openclaw"):
        format_named("word")


def test_an_export_never_writes_outside_its_folder(tmp_path: Path) -> None:
    class Bad:
        name = "bad"

        def read(self, files: object) -> object: ...

        def write(self, notes: object) -> dict[str, str]:
            return {"../x.md": "x"}

    with pytest.raises(BoundaryRefused):
        export_folder(Bad(), [], tmp_path / "out")  # type: ignore[arg-type]
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out/memory").symlink_to(tmp_path / "elsewhere")
    note = Note("x", role=Role.DAILY, created=dt.datetime(2026, 1, 1, tzinfo=dt.UTC))
    with pytest.raises(BoundaryRefused, match="symbolic link"):
        export_folder(format_named("openclaw"), [note], tmp_path / "out")
    assert os.listdir(tmp_path / "elsewhere") == []
    with pytest.raises(InvalidInput, match="surrogate"):
        export_folder(format_named("claude"), [Note("\ud800")], tmp_path / "out")
