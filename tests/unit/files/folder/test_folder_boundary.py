"""The folder of memory files: no path and no link leads outside, and files are written completely."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import unicodedata
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from programs.seeds import examples, seeded

from duramen.errors import BoundaryRefused, FileChanged, FileError, FileMalformed, InvalidInput
from duramen.files.folder.boundary import MAX_BYTES, Folder
from duramen.files.folder.names import file_name, fold, folder_name, slug
from duramen.files.folder.paths import Area, place
from duramen.files.folder.temp_file import TempFile

pytestmark = pytest.mark.promise("F5", "F7")

FACT = "workspace/acme/knowledge/facts/ferry.md"
VALID_PATHS = {
    "MEMORY.md": (Area.ROOT_INDEX, None),
    "SOUL.md": (Area.PERSONA, None),
    "PROGRESS.md": (Area.PROGRESS, None),
    "AGENTS.md": (Area.AGENTS, None),
    "workspace/acme/MEMORY.md": (Area.INDEX, None),
    FACT: (Area.KNOWLEDGE, "fact"),
    "workspace/acme/knowledge/procedures/how to deploy.md": (Area.KNOWLEDGE, "procedure"),
    "workspace/acme/knowledge/blockers/no-access.md": (Area.KNOWLEDGE, "blocker"),
    "workspace/acme/knowledge/reference/Ünïcode 50% off.md": (Area.KNOWLEDGE, "reference"),
    "workspace/acme/runtime/state.json": (Area.RUNTIME, None),
    "preference/seat.md": (Area.PREFERENCE, "preference"),
    "identity/名前.md": (Area.IDENTITY, "identity"),
    "memory/2024-02-29.md": (Area.DAILY, None),
}
INVALID_PATHS = (
    """
