"""Every public callable of duramen with a valid call of it, found by introspection, and values that fit nowhere."""

from __future__ import annotations

import datetime as dt
import inspect
import itertools
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import duramen
from duramen import Draft, Versioned
from duramen.api import options as api_options
from duramen.api._async.memory_snapshot import AsyncMemorySnapshot
from duramen.api._async.procedures import AsyncProcedures
from duramen.api._async.proposals import AsyncProposals
from duramen.api._sync.memory_snapshot import MemorySnapshot
from duramen.api._sync.procedures import Procedures
from duramen.api._sync.proposals import Proposals
from duramen.api.settings import Settings
from duramen.memory.catalog.memory_event import MemoryDetails

NOW = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)


class Text(str):
    """A subclass of str."""

    __slots__ = ()


class Unprintable:
    """Its `repr` raises."""

    def __repr__(self) -> str:
        raise ValueError("no repr")


class Endless:
    """Its `repr` never ends by itself."""

    def __repr__(self) -> str:
        return f"{self!r}"


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def wrong_values() -> dict[str, Any]:
    """New values, one of each kind."""
    return {
        "None": None,
        "zero": 0,
        "negative": -1,
        "one": 1,
        "beyond 64 bits": 2**70,
        "thousands of digits": 10**5000,
        "bool": True,
        "float": 1.5,
        "nan": float("nan"),
        "infinity": float("inf"),
        "bytes": b"x",
        "subclass of str": Text("x"),
        "lone surrogate": "a\ud800b",
        "NUL": "a\0b",
        "empty": "",
        "1 MB": "x" * 1_000_000,
        "deep list": nested(10_000),
        "list": [1],
        "list of texts": ["x"],
        "dict": {1: object()},
        "object": object(),
        "unprintable": Unprintable(),
        "endless repr": Endless(),
        "function": len,
        "class": int,
        "naive time": dt.datetime(2026, 1, 1),
        "first year": dt.datetime.min.replace(tzinfo=dt.UTC),
    }


CALLED = {"change", "combine", "embedder", "file_key", "model", "progress", "source"}
"""Arguments that may be functions. They raise their own errors."""

WAITS = {"timeout", "seconds"}
"""Arguments for which a valid number makes the call wait."""


class Outlet:
    name = "outlet"

    def apply(self, events: Any) -> None:
        """Nothing."""


@duramen.task
def idle(*args: Any, **kwargs: Any) -> int:
    return len(args)


@duramen.step
def build() -> None:
    """Nothing."""


@duramen.task
def building() -> None:
    build()


@duramen.task
def asking() -> Any:
    return duramen.ask("Go?")


@duramen.step(in_doubt="ask")
def doubtful() -> None:
    raise KeyboardInterrupt


@duramen.task
def in_doubt() -> None:
    doubtful()


async def settled(result: Any, most: int = 3) -> Any:
    """The value of a call: awaited if it must be, and the first few items of an iterator."""
    if inspect.isawaitable(result):
        return await result
    if isinstance(result, AsyncIterator):
        found = []
        async for item in result:
            found.append(item)
            if len(found) >= most:
                break
        await result.aclose()  # type: ignore[attr-defined]
        return found
    return list(itertools.islice(result, most)) if isinstance(result, Iterator) else result


