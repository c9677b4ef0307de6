"""Staleness policies: for each kind of memory, when it is stale and what to do before using it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ...errors import InvalidInput, shown

if TYPE_CHECKING:
    from ..catalog.records import Memory, Recalled

CHECKS = {"none": "", "check": "check before use", "reconfirm": "must be reconfirmed, do not state it as true"}
"""What to do with a stale memory, and the text of its note."""


@dataclass(frozen=True, slots=True)
class KindPolicy:
    """The policy of a kind of memory. `check` says what a stale memory needs: "none", "check" (check before use) or
    "reconfirm" (do not state it as true until it is confirmed). A memory is stale `stale_after` days after its last
    confirmation; None means never."""

    check: str = "check"
    stale_after: float | None = 30

    def __post_init__(self) -> None:
        if self.check not in tuple(CHECKS):
            raise InvalidInput(f"`check` cannot be {shown(self.check)}", hint=f"give one of {', '.join(CHECKS)}")
        days: object = self.stale_after
        if days is not None and (isinstance(days, bool) or not isinstance(days, (int, float)) or not days > 0):
            raise InvalidInput(
                f"`stale_after` cannot be {shown(days)}", hint="give a number of days above 0, or None for never"
            )

    def is_stale(self, memory: Memory, now: dt.datetime) -> bool:
        """Whether the last confirmation of a memory is too old."""
        return self.stale_after is not None and (now - memory.confirmed) >= dt.timedelta(days=self.stale_after)

    def note(self, memory: Memory, now: dt.datetime) -> str:
        """A note on the age of a memory; empty if it is not stale or needs no check."""
        if not CHECKS[self.check] or not self.is_stale(memory, now):
            return ""
        return f"{(now - memory.confirmed).days} days old: {CHECKS[self.check]}"


STABLE = KindPolicy("none", None)
POLICIES: Mapping[str, KindPolicy] = {
    "preference": STABLE,
    "identity": STABLE,
    "fact": KindPolicy("check", 30),
    "procedure": KindPolicy("check", 14),
    "blocker": KindPolicy("check", 14),
    "reference": KindPolicy("reconfirm", 7),
}
"""The six kinds of durable knowledge. Applications may use other kinds, which never become stale by default."""


class Policies:
    """The policies of a workspace: the given ones, and the defaults for other kinds."""

    def __init__(self, given: Mapping[str, KindPolicy] | None = None) -> None:
        self._known = {**POLICIES, **(given or {})}

    def of(self, kind: str) -> KindPolicy:
        """The policy of a kind."""
        return self._known.get(kind, STABLE)

    def freshness(self, memory: Memory, now: dt.datetime) -> str:
        """A note on the age of a memory; empty if it is not stale or needs no check."""
        return self.of(memory.kind).note(memory, now)

    def with_notes(self, found: Recalled, now: dt.datetime) -> Recalled:
        """The result of a search, with a note on each hit that is stale."""
        notes = [self.freshness(hit.memory, now) for hit in found.hits]
        if not any(notes):
            return found
        return replace(found, hits=tuple(replace(hit, note=note) for hit, note in zip(found.hits, notes, strict=True)))

    def is_unconfirmed(self, memory: Memory, now: dt.datetime) -> bool:
        """Whether a memory must be confirmed before it is stated as true."""
        policy = self.of(memory.kind)
        return policy.check == "reconfirm" and policy.is_stale(memory, now)