/etc/passwd|//etc/passwd|/MEMORY.md|../x.md|preference/../SOUL.md|preference/..|preference/.|./MEMORY.md
preference/./a.md|preference//a.md|preference/|preference|workspace|workspace/acme|workspace/acme/
workspace/acme/knowledge/facts|preference/%2e%2e/a.md|%2e%2e/a.md|preference/%252e%252e%252fa.md
preference/..%2fa.md|preference/%c0%ae%c0%ae/a.md|preference/%uff0e%uff0e/a.md|preference/a%00.md
preference/..\\a.md|preference\\a.md|..\\..\\a.md|C:\\a.md|C:/a.md|c:a.md|preference/c:a.md
preference/a.md:stream|preference/\uff0e\uff0e/a.md|preference/\u2025/a.md|preference/\u2024\u2024/a.md
preference\uff0fa.md|preference/\uff0e\uff0e\uff0fa.md|preference/a\u2215b.md|preference/a\u2044b.md
preference/a\uff3cb.md|preference/a\u2026b.md|preference/\ufe52\ufe52.md|preference/a\x00.md|preference/a\x1f.md
preference/a\n.md|preference/a\x7f.md|preference/a\x85.md|preference/a\u200b.md|preference/a\u202emd.md
preference/\ufeffa.md|preference/a\ud800.md|preference/\udcc0\udcae.md|preference/con.md|preference/CON.md
preference/nul|preference/NUL.md|preference/nul.x.md|preference/aux .md|preference/com1.md|preference/LPT9.md
preference/com\u00b9.md|preference/conin$.md|workspace/acme/runtime/nul|workspace/acme/runtime/prn.txt
preference/a.md.|preference/a.md |preference/ a.md|preference/a .|preference/-rf.md|preference/~root.md
preference/MEMORY~1.md|preference/.a.md|.git/config|preference/.git|workspace/acme/.git/config
workspace/acme/runtime/.hidden|.gitattributes|memory.md|MEMORY.MD|memory.MD|Memory.md|soul.md|SOUL.MD|agents.md
README.md|Workspace/acme/MEMORY.md|workspace/acme/memory.md|workspace/acme/knowledge/Facts/a.md|Preference/a.md
preference/MEMORY.md|preference/memory.md|preference/a.MD|preference/a.txt|preference/a|preference/b/a.md
workspace/other/MEMORY.md|workspace/ACME/MEMORY.md|workspace/acm\u00e9/MEMORY.md
workspace/other/knowledge/facts/a.md|workspace/acme/../other/MEMORY.md|workspace/acme/knowledge/secrets/a.md
workspace/acme/a.md|workspace/acme/runtime/a/b|workspace/acme/knowledge/a.md
workspace/acme/knowledge/facts/b/a.md|facts/a.md|other/a.md|memory/2023-02-29.md|memory/2024-1-1.md
memory/notes.md|memory/2024-01-01.MD|memory/\u0662\u0660\u0662\u0664-01-01.md|memory/2024-01-01-x.md
preference/cafe\u0301.md|preference/a\u00a0b.md|preference/a|b.md|preference/a?.md|preference/a*.md
preference/"a".md|preference/<a>.md|preference/a..md|~/a.md|file:///etc/passwd|http://x/a.md|$HOME/a.md
""".strip()
    .replace("\n", "|")
    .split("|")
)


@pytest.mark.parametrize("path", VALID_PATHS)
def test_paths_of_the_layout_are_accepted(path: str) -> None:
    placed = place(path, "acme")
    assert (placed.area, placed.kind) == VALID_PATHS[path]
    assert placed.path == path == "/".join((*placed.folders, placed.name))


@pytest.mark.parametrize(
    "path",
    [
        "",
        *INVALID_PATHS,
        "preference/" + "a" * 201 + ".md",
        "preference/" + "ü" * 101 + ".md",
        "a/" * 600,
        "preference/a\n.md",
    ],
)
def test_all_other_paths_are_rejected_for_reading_and_writing(path: str, folder: Folder, outside: Path) -> None:
    for act in (folder.place, folder.read, folder.signature, folder.remove, lambda path: folder.write(path, "x")):
        with pytest.raises(BoundaryRefused) as refused:
            act(path)
        assert refused.value.path == path
        assert refused.value.reason
        assert refused.value.hint
    with pytest.raises(BoundaryRefused):
        folder.write_all({FACT: "never written", path: "x"})
    assert folder.read(FACT) is None
    assert os.listdir(folder.root) == []


def test_a_path_that_is_not_text_is_rejected() -> None:
    for path in (b"MEMORY.md", None, 3, Path("MEMORY.md")):
        with pytest.raises(BoundaryRefused, match="text"):
            place(path, "acme")  # type: ignore[arg-type]


def test_the_agents_file_cannot_be_written_or_removed(folder: Folder) -> None:
    Path(folder.root, "AGENTS.md").write_text("Be kind.")
    assert folder.read("AGENTS.md") == "Be kind."
    for act in (lambda: folder.write("AGENTS.md", ""), lambda: folder.remove("AGENTS.md")):
        with pytest.raises(BoundaryRefused, match="never writes this file"):
            act()
    assert folder.read("AGENTS.md") == "Be kind."


PIECES = [
    *"./\\%:~ -\u2025\uff0e\uff0f\u2215\x00\n",
    "..",
    "%2e",
    "%252e",
    "%2f",
    "a",
    "A",
    "é",
    "e\u0301",
    "\u017f",
    "K",
    "nul",
    ".md",
]
PIECES += [
    "workspace",
    "acme",
    "other",
    "knowledge",
    "facts",
    "runtime",
    "preference",
    "memory",
    "MEMORY.md",
    "2024-01-01",
]
MANIPULATED_PATHS = st.one_of(
    st.lists(st.sampled_from(PIECES), max_size=9).map("".join),
    st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=7).map("/".join),
    st.text(max_size=30),
    st.text(st.characters(), max_size=20).map(lambda name: f"preference/{name}.md"),
    st.sampled_from(sorted(VALID_PATHS)).flatmap(
        lambda path: st.tuples(st.integers(0, len(path)), st.sampled_from(PIECES)).map(
            lambda at: path[: at[0]] + at[1] + path[at[0] :]
        )
    ),
)


@settings(max_examples=examples(1500), deadline=None)
@given(MANIPULATED_PATHS)
@example("preference/\uff0e\uff0e/x.md")
def test_every_accepted_path_stays_inside_in_all_normal_forms(path: str) -> None:
    try:
        placed = place(path, "acme")
    except BoundaryRefused:
        return
    for form in (path, unicodedata.normalize("NFKC", path), unicodedata.normalize("NFD", path), path.casefold()):
        joined = os.path.normpath(os.path.join("/root", form))
        assert joined == f"/root/{form}", "no part is resolved"
        assert form.count("/") == path.count("/")
        assert "\\" not in form
        assert form.isprintable()
    assert unquote(unquote(path)) == path
    assert unicodedata.normalize("NFC", path) == path
    if placed.folders[:1] == ("workspace",):
        assert placed.folders[1] == "acme"


@settings(max_examples=examples(400), deadline=None)
@given(st.text(max_size=80), st.text(max_size=80))
def test_two_workspaces_never_share_a_folder(one: str, other: str) -> None:
    assert place(f"workspace/{folder_name(one)}/MEMORY.md", one).area is Area.INDEX
    if one != other:
        assert fold(folder_name(one)) != fold(folder_name(other))


@pytest.mark.parametrize(
    "pair", [("Acme", "acme"), ("a b", "a-b"), ("é", "e\u0301"), ("nul", "NUL"), ("", "note"), ("..", ".")]
)
def test_workspaces_with_similar_names_are_separate(pair: tuple[str, str], tmp_path: Path) -> None:
    with Folder(tmp_path / "m", pair[0]) as one, Folder(tmp_path / "m", pair[1]) as other:
        one.write(f"workspace/{one.own}/MEMORY.md", "one")
        assert other.read(f"workspace/{other.own}/MEMORY.md") is None
        with pytest.raises(BoundaryRefused, match="another workspace"):
            other.read(f"workspace/{one.own}/MEMORY.md")


@settings(max_examples=examples(400), deadline=None)
@given(st.text(max_size=120), st.text(min_size=1, max_size=40), st.text(min_size=1, max_size=40))
def test_file_names_fit_the_layout_and_are_unique(title: str, id: str, other: str) -> None:
    name = file_name(title, id)
    assert place(f"preference/{name}", "acme").kind == "preference"
    assert name == fold(name) == file_name(title, id)
    assert (file_name(title, other) == name) is (other == id)


def test_file_names_are_readable() -> None:
    assert slug("Übergrößen: Straße & Café!") == "uebergroessen-strasse-cafe"
    assert slug("名前") == slug("…") == slug("") == "note"
    assert slug("word " * 40) == "word-" * 11 + "word"
    assert slug("CON") + "-" in file_name("CON", "x")


# -- files


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Folder]:
    with Folder(tmp_path / "memory", "acme") as folder:
        yield folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside"
    path.mkdir()
    (path / "seat.md").write_text("SECRET")
    return path


def temporary_files(folder: Folder) -> list[str]:
    return [str(path) for path in Path(folder.root).rglob("*.duramen-tmp")]


def test_written_text_is_read_and_only_changes_touch_the_file(folder: Folder) -> None:
    assert folder.read(FACT) is None
    assert folder.signature(FACT) is None
    assert folder.write(FACT, "The ferry\r\nleaves at 8.\n") is True
    before = folder.signature(FACT)
    assert folder.read(FACT) == "The ferry\r\nleaves at 8.\n"
    assert folder.write(FACT, "The ferry\r\nleaves at 8.\n") is False
    assert folder.signature(FACT) == before
    assert folder.write(FACT, "The ferry\r\nleaves at 9.\n") is True
    assert folder.signature(FACT) != before
    assert folder.walk().files == {FACT: folder.signature(FACT)}
    assert temporary_files(folder) == []


def test_files_and_folders_have_private_permissions(folder: Folder) -> None:
    folder.write(FACT, "x")
    path = Path(folder.root, FACT)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    for above in [*path.parents][:5]:
        assert stat.S_IMODE(above.stat().st_mode) == 0o700
    path.chmod(0o644)
    folder.write(FACT, "y")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_removing_a_file_removes_its_empty_folders_only(folder: Folder) -> None:
    folder.write_all({FACT: "x", "workspace/acme/MEMORY.md": "i"})
    assert folder.remove(FACT) is True
    assert folder.remove(FACT) is False
    assert os.listdir(Path(folder.root, "workspace/acme")) == ["MEMORY.md"]
    folder.remove("workspace/acme/MEMORY.md")
    assert os.listdir(folder.root) == []


def test_a_write_with_an_outdated_signature_is_rejected(folder: Folder) -> None:
    folder.write(FACT, "one", seen=None)
    seen = folder.signature(FACT)
    Path(folder.root, FACT).write_text("edited by hand")
    for act in (
        lambda: folder.write(FACT, "two", seen=seen),
        lambda: folder.write(FACT, "two", seen=None),
        lambda: folder.remove(FACT, seen=seen),
    ):
        with pytest.raises(FileChanged) as changed:
            act()
        assert changed.value.path == FACT
    assert folder.read(FACT) == "edited by hand"
    assert folder.write(FACT, "two", seen=folder.signature(FACT))
    with pytest.raises(FileChanged):
        folder.write("preference/gone.md", "x", seen=seen)
    assert temporary_files(folder) == []


def test_a_batch_reports_obstacles_and_writes_the_others(folder: Folder, outside: Path) -> None:
    texts = {f"preference/p{number}.md": f"text {number}" for number in range(400)}
    Path(folder.root, "preference").mkdir()
    Path(folder.root, "preference/p200.md").symlink_to(outside / "seat.md")
    Path(folder.root, "identity").symlink_to(outside)
    done = folder.write_all({**texts, "identity/seat.md": "x"})
    assert set(done.changed) == set(texts) - {"preference/p200.md"}
    assert [path for path, _ in done.refused] == ["preference/p200.md", "identity/seat.md"]
    assert folder.write_all({path: text for path, text in texts.items() if "p200" not in path}) == ((), (), ())
    assert (outside / "seat.md").read_text() == "SECRET"
    assert temporary_files(folder) == []


def test_a_batch_does_not_overwrite_concurrent_edits(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = dict.fromkeys(("preference/a.md", "preference/b.md", "preference/c.md"), "old")
    folder.write_all(texts)
    seen = dict(folder.walk().files)
    Path(folder.root, "preference/a.md").write_text("by hand")
    sync = TempFile.sync

    def sync_with_edit(draft: TempFile) -> None:
        Path(folder.root, "preference/b.md").write_text("during the write")
        sync(draft)

    monkeypatch.setattr(TempFile, "sync", sync_with_edit)
    done = folder.write_all(
        {**dict.fromkeys(texts, "new"), "preference/d.md": "new"}, seen={**seen, "preference/d.md": None}
    )
    assert done == (("preference/c.md", "preference/d.md"), (), ("preference/a.md", "preference/b.md"))
    assert folder.read("preference/b.md") == "during the write"
    with pytest.raises(FileChanged):
        folder.write("preference/b.md", "x", seen=folder.signature("preference/b.md"))
    assert temporary_files(folder) == []


def test_names_that_differ_only_in_case_are_rejected(folder: Folder) -> None:
    folder.write("preference/Seat.md", "by hand")
    for path in ("preference/seat.md", "preference/\u017feat.md"):
        with pytest.raises(BoundaryRefused, match="as the same name"):
            folder.write(path, "x")
    done = folder.write_all({"identity/a.md": "1", "identity/A.md": "2", "preference/Seat.md": "new"})
    assert set(done.changed) == {"identity/a.md", "preference/Seat.md"}
    assert [refusal.path for refusal in done.refused] == ["identity/A.md"]
    Path(folder.root, "identity/A.md").write_text("made by a user")
    walked = folder.walk()
    assert len([path for path in walked.files if "identity" in path]) == 1
    assert [path.casefold() for path, _ in walked.refused] == ["identity/a.md"]


def obstruct(kind: str, target: Path, outside: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "symlink out":
            target.symlink_to(outside / "seat.md")
        case "symlink in":
            target.parent.joinpath("real.md").write_text("real")
            target.symlink_to("real.md")
        case "dangling":
            target.symlink_to(outside / "new.md")
        case "hard link":
            os.link(outside / "seat.md", target)
        case "fifo":
            os.mkfifo(target)
        case "folder":
            target.mkdir()
        case "socket":
            import socket

            here = os.getcwd()
            os.chdir(target.parent)  # socket addresses must be short
            try:
                with socket.socket(socket.AF_UNIX) as made:
                    made.bind(target.name)
            finally:
                os.chdir(here)


KINDS = ["symlink out", "symlink in", "dangling", "hard link", "fifo", "folder", "socket"]


@pytest.mark.parametrize("kind", KINDS)
def test_links_and_special_files_are_rejected(kind: str, folder: Folder, outside: Path) -> None:
    path = "preference/seat.md"
    obstruct(kind, Path(folder.root, path), outside)
    for act in (folder.read, folder.signature, folder.remove, lambda path: folder.write(path, "x")):
        with pytest.raises(BoundaryRefused):
            act(path)
    if kind != "folder":
        assert path in [refusal.path for refusal in folder.walk().refused]
    assert path not in folder.walk().files
    assert os.path.lexists(Path(folder.root, path))
    assert sorted(os.listdir(outside)) == ["seat.md"]
    assert (outside / "seat.md").read_text() == "SECRET"
    assert temporary_files(folder) == []


@pytest.mark.parametrize(
    "at", ["workspace", "workspace/acme", "workspace/acme/knowledge", "workspace/acme/knowledge/facts"]
)
def test_a_link_in_the_path_is_rejected_at_every_depth(at: str, folder: Folder, outside: Path) -> None:
    rest = FACT.removeprefix(at).strip("/")
    (outside / rest).parent.mkdir(parents=True, exist_ok=True)
    (outside / rest).write_text("SECRET")
    link = Path(folder.root, at)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(outside)
    for act in (folder.read, folder.signature, folder.remove, lambda path: folder.write(path, "x")):
        with pytest.raises(BoundaryRefused, match="symbolic link, or not a folder"):
            act(FACT)
    assert folder.walk().files == {}
    assert at in [refusal.path for refusal in folder.walk().refused]
    assert folder.sweep() == 0
    assert (outside / rest).read_text() == "SECRET"


def test_walk_skips_unknown_files_and_reports_invalid_names(folder: Folder) -> None:
    folder.write_all({path: "x" for path in VALID_PATHS if path != "AGENTS.md"})
    root = Path(folder.root)
    (root / ".git").mkdir()
    (root / "workspace/other").mkdir()
    for unknown in (
        "README.md",
        ".git/config",
        "preference/.DS_Store",
        "preference/.seat.md.swp",
        "preference/seat.md~",
    ):
        (root / unknown).write_text("x")
    (root / "workspace/other/MEMORY.md").write_text("x")
    (root / "preference/nul.md").write_text("x")
    (root / "memory/notes.md").write_text("x")
    walked = folder.walk()
    assert set(walked.files) == set(VALID_PATHS) - {"AGENTS.md"}
    assert [path for path, _ in walked.refused] == ["memory/notes.md", "preference/nul.md"]
    assert all(reason for _, reason in walked.refused)


def test_invalid_utf8_is_reported_with_its_line(folder: Folder) -> None:
    folder.write(FACT, "x")
    Path(folder.root, FACT).write_bytes(b"one\ntwo\nth\xffree\n")
    with pytest.raises(FileMalformed) as malformed:
        folder.read(FACT)
    assert (malformed.value.path, malformed.value.line) == (FACT, 3)
    assert folder.read_bytes(FACT) == b"one\ntwo\nth\xffree\n"


def test_invalid_and_huge_texts_are_rejected(folder: Folder) -> None:
    with pytest.raises(InvalidInput, match="surrogate"):
        folder.write(FACT, "\ud800")
    with pytest.raises(InvalidInput, match="at most"):
        folder.write(FACT, "x" * (MAX_BYTES + 1))
    folder.write(FACT, "x")
    Path(folder.root, FACT).write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(BoundaryRefused, match="more than"):
        folder.read(FACT)


def test_errors_of_the_file_system_have_a_hint(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    folder.write(FACT, "old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileError, match="No space left") as error:
        folder.write(FACT, "new")
    assert error.value.hint
    with pytest.raises(FileError, match="No space left"):
        folder.write_all({FACT: "new", "preference/a.md": "new"})
    assert folder.read(FACT) == "old"
    assert folder.read("preference/a.md") is None
    assert temporary_files(folder) == []
    folder.close()
    folder.close()
    with pytest.raises(FileError, match="closed"):
        folder.read(FACT)


# -- kills


KILLED_WRITER = """
import os, signal, sys
from duramen.files.folder import boundary, temp_file
calls = 0
def dying(self, was=getattr(temp_file.TempFile, sys.argv[2])):
    global calls
    calls += 1
    if calls == 150:
        os.kill(os.getpid(), signal.SIGKILL)
    was(self)
