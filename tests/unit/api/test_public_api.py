"""The public API: what the documents name is there, costs nothing to import, and says so when it is misused."""

from __future__ import annotations

import asyncio
import copy
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
from programs.paths import ROOT

import duramen
from duramen import Draft, errors
from duramen.api._async.duramen import AsyncDuramen
from duramen.api._sync.duramen import Duramen
from duramen.api.settings import Settings
from duramen.errors import DuramenError
from duramen.runtime import drive, drive_iterator

NAMES = {
    "AsyncMemories",
    "Hit",
    "Memories",
    "MemoriesExported",
    "MemoriesImported",
    "Memory",
    "Procedure",
    "Recalled",
    "Recollection",
    "Relation",
    "AsyncFiles",
    "AsyncDuramen",
    "AsyncLease",
    "AsyncProgress",
    "AsyncRunHandle",
    "AsyncSession",
    "AsyncSessionView",
    "AsyncSharedState",
    "CannotTell",
    "Checkpoint",
    "Context",
    "Draft",
    "Episode",
    "EpisodePolicy",
    "ErasureReport",
    "Event",
    "Files",
    "FilesSynced",
    "ForgetReport",
    "Handoff",
    "Happened",
    "Duramen",
    "DuramenError",
    "KindPolicy",
    "Lease",
    "Problem",
    "Progress",
    "Proposal",
    "Queue",
    "RateLimited",
    "Redactor",
    "Retry",
    "RunHandle",
    "RunInfo",
    "RunStatus",
    "Schedule",
    "Session",
    "SessionProgress",
    "SessionView",
    "SharedState",
    "SessionStatus",
    "Synced",
    "ContextTrace",
    "Unregistered",
    "Verification",
    "Versioned",
    "Window",
    "aopen",
    "ask",
    "brief",
    "checkpointed",
    "emit",
    "errors",
    "new_key",
    "open",
    "patched",
    "receive",
    "register",
    "remember",
    "report",
    "reported",
    "sleep",
    "sleep_until",
    "step",
    "task",
    "transaction",
}
ERRORS = {name: cls for name, cls in vars(errors).items() if inspect.isclass(cls) and issubclass(cls, DuramenError)}


# -- names


def test_the_names_are_what_we_promise() -> None:
    assert set(duramen.__all__) == NAMES
    assert len(duramen.__all__) == len(NAMES)
    assert set(dir(duramen)) >= NAMES
    assert re.match(r"\d+(\.\d+)+", duramen.__version__)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_name_resolves_and_is_explained(name: str) -> None:
    found = getattr(duramen, name)
    assert inspect.getdoc(found)
    assert getattr(duramen, name) is found


def test_star_gives_the_names_and_nothing_else() -> None:
    program = "from duramen import *; print(sorted(name for name in dir() if not name.startswith('__')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == repr(sorted(NAMES))


def test_a_name_that_is_not_there() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = duramen.nothing
    assert not hasattr(duramen, "journal_of_somebody")


def test_the_documents_name_only_what_is_there() -> None:
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    named = {name for path in documents for name in re.findall(r"\bduramen\.([a-zA-Z]\w*)\(", path.read_text("utf-8"))}
    assert named <= NAMES


