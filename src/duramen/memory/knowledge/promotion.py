"""Turns findings into memories, decisions and procedures, for `write_back.py` and `model_reader.py`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from hashlib import blake2b
from typing import Any

from ...errors import UnknownProcedure
from ...journal.events import Draft
from ...journal.owners import Owner
from ..catalog.memory_event import ADDED, memory_data
from ..extraction.rules.turns import PROCEDURE, Finding
from .procedures import ProcedureEdit, Procedures

SESSION = "@writeback"
"""The session of the memories that write-back stores, and of all its decisions."""
DONE = "writeback.done"
LEASE = 30_000_000
_CONFIDENCE = {"fact": 0.8, "blocker": 0.9}


async def learn_procedure(procedures: Procedures, one: Finding, session: str, owner: Owner, key: str) -> None:
    """Save a procedure that worked, and log its outcome. An outcome of an unknown procedure is ignored."""
    if one.kind != PROCEDURE or not one.name or one.worked is None:
        return
    cause = f"{session}#{one.position}"
    if one.keep:
        edit = ProcedureEdit(one.steps, note=one.evidence if len(one.steps) == 1 else None)
        known = await procedures.get(one.name, subject=owner.name)
        if known is None or known.steps != one.steps:
            await procedures.save(one.name, edit, owner.name, "duramen", cause, owner=owner)
    with suppress(UnknownProcedure):
        about: dict[str, Any] = {"version": None, "subject": owner.name, "actor": "duramen", "cause": cause}
        await procedures.log_outcome(one.name, one.worked, reason=one.reason, key=key, **about)


def decision_notes(found: Sequence[Finding]) -> list[dict[str, Any]]:
    """The decisions about findings, as data for an event."""
    return [{"kind": one.kind, "keep": one.keep, "reason": one.reason, "what": one.content[:300]} for one in found]


def memory_draft(one: Finding, session: str, confidence: float | None = None) -> Draft:
    """The memory event of a finding."""
    sure = _CONFIDENCE.get(one.kind, 0.8) if confidence is None else confidence
    details = {"confidence": sure, "metadata": {"evidence": one.evidence[:300]}}
    return Draft(ADDED, memory_data(one.content, one.kind, details), "duramen", f"{session}#{one.position}")


def idempotency_key(what: str, session: str, place: str) -> str:
    """The idempotency key of an action on a part of a session. It is a hash, because a session name may be as long as a
    key."""
    return f"{what}:{blake2b(f'{session}#{place}'.encode(), digest_size=16).hexdigest()}"
