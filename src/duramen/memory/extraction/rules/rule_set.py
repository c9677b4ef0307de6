"""Applies all rules to the last turn, and decides which findings count."""

from __future__ import annotations

from collections.abc import Sequence

from .commands import commands
from .denials import denials
from .facts import facts
from .recipes import recipes
from .turns import Finding, TurnRecord

RECENT = 5
"""How many turns the rules read, including the last one."""


def apply_rules(turns: Sequence[TurnRecord]) -> list[Finding]:
    """The findings in the last of these turns, kept or not, each with its reason. The turns before it are context."""
    if not turns:
        return []
    found = [*facts(turns[-1]), *recipes(turns), *denials(turns)]
    known_steps = " ".join(step for one in found if one.keep for step in one.steps)
    procedure_texts = [one.evidence for one in found if one.keep and len(one.steps) > 1]
    for one in commands(turns):
        # A command that is a step of a procedure, or mentioned in its text, is kept with it.
        if not (
            one.keep
            and (one.steps[0].strip("`") in known_steps or any(one.evidence in text for text in procedure_texts))
        ):
            found.append(one)
    return found