class World:
    """A handle with something of each kind, and the objects whose methods are called."""

    def __init__(self, dm: Any, folder: Path) -> None:
        self.dm = dm
        self.folder = folder
        self._count = itertools.count()
        self._runs: dict[str, str] = {}

    def new(self) -> str:
        """A name that was not used."""
        return f"n{next(self._count)}"

    async def build(self) -> World:
        dm = self.dm
        session = dm.session("s")
        await settled(session.append("note", "hello"))
        self.call = await settled(session.tool_call("lookup", {"q": 1}))
        self.error = await settled(session.log_error("boom"))
        await settled(session.say("user", "I live in Rome."))
        self.checkpoint = (await settled(session.checkpoint({"a": 1}))).id
        await settled(dm.start(idle, id="done"))
        await settled(dm.start(building, id="built"))
        await settled(dm.work([idle, building], until_idle=True))
        await settled(dm.memory.procedures.save("deploy", ["build", "push"]))
        await settled(session.progress.begin("ship", next_action="build"))
        await settled(dm.memory.remember("Ada lives in Rome", subject="ada"))
        return self

    async def memory(self) -> str:
        return str((await settled(self.dm.memory.remember(f"The office {self.new()} is in Rome"))).id)

    async def proposal(self) -> str:
        made = await settled(self.dm.memory.proposals.make(f"likes tea {self.new()}"))
        return str(made.id)

    async def procedure(self) -> str:
        name = self.new()
        await settled(self.dm.memory.procedures.save(name, ["build", "push"]))
        return name

    async def asking(self) -> str:
        """A run that waits for an answer."""
        return await self._waiting(asking)

    async def in_doubt(self) -> str:
        """A run with a step in doubt."""
        return await self._waiting(in_doubt)

    async def _waiting(self, task: Any) -> str:
        """A run of the task that waits: the last one, if it still does."""
        known = self._runs.get(task.name)
        if known is not None and (await settled(self.dm.run_info(known))).status == "waiting":
            return known
        run = self._runs[task.name] = self.new()
        await settled(self.dm.start(task, id=run))
        await settled(self.dm.work([task], until_idle=True))
        return run

    async def target(self, kind: str) -> Any:
        """The object of a class, by the name of the sync class."""
        dm, session = self.dm, self.dm.session("s")
        makers: dict[str, Callable[[], Any]] = {
            "Duramen": lambda: dm,
            "Session": lambda: session,
            "SessionView": lambda: session.at(2),
            "SharedState": lambda: dm.state("k"),
            "Files": lambda: dm.files(self.folder / "files"),
            "Lease": lambda: session.lease("me"),
            "Memories": lambda: dm.memory,
            "MemorySnapshot": lambda: dm.memory.as_of(NOW),
            "Procedures": lambda: dm.memory.procedures,
            "Proposals": lambda: dm.memory.proposals,
            "SessionProgress": lambda: session.progress,
            "RunHandle": lambda: dm.handle("done"),
            "Context": session.context,
            "Handoff": session.handoff,
            "Progress": lambda: duramen.Progress().begin("ship", "build"),
        }
        return await settled(makers[kind]())

    async def changed_target(self, method: str) -> Any:
        """The object of a method that needs one in another state for each call; None for the other methods."""
        if method in ("RunHandle.answer", "RunHandle.signal", "RunHandle.cancel"):
            return self.dm.handle(await self.asking())
        if method == "SharedState.at":
            await settled(self.dm.state("set").set(1, expected=0, key="once"))
            return self.dm.state("set")
        if method == "Progress.reopen":
            return duramen.Progress().begin("ship", "build").finish()
        if not method.startswith("SessionProgress."):
            return None
        progress = self.dm.session(self.new()).progress
        await settled(progress.begin("ship", next_action="build"))
        if method == "SessionProgress.reopen":
            await settled(progress.finish())
        return await settled(progress.keep_in(self.folder / "P.md")) if method == "SessionProgress.sync" else progress


CLASSES: dict[str, tuple[type, type]] = {
    "Duramen": (duramen.Duramen, duramen.AsyncDuramen),
    "Session": (duramen.Session, duramen.AsyncSession),
    "SessionView": (duramen.SessionView, duramen.AsyncSessionView),
    "SharedState": (duramen.SharedState, duramen.AsyncSharedState),
    "Files": (duramen.Files, duramen.AsyncFiles),
    "Lease": (duramen.Lease, duramen.AsyncLease),
    "Memories": (duramen.Memories, duramen.AsyncMemories),
    "MemorySnapshot": (MemorySnapshot, AsyncMemorySnapshot),
    "Procedures": (Procedures, AsyncProcedures),
    "Proposals": (Proposals, AsyncProposals),
    "SessionProgress": (duramen.SessionProgress, duramen.AsyncProgress),
    "RunHandle": (duramen.RunHandle, duramen.AsyncRunHandle),
    "Context": (duramen.Context, duramen.Context),
    "Handoff": (duramen.Handoff, duramen.Handoff),
    "Progress": (duramen.Progress, duramen.Progress),
}
"""The classes whose methods take arguments of users: sync and async."""

CONSTRUCTED: dict[str, dict[str, Any]] = {
    "CannotTell": {},
    "Draft": {"type": "note"},
    "EpisodePolicy": {},
    "Happened": {},
    "KindPolicy": {"check": "check"},
    "Queue": {"name": "q"},
    "RateLimited": {"retry_after": 1.0},
    "Redactor": {},
    "Retry": {},
    "Schedule": {"name": "s", "task": idle, "every": 60.0},
    "Versioned": {"value": 1, "version": 1},
    "Window": {},
}
"""The classes that users construct, with the required arguments."""

