"""A process that extracts memories from turns with a model (write-back)."""

from __future__ import annotations

from collections.abc import Callable

import duramen
from duramen.memory import memory_service  # noqa: F401 - imported once, not in each child
from duramen.models import openai  # noqa: F401
from duramen.testing.clock import FakeClock

TURNS = (
    "Could you write the report for April?",
    "Our Lisbon office invoices the members of the guild quarterly, by the way.",
    "It is 45 days for the members there, by our rule.",
    "Please never write to me on Sundays.",
    "Thanks, that is all.",
)


def take_turns(dm: duramen.Duramen, session: str = "s", subject: str | None = "ada") -> None:
    """A conversation with facts that only a model finds."""
    for number, text in enumerate(TURNS):
        dm.session(session).turn(text, model=lambda context: "I see.", subject=subject, id=str(number))


def write_back_with_model(say: Callable[[str], None], address: str, url: str, later: float) -> None:
    """Write everything back with a model at `url`. The clock is `later` seconds ahead."""
    clock = FakeClock()
    clock.advance(later)
    model = f"openai:small@{url}/v1"
    with duramen.open(address, embedder="none", write_back=False, model=model, clock=clock) as dm:
        say(str(dm.memory.write_back()))