setattr(temp_file.TempFile, sys.argv[2], dying)
boundary.Folder(sys.argv[1], "acme").write_all({f"preference/p{n}.md": "new " * 50 for n in range(300)})
"""


@pytest.mark.parametrize("moment", ["sync", "publish"])
def test_a_killed_writer_leaves_complete_files_and_sweep_removes_the_rest(moment: str, folder: Folder) -> None:
    folder.write_all({f"preference/p{number}.md": "old" for number in range(300)})
    done = subprocess.run([sys.executable, "-c", KILLED_WRITER, folder.root, moment], check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    assert temporary_files(folder)
    texts = {folder.read(path) for path in folder.walk().files}
    assert texts == {"old", "new " * 50}
    assert len(folder.walk().files) == 300
    assert folder.walk().refused == ()
    assert folder.sweep() > 0
    assert temporary_files(folder) == []
    assert folder.sweep() == 0


RUNNING_WRITER = """
import sys
from duramen.files.folder import boundary, temp_file
def waiting(self, was=temp_file.TempFile.publish):
    print("ready", flush=True)
    sys.stdin.readline()
    was(self)
temp_file.TempFile.publish = waiting
boundary.Folder(sys.argv[1], "acme").write("preference/a.md", "new")
"""


def test_the_temporary_file_of_a_running_writer_is_not_swept(folder: Folder) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", RUNNING_WRITER, folder.root], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        assert len(temporary_files(folder)) == 1
        assert folder.sweep() == 0
        writer.communicate("\n", timeout=30)
    finally:
        writer.kill()
        writer.wait()
    assert folder.read("preference/a.md") == "new"


def test_other_files_with_similar_names_are_not_swept(folder: Folder, outside: Path) -> None:
    Path(folder.root, "preference").mkdir()
    Path(folder.root, "preference/.a.md.0123abcd.duramen-tmp").symlink_to(outside / "seat.md")
    Path(folder.root, "preference/draft.duramen-tmp").write_text("a file of the user")
    assert folder.sweep() == 0
    assert len(temporary_files(folder)) == 2
    assert (outside / "seat.md").read_text() == "SECRET"


# -- races


class Attacker(threading.Thread):
    """Replaces folders and files by links to the outside and back, as fast as it can."""

    def __init__(self, root: Path, outside: Path) -> None:
        super().__init__(daemon=True)
        self.root, self.outside, self.swaps, self.done = root, outside, 0, threading.Event()

    def run(self) -> None:
        chance = seeded("attacker")
        while not self.done.is_set():
            with suppress(OSError):
                chance.choice([self.folder, self.file, self.hard_link, self.parent])()
                self.swaps += 1

    def folder(self) -> None:
        self._swap(self.root / "preference", lambda at: at.symlink_to(self.outside))

    def parent(self) -> None:
        self._swap(self.root / "workspace", lambda at: at.symlink_to(self.outside))

    def file(self) -> None:
        self._swap(self.root / "preference/seat.md", lambda at: at.symlink_to(self.outside / "seat.md"))

    def hard_link(self) -> None:
        self._swap(self.root / "preference/seat.md", lambda at: os.link(self.outside / "seat.md", at))

    def _swap(self, at: Path, put: object) -> None:
        aside = at.with_name(f"{at.name}.aside")
        os.rename(at, aside)
        try:
            put(at)  # type: ignore[operator]
        finally:
            with suppress(OSError):
                os.unlink(at)
            with suppress(OSError):
                os.rename(aside, at)


def test_links_swapped_in_during_operations_never_lead_outside(tmp_path: Path, outside: Path) -> None:
    deep = outside / "acme/knowledge/facts"
    deep.mkdir(parents=True)
    (deep / "ferry.md").write_text("SECRET")
    before = {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()}
    inodes = {path: path.stat().st_ino for path in before}
    root = tmp_path / "memory"
    done, refused = 0, 0
    with Folder(root, "acme") as folder:
        folder.write_all({"preference/seat.md": "0", FACT: "0"})
        attacker = Attacker(root, outside)
        attacker.start()
        interval = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        try:
            for number in range(1500):
                path = ("preference/seat.md", FACT)[number % 2]
                acts = [
                    lambda path=path: folder.read(path),
                    lambda path=path, number=number: folder.write(path, str(number)),
                    lambda path=path: folder.remove(path),
                    lambda path=path, number=number: folder.write_all(
                        {path: str(number), "preference/x.md": str(number)}
                    ),
                    folder.sweep,
                    folder.walk,
                ]
                try:
                    seen = acts[(number * 7 + number // 11) % len(acts)]()
                    assert "SECRET" not in str(seen)
                    done += 1
                except (BoundaryRefused, FileError):
                    refused += 1
        finally:
            sys.setswitchinterval(interval)
            attacker.done.set()
            attacker.join(10)
    assert {path: path.read_bytes() for path in outside.rglob("*") if path.is_file()} == before
    assert {path: path.stat().st_ino for path in before} == inodes
    assert done > 100
    assert attacker.swaps > 100


@pytest.mark.parametrize("kind", ["symlink out", "dangling", "hard link", "fifo"])
def test_a_file_that_becomes_a_link_before_it_is_opened_is_rejected(
    kind: str, folder: Folder, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("preference/seat.md", "mine")
    target = Path(folder.root, "preference/seat.md")
    open_file = os.open

    def swapping(name: str, *rest: object, **more: object) -> int:
        if name == "seat.md":
            target.unlink()
            obstruct(kind, target, outside)
        return open_file(name, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", swapping)
    with pytest.raises(BoundaryRefused):
        folder.read("preference/seat.md")
    assert sorted(os.listdir(outside)) == ["seat.md"]


@pytest.mark.parametrize("kind", ["symlink out", "dangling", "hard link"])
def test_a_file_that_becomes_a_link_is_replaced_not_followed(
    kind: str, folder: Folder, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("preference/seat.md", "mine")
    target = Path(folder.root, "preference/seat.md")
    rename = os.rename

    def swapping(*names: str, **more: int) -> None:
        target.unlink()
        obstruct(kind, target, outside)
        rename(*names, **more)

    monkeypatch.setattr(os, "rename", swapping)
    folder.write("preference/seat.md", "new")
    assert not target.is_symlink()
    assert target.read_text() == "new"
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"seat.md": "SECRET"}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["write", "remove", "read", "batch"]),
            MANIPULATED_PATHS | st.sampled_from(sorted(VALID_PATHS)),
            st.text(max_size=20),
        ),
        max_size=12,
    )
)
def test_any_order_of_operations_on_any_paths_stays_inside(steps: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        for other in ("other", "root"):
            (base / other).mkdir()
        (base / "other/a.md").write_text("SECRET")
        expected: dict[str, str] = {}
        with Folder(base / "root", "acme") as folder:
            for act, path, text in steps:
                with suppress(BoundaryRefused, InvalidInput):
                    match act:
                        case "write":
                            assert folder.write(path, text) is (expected.get(path) != text)
                            expected[path] = text
                        case "remove":
                            assert folder.remove(path) is (path in expected)
                            expected.pop(path, None)
                        case "read":
                            assert folder.read(path) == expected.get(path)
                        case "batch":
                            done = folder.write_all({path: text})
                            expected |= dict.fromkeys(done.changed, text)
            assert set(folder.walk().files) == set(expected)
        assert sorted(os.listdir(base)) == ["other", "root"]
        assert [path.read_text() for path in (base / "other").iterdir()] == ["SECRET"]
