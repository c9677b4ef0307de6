"""Import and export of other formats: memories keep their origin, and files are exported unchanged."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from programs.paths import DATA

import duramen
from duramen.errors import InvalidInput

pytestmark = pytest.mark.promise("F9")

MARKDOWN = ["claude", "openclaw", "basic-memory"]


@pytest.fixture
def dm(any_address: str) -> Iterator[duramen.Duramen]:
    with duramen.open(any_address, embedder="none") as opened:
        yield opened


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", MARKDOWN)
def test_an_imported_folder_is_exported_unchanged(dm: duramen.Duramen, name: str, tmp_path: Path) -> None:
    done = dm.memory.import_from(DATA / name, name, trusted=True)
    assert done.skipped == ()
    assert len(done.added) >= 3
    before = [(one.id, one.times) for one in dm.memory.list(everyone=True)]
    again = dm.memory.import_from(DATA / name, name, trusted=True)
    assert (again.added, again.skipped) == ((), ())
    assert again.known >= len(done.added)
    assert [(one.id, one.times) for one in dm.memory.list(everyone=True)] == before
    dm.memory.export_to(tmp_path / "out", name)
    assert files_of(tmp_path / "out") == files_of(DATA / name)
    assert dm.memory.export_to(tmp_path / "out", name).written == ()


def test_an_export_reports_its_progress(dm: duramen.Duramen, tmp_path: Path) -> None:
    for number in range(5):
        dm.memory.remember(f"The code of gate {number} is {number * 7}")
    reported: list[tuple[str, int, int]] = []
    files = len(dm.memory.export_to(tmp_path / "out", "claude", progress=lambda *one: reported.append(one)).written)
    assert files >= 5
    assert [one for one in reported if one[0] == "Reading"] == [("Reading", number, number) for number in range(1, 6)]
    assert [one for one in reported if one[0] == "Writing"] == [
        ("Writing", done, files) for done in range(1, files + 1)
    ]


def test_imported_json_lines_are_exported_unchanged(dm: duramen.Duramen, tmp_path: Path) -> None:
    dm.memory.import_from(DATA / "jsonl/memories.jsonl", "jsonl", trusted=True)
    dm.memory.export_to(tmp_path, "jsonl")
    before = [json.loads(line) for line in (DATA / "jsonl/memories.jsonl").read_text("utf-8").split("\n") if line]
    after = [json.loads(line) for line in (tmp_path / "memory.jsonl").read_text("utf-8").split("\n") if line]
    assert after == before


def test_imported_memories_have_a_kind_a_subject_and_an_origin(dm: duramen.Duramen) -> None:
    dm.memory.import_from(DATA / "claude", "claude", subject="ines", actor="ada", trusted=True)
    real = next(one for one in dm.memory.list(subject="ines") if one.title == "Real database in tests")
    assert (real.kind, real.subject) == ("preference", "ines")
    assert real.metadata["imported"][0]["origin"] == "feedback_real_database.md"
    session, _, position = real.source.rpartition("#")
    (event,) = dm.session(session).events(start=int(position), limit=1)
    assert event.actor == "ada"
    assert [one.decided_by for one in dm.memory.proposals.list("accepted")]
    assert dm.memory.recall("mocks migration", subject="ines").hits[0].memory.id == real.id
    assert not any("](" in one.content and "MEMORY" in one.content for one in dm.memory.list(subject="ines"))


def test_an_edited_memory_is_exported_to_its_original_file(dm: duramen.Duramen, tmp_path: Path) -> None:
    dm.memory.import_from(DATA / "claude", "claude", trusted=True)
    with dm.files(tmp_path / "m") as files:
        files.sync()
        (path,) = [one for one in (tmp_path / "m").rglob("*.md") if "it takes two seconds" in one.read_text()]
        path.write_text(path.read_text().replace("it takes two seconds", "it takes three seconds"))
        files.sync()
    dm.memory.export_to(tmp_path / "out", "claude")
    before, after = files_of(DATA / "claude"), files_of(tmp_path / "out")
    assert after.keys() == before.keys()
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"feedback_real_database.md"}
    expected = before["feedback_real_database.md"].replace(b"it takes two seconds", b"it takes three seconds")
    assert after["feedback_real_database.md"] == expected


@pytest.mark.parametrize("name", [*MARKDOWN, "jsonl"])
def test_exported_memories_can_be_imported(dm: duramen.Duramen, name: str, tmp_path: Path) -> None:
    texts = {"The refund window is 30 days", "# Not a title\n\n## Nor a section\n- [x] no task", "Zeile\u2028zwei ☃"}
    for text in texts:
        dm.memory.remember(text)
    dm.memory.remember("Ada prefers tea", kind="preference", subject="ada", title="Tea", metadata={"tags": ["drinks"]})
    done = dm.memory.export_to(tmp_path / "out", name, everyone=True)
    assert done.memories == 4
    with duramen.open("memory:", embedder="none") as other:
        assert other.memory.import_from(tmp_path / "out", name, trusted=True).skipped == ()
        assert {one.content for one in other.memory.list(everyone=True)} >= texts | {"Ada prefers tea"}
        if name == "jsonl":
            assert [one.content for one in other.memory.list(subject="ada", kinds="preference")] == ["Ada prefers tea"]


def test_equal_texts_become_one_memory_and_are_exported_to_both_files(dm: duramen.Duramen, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    (folder / "memory").mkdir(parents=True)
    for day in ("2026-03-01", "2026-03-02"):
        (folder / f"memory/{day}.md").write_text(f"# {day}\n\n## 10:00\n\nNothing happened.\n")
    dm.memory.import_from(folder, "openclaw")
    (memory,) = dm.memory.list()
    assert (memory.content, memory.kind, len(memory.metadata["imported"])) == ("Nothing happened.", "episode", 2)
    dm.memory.export_to(tmp_path / "out", "openclaw")
    assert files_of(tmp_path / "out") == files_of(folder)


def test_bad_files_are_reported_and_the_others_are_imported(dm: duramen.Duramen, tmp_path: Path) -> None:
    shutil.copytree(DATA / "claude", tmp_path / "in")
    (tmp_path / "in/bad.md").write_text("---\nname: x\nText\n")
    (tmp_path / "in/binary.md").write_bytes(b"ok\n\xff\xfe")
    done = dm.memory.import_from(tmp_path / "in", "claude")
    assert [(one.path, one.line is not None) for one in done.skipped] == [("bad.md", True), ("binary.md", True)]
    assert len(done.added) >= 3
    (tmp_path / "lines.jsonl").write_text('{"text": "One"}\n{"text": 2}\n{"text": "Three"}\n')
    done = dm.memory.import_from(tmp_path / "lines.jsonl", "jsonl")
    assert [(one.path, one.line) for one in done.skipped] == [("lines.jsonl", 2)]
    assert len(done.added) == 2
    with pytest.raises(InvalidInput, match="no format 'word'"):
        dm.memory.import_from(tmp_path, "word")


@pytest.mark.promise("G3")
def test_imports_of_an_erased_subject_are_not_exported(dm: duramen.Duramen, tmp_path: Path) -> None:
    dm.memory.import_from(DATA / "claude", "claude", subject="ines")
    dm.erase("ines")
    assert dm.memory.export_to(tmp_path / "out", "claude", everyone=True).memories == 0
    assert files_of(tmp_path / "out") == {}


def test_the_async_api_imports_and_exports(tmp_path: Path) -> None:
    async def main() -> None:
        async with await duramen.aopen("memory:", embedder="none") as dm:
            await dm.memory.import_from(DATA / "openclaw", "openclaw")
            await dm.memory.export_to(tmp_path / "out", "openclaw")

    asyncio.run(main())
    assert files_of(tmp_path / "out") == files_of(DATA / "openclaw")


LINES = st.sampled_from(
    ["# Memory", "## Ada", "##  Bo ", "text", "", "- item", "\\## x", "### sub", " ", "é", "## 9:30"]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(LINES, max_size=12).map("\n".join))
@example("# Memory\n# Memory\n## Ada\n# Memory")
def test_any_imported_file_is_exported_unchanged(text: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as name, duramen.open("memory:", embedder="none") as dm:
        folder = Path(name)
        (folder / "in").mkdir()
        (folder / "in/MEMORY.md").write_text(text)
        assert dm.memory.import_from(folder / "in", "openclaw").skipped == ()
        dm.memory.export_to(folder / "out", "openclaw")
        assert files_of(folder / "out").get("MEMORY.md", b"").decode() == text