RECORDS = {
    "Checkpoint", "ContextTrace", "DuramenError", "Episode", "ErasureReport", "Event", "FilesSynced", "ForgetReport",
    "Hit", "MemoriesExported", "MemoriesImported", "Memory", "Problem", "Procedure", "Proposal", "Recalled",
    "Recollection", "Relation", "RunInfo", "RunStatus", "SessionStatus", "Synced", "Unregistered", "Verification",
}  # fmt: skip
"""What duramen returns: records without methods that take arguments."""

INSIDE = {
    "ask": {"question": "Go?"},
    "brief": {"steps": "doubtful"},
    "checkpointed": {"state": {}},
    "emit": {"value": 1},
    "patched": {"name": "p"},
    "receive": {"signal": "go"},
    "remember": {"content": "Rome is a city"},
    "report": {"value": 1},
    "reported": {},
    "sleep": {"seconds": 0},
    "sleep_until": {"when": NOW},
    "transaction": {},
}
"""The functions that are called in a run, with the required arguments."""

WAITING = {"ask", "receive", "sleep", "sleep_until"}
"""Of those, the ones that suspend a run."""

IN_STEPS = {"emit", "report", "reported", "transaction"}
"""Of those, the ones that are called in a step."""

FUNCTIONS = {"aopen", "new_key", "open", "register", "step", "task"}
"""The other functions, which have tests of their own."""

Value = Any
"""A value, or a function of the world that returns one and is called before each call."""

REQUIRED: dict[str, Value] = {
    "Context.memory_in": "system",
    "Duramen.answer.value": 1,
    "Duramen.deliver.outlet": Outlet(),
    "Duramen.erase.subject": "nobody",
    "Duramen.files.root": lambda world: world.folder / world.new(),
    "Duramen.fork.new": World.new,
    "Duramen.fork_run.new": World.new,
    "Duramen.id": "done",
    "Duramen.answer.id": World.asking,
    "Duramen.signal.id": World.asking,
    "Duramen.cancel.id": World.asking,
    "Duramen.settle.id": World.in_doubt,
    "Duramen.rotate_key.key": lambda world: duramen.new_key(),
    "Duramen.settle.verdict": "done",
    "Duramen.signal.name": "go",
    "Duramen.task": idle,
    "Duramen.work.tasks": [idle],
    "Files.watch.timeout": 0,
    "Memories.as_of.when": NOW,
    "Memories.edit.text": "---\nkind: fact\n---\nThe office is in Paris\n",
    "Memories.export_to.path": lambda world: world.folder / world.new(),
    "Memories.extract.text": "I live in Rome.",
    "Memories.forget_before.time": NOW - dt.timedelta(days=9999),
    "Memories.format": "jsonl",
    "Memories.id": World.memory,
    "Memories.import_from.path": lambda world: world.folder,
    "Memories.neighbours.name": "Ada",
    "Memories.query": "Rome",
    "MemorySnapshot.query": "Rome",
    "Handoff.counter": "estimate",
    "Handoff.budget": 100,
    "Procedures.distill.run": "built",
    "Procedures.name": World.procedure,
    "Procedures.save.steps": ["build", "push"],
    "Progress.goal": "ship",
    "Progress.begin.next_action": "build",
    "Progress.complete.step": "build it",
    "Progress.context": "more",
    "Progress.has_done.step": "build it",
    "Progress.next_action": "test",
    "Progress.why": "no key",
    "Proposals.id": World.proposal,
    "RunHandle.answer.value": 1,
    "RunHandle.signal.name": "go",
    "Session.append.type": "note",
    "Session.append_all.drafts": [Draft("note", 1), Draft("note", 2)],
    "Session.call": lambda world: world.call,
    "Session.checkpoint.values": {"a": 2},
    "Session.decide.decision": "go by train",
    "Session.decide.reason": "it is cheaper",
    "Session.fetch.reference": "#1",
    "Session.follow.timeout": 0,
    "Session.fork.session": World.new,
    "Session.log_error.error": "boom",
    "Session.log_fix.error": lambda world: world.error,
    "Session.log_fix.how": "restarted it",
    "Session.observe.what": "it rains",
    "Session.pin.id": lambda world: world.checkpoint,
    "Session.recall.query": "Rome",
    "Session.say.content": "Hello",
    "Session.say.role": "user",
    "Session.state.id": lambda world: world.checkpoint,
    "Session.tool_call.tool": "lookup",
    "Session.tool_result.output": {"found": 1},
    "Session.turn.model": lambda world: lambda context: "Hi.",
    "Session.turn.user_input": "I moved to Oslo.",
    "Session.use_memory_tool.arguments": {"query": "Rome"},
    "Session.use_memory_tool.name": "recall",
    "Session.position": 1,
    "Session.owner": World.new,
    "SessionProgress.begin.goal": "ship",
    "SessionProgress.begin.next_action": "build",
    "SessionProgress.complete.step": "build it",
    "SessionProgress.describe.context": "more",
    "SessionProgress.keep_in.path": lambda world: world.folder / f"{world.new()}.md",
    "SessionProgress.next_action": "test",
    "SessionProgress.reword.goal": "ship it",
    "SessionProgress.why": "no key",
    "SessionView.fork.session": World.new,
    "SharedState.at.version": 1,
    "SharedState.change": lambda world: lambda value: 1,
    "SharedState.combine": lambda world: lambda base, theirs, mine: mine,
    "SharedState.expected": 0,
    "SharedState.base": Versioned(None, 0),
    "SharedState.mine": 1,
    "SharedState.value": 1,
    "args": 1,
    "content": "Ada lives in Rome",
    "contents": ["Ada lives in Rome", {"content": "Bo lives in Oslo"}],
    "key": "k",
    "session": "s",
}
"""Valid arguments by "Class.method.argument", "Class.argument" or "argument"."""

