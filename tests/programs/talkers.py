"""Processes that checkpoint states, keep progress and go on from another session: as agents do, and to be killed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import holdfast

from .children import pass_gate

Say = Callable[[str], None]


def state_of(number: int) -> dict[str, Any]:
    """State `number` of an agent: a list that grows and is trimmed, values that change together."""
    talk = [{"turn": turn, "text": f"turn {turn} " * 40} for turn in range(max(0, number - 10), number + 1)]
    return {"n": number, "talk": talk, "deep": {"n": (number,), "config": f"{number // 3} " * 50}}


def checkpoint_states(say: Say, address: str, first: int, count: int) -> None:
    """Checkpoint one state after the other; say the number of each that is stored."""
    with holdfast.open(address) as hf:
        session = hf.session("s")
        for number in range(first, first + count):
            session.checkpoint(state_of(number), next=[number + 1], config={"n": number}, step=number)
            say(str(number))


def complete_steps(say: Say, address: str, path: str | None, steps: list[str], gate: str | None = None) -> None:
    """Set out for a goal, unless that is done, and complete steps; with a file, if one is given."""
    with holdfast.open(address) as hf:
        progress = hf.session("s").progress
        kept = progress.keep_in(path) if path is not None else progress
        if gate is not None:
            say("ready")
            pass_gate(gate)
        kept.begin("Ship it", next_action="the next one")
        for step in steps:
            kept.complete(step)
            say(step)


def go_on(say: Say, address: str, new: str, old: str, gate: str | None = None) -> None:
    """Say something in a session that continues another; say what the model sees."""
    with holdfast.open(address) as hf:
        session = hf.session(new, continues=old)
        if gate is not None:
            say("ready")
            pass_gate(gate)
        session.say("user", "Go on, please.")
        say(repr(session.context().memory))
