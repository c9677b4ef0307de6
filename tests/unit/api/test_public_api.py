"""The public API: its names, the cost of importing it, its errors, and misuse of handles."""

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


def test_the_public_names_are_exactly_these() -> None:
    assert set(duramen.__all__) == NAMES
    assert len(duramen.__all__) == len(NAMES)
    assert set(dir(duramen)) >= NAMES
    assert re.match(r"\d+(\.\d+)+", duramen.__version__)


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_public_name_resolves_and_has_a_docstring(name: str) -> None:
    value = getattr(duramen, name)
    assert inspect.getdoc(value)
    assert getattr(duramen, name) is value


def test_a_star_import_gives_exactly_the_public_names() -> None:
    program = "from duramen import *; print(sorted(name for name in dir() if not name.startswith('__')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == repr(sorted(NAMES))


def test_unknown_names_raise_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = duramen.nothing
    assert not hasattr(duramen, "unknown_name")


def test_the_docs_use_only_public_names() -> None:
    documents = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    named = {name for path in documents for name in re.findall(r"\bduramen\.([a-zA-Z]\w*)\(", path.read_text("utf-8"))}
    assert named <= NAMES


@pytest.mark.parametrize("module", ["duramen", "duramen.errors"])
def test_importing_loads_no_heavy_module(module: str) -> None:
    heavy = ["apsw", "psycopg", "psycopg_pool", "cryptography", "typer", "rich", "zstandard", "msgspec", "asyncio"]
    heavy += ["numpy", "onnxruntime", "openai", "yaml"]
    program = f"import sys, {module}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_sqlite_handle_loads_no_server_driver_and_no_command_line(tmp_path: Path) -> None:
    heavy = ["psycopg", "cryptography", "typer", "rich", "pydantic", "numpy", "onnxruntime"]
    program = (
        f"import sys, duramen; dm = duramen.open({str(tmp_path / 'a.db')!r}); dm.session('s').append('n', 1);"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def sync_and_async_classes() -> list[tuple[type, type]]:
    """Each public class of the sync API, with the async class that it was generated from."""
    pairs = []
    for path in sorted((ROOT / "src/duramen/api/_sync").glob("[a-z]*.py")):
        for name, cls in vars(import_module(f"duramen.api._sync.{path.stem}")).items():
            if inspect.isclass(cls) and cls.__module__ == f"duramen.api._sync.{path.stem}":
                module = import_module(f"duramen.api._async.{path.stem}")
                aio = "AsyncProgress" if name == "SessionProgress" else f"Async{name}"
                pairs.append((cls, getattr(module, aio)))
    return pairs


def public(cls: type) -> dict[str, Any]:
    return {name: value for name, value in vars(cls).items() if not name.startswith("_")}


@pytest.mark.parametrize(("sync", "aio"), sync_and_async_classes(), ids=lambda cls: cls.__name__)
def test_both_apis_have_the_same_methods(sync: type, aio: type) -> None:
    calls = {name for name, value in public(sync).items() if inspect.isfunction(value)}
    assert calls == {name for name, value in public(aio).items() if inspect.isfunction(value)}
    for name in calls:
        assert getattr(sync, name).__doc__, name
        mine, theirs = (inspect.signature(getattr(cls, name)).parameters for cls in (sync, aio))
        assert mine == theirs, name


def test_all_sync_classes_are_compared() -> None:
    assert {sync.__name__ for sync, _ in sync_and_async_classes()} >= {
        "Duramen",
        "Session",
        "Memories",
        "Files",
        "SharedState",
        "Lease",
    }


def test_the_sync_api_is_up_to_date() -> None:
    command = [sys.executable, str(ROOT / "tools" / "generate_sync.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_every_setting_is_documented() -> None:
    documented = re.findall(r"^    (\w+): ", inspect.getdoc(Settings) or "", re.MULTILINE)
    assert documented == list(Settings.__annotations__)


# -- errors


def subclasses(cls: type) -> set[type]:
    return {cls}.union(*map(subclasses, cls.__subclasses__()))


def test_every_error_is_public() -> None:
    import duramen.ports
    import duramen.stores.postgres
    import duramen.stores.sqlite  # noqa: F401 - defines the errors of the stores

    internal = {"SubjectGone", "ChunkLogMoved", "PostgresMissing", "PostgresFailed"}  # of stores and testing tools
    known = {cls.__name__ for cls in subclasses(DuramenError) if cls.__module__.startswith("duramen")}
    assert known - internal == set(ERRORS)
    builtins = vars(__import__("builtins"))
    assert not any(name in builtins for name in ERRORS), "no builtin is shadowed"


EXAMPLES: dict[str, DuramenError] = {
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
    return EXAMPLES.get(name) or ERRORS[name]("something happened", hint="do this")


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_every_error_has_a_message_and_a_hint(name: str) -> None:
    error = example_of(name)
    assert error.message in str(error)
    assert f"\nHint: {error.hint}" in str(error)
    assert type(error).__doc__
    assert str(DuramenError("bare")) == "bare"


@pytest.mark.parametrize("name", sorted(ERRORS))
def test_every_error_can_be_copied_and_pickled(name: str) -> None:
    error = example_of(name)
    for copied in (copy.copy(error), ForkingPickler.loads(ForkingPickler.dumps(error))):
        assert type(copied) is type(error)
        assert str(copied) == str(error)
        assert vars(copied) == vars(error)


def test_errors_have_their_facts_as_attributes() -> None:
    facts = {
        name: {k: v for k, v in vars(error).items() if k not in ("message", "hint")} for name, error in EXAMPLES.items()
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
    assert "at=2" in EXAMPLES["JournalDamaged"].hint


# -- misuse


class NullOutlet:
    name = "null"

    def apply(self, events: Any) -> None:
        """Accepts everything."""


CALLS: dict[str, Callable[[Duramen], Any]] = {
    "append": lambda dm: dm.session("s").append("note", 2),
    "append_all": lambda dm: dm.session("s").append_all([Draft("note", 2)], key="k", subject="ada"),
    "events": lambda dm: list(dm.session("s").events()),
    "pages": lambda dm: list(dm.session("s").pages(backwards=True)),
    "follow": lambda dm: list(dm.session("s").follow(timeout=0.01)),
    "head": lambda dm: dm.session("s").head(),
    "status": lambda dm: dm.session("s").status(),
    "fork": lambda dm: dm.session("s").fork("t"),
    "lease": lambda dm: dm.session("s").lease("me"),
    "verify": lambda dm: dm.verify(),
    "sessions": lambda dm: list(dm.sessions()),
    "workspaces": lambda dm: dm.workspaces(),
    "erase": lambda dm: dm.erase("ada"),
    "rotate_key": lambda dm: dm.rotate_key(bytes(range(32))),
    "deliver": lambda dm: dm.deliver(NullOutlet()),
}


def test_a_closed_handle_raises_store_closed_at_every_call(any_address: str) -> None:
    dm = duramen.open(any_address)
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


def test_a_forked_child_cannot_use_the_handle_of_its_parent(address: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORKER, address]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    # SQLite's locks do not survive a fork. duramen therefore refuses to open the file in the child.
    by_child = "" if address.endswith("agent.db") else "'by the child', "
    assert done.stdout.split("\n")[:4] == ["True", "True", "True", f"[1, {by_child}'by the parent'] True"]


INTERRUPTED = """
import os, signal, sys, threading, duramen
from duramen.crash_points import listen
leading, interrupted = threading.Event(), threading.Event()
def hold(point):
    if point == "append.begun" and threading.current_thread() is writers[0]:
        leading.set()
        interrupted.wait(20)
listen(hold)
dm = duramen.open(sys.argv[1])
write = lambda name: dm.session(name).append("note", name)
writers = [threading.Thread(target=write, args=(name,), daemon=True) for name in ("first", "behind", "later")]
writers[0].start()  # leads the commit group until the main thread is interrupted
leading.wait(20)
try:
    threading.Timer(0.1, writers[1].start).start()  # waits behind the main thread
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    write("main")
except KeyboardInterrupt:
    print("interrupted")
interrupted.set()
writers[2].start()
for writer in writers:
    writer.join(5)
print([writer.is_alive() for writer in writers], dm.verify().ok)
"""


def test_an_interrupted_writer_does_not_block_other_threads(tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "a.db")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.split("\n")[:2] == ["interrupted", "[False, False, False] True"], done.stderr


def test_a_store_that_suspends_in_a_sync_call_raises_an_error() -> None:
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


def test_an_async_handle_works_in_a_second_event_loop(tmp_path: Path) -> None:
    async def begin() -> AsyncDuramen:
        dm = await duramen.aopen(tmp_path / "a.db")
        await dm.session("s").append("note", 1)
        return dm

    async def resume(dm: AsyncDuramen) -> list[Any]:
        async with dm:
            await dm.session("s").append("note", 2)
            return [event.data async for event in dm.session("s").events()]

    assert asyncio.run(resume(asyncio.run(begin()))) == [1, 2]


def test_the_sync_api_works_inside_a_running_loop() -> None:
    async def inside() -> int:
        with duramen.open("memory:") as dm:
            return dm.session("s").append("note", 1).position

    assert asyncio.run(inside()) == 1


def test_events_and_drafts_are_immutable() -> None:
    with duramen.open("memory:") as dm:
        event = dm.session("s").append("note", 1)
        with pytest.raises(AttributeError):
            event.data = 2
        with pytest.raises(AttributeError):
            Draft("note").data = 2
        assert event.at.tzinfo is not None


def test_a_reader_may_stop_early(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "a.db") as dm:
        dm.session("s").append_all([Draft("note", n) for n in range(2_000)])
        for event in dm.session("s").events():
            if event.position == 700:
                break
        reading = dm.session("s").pages()
        next(reading)
        dm.erase("unknown")
        assert dm.verify().ok
