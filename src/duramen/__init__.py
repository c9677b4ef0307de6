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
    from .api._async.conversation import AsyncProgress
    from .api._async.duramen import AsyncDuramen, AsyncLease, AsyncSession, AsyncSessionView, aopen
    from .api._async.files import AsyncFiles
    from .api._async.memories import AsyncMemories
    from .api._async.runs import AsyncRunHandle
    from .api._sync.conversation import SessionProgress
    from .api._sync.duramen import Duramen, Lease, Session, SessionView, open
    from .api._sync.files import Files
    from .api._sync.memories import Memories
    from .api._sync.runs import RunHandle, SharedState
    from .checkpoints.state import Checkpoint
    from .context.episode_policy import EpisodePolicy
    from .context.episodes import Episode
    from .context.handoff import Handoff
    from .context.progress.progress_log import Synced
    from .context.progress.record import Progress
    from .context.window.context import Context, ContextTrace
    from .context.window.settings import Window
    from .errors import DuramenError
    from .execution.engine.run_info import RunInfo, RunStatus
    from .execution.steps.definitions import CannotTell, Happened, RateLimited, Retry, step, task
    from .execution.waits.shared_state import AsyncSharedState, Versioned
    from .execution.waits.task_state import checkpointed
    from .execution.waits.waits import (
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
    from .execution.workers.schedules import Schedule
    from .execution.workers.worker import Queue
    from .files.sync.import_export import MemoriesExported, MemoriesImported
    from .files.sync.report import FilesSynced
    from .journal.codec import Unregistered
    from .journal.events import Draft, Event, SessionStatus
    from .journal.journal import ErasureReport
    from .journal.redaction import Redactor
    from .journal.registry import register
    from .journal.sealing import new_key
    from .journal.verification import Problem, Verification
    from .memory.catalog.records import ForgetReport, Hit, Memory, Recalled
    from .memory.knowledge.policies import KindPolicy
    from .memory.knowledge.procedures import Procedure
    from .memory.knowledge.proposals import Proposal
    from .memory.ranking.neighbours import Relation
    from .memory.recollection import Recollection

__version__ = "0.1.0"

_HOME = {
    "AsyncFiles": "api._async.files",
    "AsyncDuramen": "api._async.duramen",
    "AsyncLease": "api._async.duramen",
    "AsyncMemories": "api._async.memories",
    "AsyncProgress": "api._async.conversation",
    "AsyncRunHandle": "api._async.runs",
    "AsyncSession": "api._async.duramen",
    "AsyncSessionView": "api._async.duramen",
    "AsyncSharedState": "execution.waits.shared_state",
    "CannotTell": "execution.steps.definitions",
    "Checkpoint": "checkpoints.state",
    "Context": "context.window.context",
    "Draft": "journal.events",
    "Episode": "context.episodes",
    "EpisodePolicy": "context.episode_policy",
    "ErasureReport": "journal.journal",
    "Event": "journal.events",
    "Files": "api._sync.files",
    "FilesSynced": "files.sync.report",
    "ForgetReport": "memory.catalog.records",
    "MemoriesExported": "files.sync.import_export",
    "MemoriesImported": "files.sync.import_export",
    "Handoff": "context.handoff",
    "Happened": "execution.steps.definitions",
    "Hit": "memory.catalog.records",
    "Duramen": "api._sync.duramen",
    "DuramenError": "errors",
    "KindPolicy": "memory.knowledge.policies",
    "Lease": "api._sync.duramen",
    "Memories": "api._sync.memories",
    "Memory": "memory.catalog.records",
    "Problem": "journal.verification",
    "Procedure": "memory.knowledge.procedures",
    "Progress": "context.progress.record",
    "Proposal": "memory.knowledge.proposals",
    "Queue": "execution.workers.worker",
    "RateLimited": "execution.steps.definitions",
    "Recalled": "memory.catalog.records",
    "Recollection": "memory.recollection",
    "Redactor": "journal.redaction",
    "Relation": "memory.ranking.neighbours",
    "Retry": "execution.steps.definitions",
    "RunHandle": "api._sync.runs",
    "RunInfo": "execution.engine.run_info",
    "RunStatus": "execution.engine.run_info",
    "Schedule": "execution.workers.schedules",
    "Session": "api._sync.duramen",
    "SessionProgress": "api._sync.conversation",
    "SessionView": "api._sync.duramen",
    "SharedState": "api._sync.runs",
    "SessionStatus": "journal.events",
    "Synced": "context.progress.progress_log",
    "ContextTrace": "context.window.context",
    "Unregistered": "journal.codec",
    "Verification": "journal.verification",
    "Versioned": "execution.waits.shared_state",
    "Window": "context.window.settings",
    "aopen": "api._async.duramen",
    "ask": "execution.waits.waits",
    "brief": "execution.waits.waits",
    "checkpointed": "execution.waits.task_state",
    "emit": "execution.waits.waits",
    "new_key": "journal.sealing",
    "open": "api._sync.duramen",
    "patched": "execution.waits.waits",
    "receive": "execution.waits.waits",
    "register": "journal.registry",
    "remember": "execution.waits.waits",
    "report": "execution.waits.waits",
    "reported": "execution.waits.waits",
    "sleep": "execution.waits.waits",
    "sleep_until": "execution.waits.waits",
    "step": "execution.steps.definitions",
    "task": "execution.steps.definitions",
    "transaction": "execution.waits.waits",
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