OPTIONS: dict[str, dict[str, Any]] = {
    "Duramen.work": {"until_idle": True},
    "Duramen.start": {"queue": "q"},
}
"""Options that each call of a method needs."""

SKIPPED = {
    ("Duramen.rotate_key", "key", "function"): "a function may return the key",
    ("Session.follow", "timeout", "None"): "waits without a limit, as documented",
    ("Files.watch", "timeout", "None"): "waits without a limit, as documented",
}

_TYPED_DICTS = {**vars(api_options), "Settings": Settings, "MemoryDetails": MemoryDetails}


class Argument(NamedTuple):
    """One argument of a method. `kind` says how it is passed."""

    name: str
    kind: Any
    required: bool


def methods() -> list[str]:
    """Every public method that takes arguments, as "Class.method"."""
    found = []
    for name, (kind, _) in CLASSES.items():
        for method, member in inspect.getmembers(kind):
            if method.startswith("_") or not inspect.isroutine(member):
                continue
            if arguments(member):
                found.append(f"{name}.{method}")
    return found


def arguments(function: Any) -> list[Argument]:
    """The arguments of a function, with the keys of the typed dict of `**options`."""
    found = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            named = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
            names = _TYPED_DICTS[named.group(1)].__annotations__ if named else ()
            found += [Argument(name, parameter.KEYWORD_ONLY, False) for name in names]
        else:
            required = parameter.default is parameter.empty and parameter.kind is not parameter.VAR_POSITIONAL
            found.append(Argument(parameter.name, parameter.kind, required))
    return found


async def valid(world: World, method: str, argument: Argument) -> Any:
    """A valid value of a required argument."""
    kind = method.partition(".")[0]
    for name in (f"{method}.{argument.name}", f"{kind}.{argument.name}", argument.name):
        if name in REQUIRED:
            value = REQUIRED[name]
            return await settled(value(world)) if inspect.isfunction(value) else value
    raise KeyError(f"{method} has a new required argument {argument.name!r}: add a valid value to REQUIRED")


def is_given(method: str, argument: Argument) -> bool:
    """Whether a valid call needs the argument."""
    return argument.required or f"{method}.{argument.name}" in REQUIRED


async def call(world: World, target: Any, method: str, wrong: Argument | None, value: Any) -> Any:
    """Call a method with valid arguments, except one."""
    function = getattr(await world.changed_target(method) or target, method.partition(".")[2])
    positional, named = [], dict(OPTIONS.get(method, {}))
    for argument in arguments(function):
        if argument == wrong:
            given = value
        elif is_given(method, argument):
            given = await valid(world, method, argument)
        else:
            continue
        if argument.kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL):
            positional.append(given)
        else:
            named[argument.name] = given
    return await settled(function(*positional, **named))
