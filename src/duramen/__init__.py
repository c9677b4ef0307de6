"""Durable memory for AI agents.

    dm = duramen.open("agent.db")                 # or postgresql://…; `aopen` for an event loop
    session = dm.session("trip-456")
    session.append("note", {"text": "aisle seat"}) # durable when it returns
    for event in session.events(): ...             # verified against the hash chain

    @duramen.step                                 # intent before, outcome after
    def book(flight, *, key): ...
    @duramen.task
    def trip(request): return book(request)
    dm.run(trip, "NYC tomorrow", id="trip-456")    # starts it, or resumes it, or returns its result

    session.say("user", "An aisle seat, please")   # a conversation, with tool calls, decisions and errors
    session.context(budget=8_000).anthropic()      # what the model sees next, rebuilt to the byte after a kill
    session.checkpoint({"messages": messages})     # what did not change is not written again

Names are imported when they are first used: importing duramen costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import errors as errors
    from .aio import AsyncDuramen, AsyncLease, AsyncSession, AsyncSessionView, aopen
    from .aio_files import AsyncFiles
    from .aio_memory import AsyncMemories
    from .aio_runs import AsyncRunHandle
    from .aio_talk import AsyncProgress
    from .context.episode_policy import EpisodePolicy
    from .context.episodes import Episode
    from .context.handoff import Handoff
    from .context.progress import Progress
    from .context.progresslog import Synced
    from .context.rendering import Context, Trace
    from .context.states import Checkpoint
    from .context.window import Window
    from .errors import DuramenError
    from .execution.definitions import CannotTell, Happened, RateLimited, Retry, step, task
    from .execution.runs import RunInfo, RunStatus
    from .execution.schedules import Schedule
    from .execution.state import AsyncSharedState, Versioned
    from .execution.waits import (
        ask,
        brief,
        emit,
        patched,
        receive,
        remember,
        report,
        reported,
        sleep,
        sleep_until,
        transaction,
    )
    from .execution.worker import Queue
    from .execution.workstate import checkpointed
    from .journal.codec import Unregistered
    from .journal.events import Draft, Event, Standing
    from .journal.journal import ErasureReport
    from .journal.redaction import Redactor
    from .journal.registry import register
    from .journal.sealing import new_key
    from .journal.verifying import Problem, Verification
    from .memory.items import ForgetReport, Hit, Memory, Recalled
    from .memory.neighbours import Relation
    from .memory.policies import KindPolicy
    from .memory.procedures import Procedure
    from .memory.proposals import Proposal
    from .memory.recalling import Recollection
    from .sync import Duramen, Lease, Session, SessionView, open
    from .sync_files import Files
    from .sync_memory import Memories
    from .sync_runs import RunHandle, SharedState
    from .sync_talk import SessionProgress
    from .syncing.exchange import MemoriesExported, MemoriesImported
    from .syncing.report import FilesSynced

__version__ = "0.1.0"

_HOME = {
    "AsyncFiles": "aio_files",
    "AsyncDuramen": "aio",
    "AsyncLease": "aio",
    "AsyncMemories": "aio_memory",
    "AsyncProgress": "aio_talk",
    "AsyncRunHandle": "aio_runs",
    "AsyncSession": "aio",
    "AsyncSessionView": "aio",
    "AsyncSharedState": "execution.state",
    "CannotTell": "execution.definitions",
    "Checkpoint": "context.states",
    "Context": "context.rendering",
    "Draft": "journal.events",
    "Episode": "context.episodes",
    "EpisodePolicy": "context.episode_policy",
    "ErasureReport": "journal.journal",
    "Event": "journal.events",
    "Files": "sync_files",
    "FilesSynced": "syncing.report",
    "ForgetReport": "memory.items",
    "MemoriesExported": "syncing.exchange",
    "MemoriesImported": "syncing.exchange",
    "Handoff": "context.handoff",
    "Happened": "execution.definitions",
    "Hit": "memory.items",
    "Duramen": "sync",
    "DuramenError": "errors",
    "KindPolicy": "memory.policies",
    "Lease": "sync",
    "Memories": "sync_memory",
    "Memory": "memory.items",
    "Problem": "journal.verifying",
    "Procedure": "memory.procedures",
    "Progress": "context.progress",
    "Proposal": "memory.proposals",
    "Queue": "execution.worker",
    "RateLimited": "execution.definitions",
    "Recalled": "memory.items",
    "Recollection": "memory.recalling",
    "Redactor": "journal.redaction",
    "Relation": "memory.neighbours",
    "Retry": "execution.definitions",
    "RunHandle": "sync_runs",
    "RunInfo": "execution.runs",
    "RunStatus": "execution.runs",
    "Schedule": "execution.schedules",
    "Session": "sync",
    "SessionProgress": "sync_talk",
    "SessionView": "sync",
    "SharedState": "sync_runs",
    "Standing": "journal.events",
    "Synced": "context.progresslog",
    "Trace": "context.rendering",
    "Unregistered": "journal.codec",
    "Verification": "journal.verifying",
    "Versioned": "execution.state",
    "Window": "context.window",
    "aopen": "aio",
    "ask": "execution.waits",
    "brief": "execution.waits",
    "checkpointed": "execution.workstate",
    "emit": "execution.waits",
    "new_key": "journal.sealing",
    "open": "sync",
    "patched": "execution.waits",
    "receive": "execution.waits",
    "register": "journal.registry",
    "remember": "execution.waits",
    "report": "execution.waits",
    "reported": "execution.waits",
    "sleep": "execution.waits",
    "sleep_until": "execution.waits",
    "step": "execution.definitions",
    "task": "execution.definitions",
    "transaction": "execution.waits",
}

__all__ = [
    "AsyncFiles",
    "AsyncDuramen",
    "AsyncLease",
    "AsyncMemories",
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
    "Hit",
    "Duramen",
    "DuramenError",
    "KindPolicy",
    "Lease",
    "Memories",
    "MemoriesExported",
    "MemoriesImported",
    "Memory",
    "Problem",
    "Procedure",
    "Progress",
    "Proposal",
    "Queue",
    "RateLimited",
    "Recalled",
    "Recollection",
    "Redactor",
    "Relation",
    "Retry",
    "RunHandle",
    "RunInfo",
    "RunStatus",
    "Schedule",
    "Session",
    "SessionProgress",
    "SessionView",
    "SharedState",
    "Standing",
    "Synced",
    "Trace",
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
]


def __getattr__(name: str) -> Any:
    if name == "errors":
        return import_module(".errors", __name__)
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_HOME[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
