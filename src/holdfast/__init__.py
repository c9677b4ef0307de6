"""Durable memory for AI agents.

    hf = holdfast.open("agent.db")                 # or postgresql://…; `aopen` for an event loop
    session = hf.session("trip-456")
    session.append("note", {"text": "aisle seat"}) # durable when it returns
    for event in session.events(): ...             # verified against the hash chain

Names are imported when they are first used: importing holdfast costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import errors as errors
    from .aio import AsyncHoldfast, AsyncLease, AsyncSession, aopen
    from .errors import HoldfastError
    from .journal.codec import Unregistered
    from .journal.events import Draft, Event, Standing
    from .journal.journal import ErasureReport
    from .journal.redaction import Redactor
    from .journal.registry import register
    from .journal.sealing import new_key
    from .journal.verifying import Problem, Verification
    from .sync import Holdfast, Lease, Session, open

__version__ = "0.1.0"

_HOME = {
    "AsyncHoldfast": "aio",
    "AsyncLease": "aio",
    "AsyncSession": "aio",
    "Draft": "journal.events",
    "ErasureReport": "journal.journal",
    "Event": "journal.events",
    "Holdfast": "sync",
    "HoldfastError": "errors",
    "Lease": "sync",
    "Problem": "journal.verifying",
    "Redactor": "journal.redaction",
    "Session": "sync",
    "Standing": "journal.events",
    "Unregistered": "journal.codec",
    "Verification": "journal.verifying",
    "aopen": "aio",
    "new_key": "journal.sealing",
    "open": "sync",
    "register": "journal.registry",
}

__all__ = [
    "AsyncHoldfast",
    "AsyncLease",
    "AsyncSession",
    "Draft",
    "ErasureReport",
    "Event",
    "Holdfast",
    "HoldfastError",
    "Lease",
    "Problem",
    "Redactor",
    "Session",
    "Standing",
    "Unregistered",
    "Verification",
    "aopen",
    "errors",
    "new_key",
    "open",
    "register",
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
