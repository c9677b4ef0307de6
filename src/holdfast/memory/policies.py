"""How far a memory is to be trusted as it grows old, by its kind."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from .items import Memory


@dataclass(frozen=True, slots=True)
class Policy:
    """What to do before use, and after how many days it counts as stale; None: never."""

    check: str
    stale_after: int | None


CHECK = "check before use"
POLICIES = {
    "preference": Policy("", None),
    "identity": Policy("", None),
    "fact": Policy(CHECK, 30),
    "procedure": Policy(CHECK, 14),
    "blocker": Policy(CHECK, 14),
    "reference": Policy("must be reconfirmed", 7),
}


def freshness(memory: Memory, now: dt.datetime) -> str:
    """A note on the age of a memory; nothing for one that is fresh, or that does not age."""
    policy = POLICIES.get(memory.kind)
    if policy is None or policy.stale_after is None:
        return ""
    days = (now - memory.confirmed).days
    return f"{days} days old: {policy.check}" if days >= policy.stale_after else ""