@pytest.mark.parametrize("module", ["duramen", "duramen.errors"])
def test_importing_costs_nothing(module: str) -> None:
    heavy = ["apsw", "psycopg", "psycopg_audience", "cryptography", "typer", "rich", "zstandard", "msgspec", "asyncio"]
    heavy += ["numpy", "onnxruntime", "openai", "yaml"]
    program = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_sqlite_handle_needs_no_server_driver_and_no_command_line(tmp_path: Path) -> None:
    spared = ["psycopg", "cryptography", "typer", "rich", "pydantic", "numpy", "onnxruntime"]
    program = (
        f"import sys, duramen; dm = duramen.open({str(tmp_path / 'a.db')!r}); dm.session('s').append('n', 1);"
        f"print([name for name in {spared} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def twins() -> list[tuple[type, type]]:
    """Each public class of the sync API with the one that it was generated from."""
    found = []
    for path in sorted((ROOT / "src/duramen/api/_sync").glob("[a-z]*.py")):
        for name, cls in vars(import_module(f"duramen.api._sync.{path.stem}")).items():
            if inspect.isclass(cls) and cls.__module__ == f"duramen.api._sync.{path.stem}":
                there = import_module(f"duramen.api._async.{path.stem}")
                aio = "AsyncProgress" if name == "SessionProgress" else f"Async{name}"
                found.append((cls, getattr(there, aio)))
    return found


def public(cls: type) -> dict[str, Any]:
    return {name: found for name, found in vars(cls).items() if not name.startswith("_")}


@pytest.mark.parametrize(("sync", "aio"), twins(), ids=lambda cls: cls.__name__)
def test_both_apis_have_the_same_calls(sync: type, aio: type) -> None:
    calls = {name for name, found in public(sync).items() if inspect.isfunction(found)}
    assert calls == {name for name, found in public(aio).items() if inspect.isfunction(found)}
    for name in calls:
        assert getattr(sync, name).__doc__, name
        mine, theirs = (inspect.signature(getattr(cls, name)).parameters for cls in (sync, aio))
        assert mine == theirs, name


def test_both_apis_are_compared_whole() -> None:
    assert {sync.__name__ for sync, _ in twins()} >= {"Duramen", "Session", "Memories", "Files", "SharedState", "Lease"}


def test_the_sync_api_is_what_the_tool_generates() -> None:
    command = [sys.executable, str(ROOT / "tools" / "generate_sync.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_every_setting_is_explained() -> None:
    explained = re.findall(r"^    (\w+): ", inspect.getdoc(Settings) or "", re.MULTILINE)
    assert explained == list(Settings.__annotations__)


# -- errors


def subclasses(cls: type) -> set[type]:
    return {cls}.union(*map(subclasses, cls.__subclasses__()))


def test_every_error_is_in_the_tree() -> None:
    import duramen.ports
    import duramen.stores.postgres
    import duramen.stores.sqlite  # noqa: F401 - so that all of them are defined

    internal = {"SubjectGone", "ChunkLogMoved"} | {
        "PostgresMissing",
        "PostgresFailed",
    }  # in stores, in the testing tools
    known = {cls.__name__ for cls in subclasses(DuramenError) if cls.__module__.startswith("duramen")}
    assert known - internal == set(ERRORS)
    builtins = vars(__import__("builtins"))
    assert not any(name in builtins for name in ERRORS), "no builtin is shadowed"


MADE: dict[str, DuramenError] = {
    "CheckpointConflict": errors.CheckpointConflict("s", "state", "a1", None),
    "CheckpointDamaged": errors.CheckpointDamaged("s", "state", "a1", "a part of it is missing"),
    "ModelFailed": errors.ModelFailed("haiku", "timeout after 30 s", hint="do this"),
    "EmbedderFailed": errors.EmbedderFailed("mine", "out of memory", hint="do this"),
    "WeightsUnavailable": errors.WeightsUnavailable("minilm", [("pip", "no network")]),
    "WeightsDamaged": errors.WeightsDamaged("model.safetensors", "53aa5117" * 8, "00" * 32),
    "EmbedderMismatch": errors.EmbedderMismatch("minilm (384 dimensions)", "mine (3 dimensions)"),
    "BoundaryRefused": errors.BoundaryRefused("../x.md", "it has '..' for a name"),
    "FileMalformed": errors.FileMalformed("preference/seat.md", 3, "this is not UTF-8"),
    "FileChanged": errors.FileChanged("preference/seat.md"),
    "CommitFailed": errors.CommitFailed("git could not commit 2 files: no", output="no"),
    "UnknownType": errors.UnknownType("app.Thing", path="$.a[3]", hint="register it"),
    "PayloadTooLarge": errors.PayloadTooLarge(10, 5),
    "PositionConflict": errors.PositionConflict("s", 3, 5),
    "LeaseLost": errors.LeaseLost("s", 1, 2),
    "UnknownMemory": errors.UnknownMemory("m"),
    "UnknownProcedure": errors.UnknownProcedure("deploy", 2),
    "UnknownProposal": errors.UnknownProposal("abc"),
    "TurnConflict": errors.TurnConflict("s", "t1"),
    "ProposalDecided": errors.ProposalDecided("abc", "dismissed", "ada"),
    "UnknownSession": errors.UnknownSession("s"),
    "SessionExists": errors.SessionExists("s"),
    "JournalDamaged": errors.JournalDamaged("s", 3, "it does not match its hash"),
    "StoreTooNew": errors.StoreTooNew("agent.db", 9, 2),
    "RunActive": errors.RunActive("r", "s", ""),
    "UnknownRun": errors.UnknownRun("r"),
    "UnknownTask": errors.UnknownTask("r", "trip", "2"),
    "RunParked": errors.RunParked("r", "an answer"),
    "RunFailed": errors.RunFailed("r", "ValueError", "no"),
    "RunCancelled": errors.RunCancelled("r", "enough"),
    "StepsChanged": errors.StepsChanged("r", "book#1", ["search#1"]),
    "StepInDoubt": errors.StepInDoubt("r", "book#1", "the process ended inside it"),
    "StepTimeout": errors.StepTimeout("book", 2.0),
    "StepFailed": errors.StepFailed("BookingError", "no seats"),
    "StateConflict": errors.StateConflict("plan", 3, 4),
}


def example_of(name: str) -> DuramenError:
    return MADE.get(name) or ERRORS[name]("something happened", hint="do this")


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_every_error_has_a_message_and_a_hint(name: str) -> None:
    error = example_of(name)
    assert error.message in str(error)
    assert f"\nHint: {error.hint}" in str(error)
    assert type(error).__doc__
    assert str(DuramenError("bare")) == "bare"


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_every_error_can_be_copied_and_cross_processes(name: str) -> None:
    error = example_of(name)
    for twin in (copy.copy(error), ForkingPickler.loads(ForkingPickler.dumps(error))):
        assert type(twin) is type(error)
        assert str(twin) == str(error)
        assert vars(twin) == vars(error)


def test_errors_carry_their_facts() -> None:
    facts = {
        name: {k: v for k, v in vars(error).items() if k not in ("message", "hint")} for name, error in MADE.items()
    }
    assert facts["PositionConflict"] == {"session": "s", "expected": 3, "actual": 5}
    assert facts["LeaseLost"] == {"session": "s", "fence": 1, "current": 2}
    assert facts["JournalDamaged"] == {"session": "s", "position": 3, "reason": "it does not match its hash"}
    assert facts["UnknownType"] == {"type_name": "app.Thing", "path": "$.a[3]"}
    assert facts["StoreTooNew"] == {"found": 9, "supported": 2}
    assert facts["WeightsUnavailable"]["attempts"] == (("pip", "no network"),)
    assert (facts["EmbedderMismatch"]["stored"], facts["EmbedderMismatch"]["embedder"]) == (
        "minilm (384 dimensions)",
        "mine (3 dimensions)",
    )
    assert "at=2" in MADE["JournalDamaged"].hint


# -- misuse


class Takes:
    name = "takes"

    def apply(self, events: Any) -> None:
        """All of them."""


CALLS: dict[str, Callable[[Duramen], Any]] = {
    "append": lambda dm: dm.session("s").append("note", 2),
    "append_all": lambda dm: dm.session("s").append_all([Draft("note", 2)], key="k", subject="ada"),
    "events": lambda dm: list(dm.session("s").events()),
    "pages": lambda dm: list(dm.session("s").pages(backwards=True)),
    "follow": lambda dm: list(dm.session("s").follow(timeout=0.01)),
    "head": lambda dm: dm.session("s").head(),
    "standing": lambda dm: dm.session("s").status(),
    "fork": lambda dm: dm.session("s").fork("t"),
    "lease": lambda dm: dm.session("s").lease("me"),
    "verify": lambda dm: dm.verify(),
    "sessions": lambda dm: list(dm.sessions()),
    "workspaces": lambda dm: dm.workspaces(),
    "erase": lambda dm: dm.erase("ada"),
    "rotate_key": lambda dm: dm.rotate_key(bytes(range(32))),
    "deliver": lambda dm: dm.deliver(Takes()),
}


@pytest.mark.parametrize("store", ["inmemory", "sqlite", "postgres"])
def test_a_closed_handle_says_so_at_every_call(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    address = {"inmemory": "memory:", "sqlite": str(tmp_path / "a.db")}.get(store)
    dm = duramen.open(address or request.getfixturevalue("postgres_url"))
    dm.session("s").append("note", 1, subject="ada")
    lease = dm.session("s").lease("me")
    assert lease is not None
    half_read = dm.session("s").events()
    next(half_read)
    dm.close()
    dm.close()
    for name, call in {**CALLS, "renew": lambda _: lease.renew(), "release": lambda _: lease.release()}.items():
        with pytest.raises(errors.StoreClosed) as closed:
            call(dm)
        assert closed.value.hint, name
    half_read.close()


FORKER = """
import os, sys, duramen
dm = duramen.open(sys.argv[1])
session = dm.session("s")
session.append("note", 1)
if (child := os.fork()) == 0:
    for call in (lambda: session.append("note", 2), lambda: list(session.events()), dm.verify):
        try:
            call()
        except duramen.errors.ForkedHandle as error:
            print(bool(error.hint), flush=True)
    dm.close()
    try:
        with duramen.open(sys.argv[1]) as own:
            own.session("s").append("note", "by the child")
    except duramen.errors.ForkedHandle as error:
        assert "postgresql" not in sys.argv[1] and error.hint
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
session.append("note", "by the parent")
print([event.data for event in session.events()], dm.verify().ok)
"""


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_forked_child_is_told_to_open_its_own(store: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    address = str(tmp_path / "a.db") if store == "sqlite" else request.getfixturevalue("postgres_url")
    command = [sys.executable, "-W", "ignore", "-c", FORKER, address]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    by_child = "" if store == "sqlite" else "'by the child', "  # SQLite's locks do not survive a fork: refused
    assert done.stdout.split("\n")[:4] == ["True", "True", "True", f"[1, {by_child}'by the parent'] True"]


INTERRUPTED = """
import os, signal, sys, threading, time, duramen
from duramen.crash_points import listen
listen(lambda point: time.sleep(0.4) if point == "append.begun" else None)
dm = duramen.open(sys.argv[1])
write = lambda name: dm.session(name).append("note", name)
writers = [threading.Thread(target=write, args=(name,), daemon=True) for name in ("first", "behind", "later")]
writers[0].start()                                   # leads, slowly
time.sleep(0.1)
threading.Timer(0.1, writers[1].start).start()       # queues behind the main thread
threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    write("main")
except KeyboardInterrupt:
    print("interrupted")
writers[2].start()
for writer in writers:
    writer.join(5)
print([writer.is_alive() for writer in writers], dm.verify().ok)
"""


def test_an_interrupted_writer_does_not_hold_up_the_others(tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "a.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.split("\n")[:2] == ["interrupted", "[False, False, False] True"], done.stderr


def test_a_store_that_suspends_in_a_sync_call_is_named() -> None:
    async def suspends() -> None:
        await asyncio.sleep(0)

    async def stream() -> Any:
        await asyncio.sleep(0)
        yield 1

    with pytest.raises(errors.SuspendedInSync, match="bug in the store") as raised:
        drive(suspends())
    assert raised.value.hint
    with pytest.raises(errors.SuspendedInSync):
        list(drive_iterator(stream()))


def test_an_asynchronous_handle_may_outlive_its_loop(tmp_path: Path) -> None:
    async def begin() -> AsyncDuramen:
        dm = await duramen.aopen(tmp_path / "a.db")
        await dm.session("s").append("note", 1)
        return dm

    async def go_on(dm: AsyncDuramen) -> list[Any]:
        async with dm:
            await dm.session("s").append("note", 2)
            return [event.data async for event in dm.session("s").events()]

    assert asyncio.run(go_on(asyncio.run(begin()))) == [1, 2]


def test_the_sync_api_works_inside_a_loop() -> None:
    async def inside() -> int:
        with duramen.open("memory:") as dm:
            return dm.session("s").append("note", 1).position

    assert asyncio.run(inside()) == 1


def test_events_cannot_be_changed() -> None:
    with duramen.open("memory:") as dm:
        event = dm.session("s").append("note", 1)
        with pytest.raises(AttributeError):
            event.data = 2
        with pytest.raises(AttributeError):
            Draft("note").data = 2
        assert event.at.tzinfo is not None


def test_a_reader_may_stop_halfway(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "a.db") as dm:
        dm.session("s").append_all([Draft("note", n) for n in range(2_000)])
        for event in dm.session("s").events():
            if event.position == 700:
                break
        reading = dm.session("s").pages()
        next(reading)
        dm.erase("nobody")
        assert dm.verify().ok
