"""The rest of the world: clock, ids, outlets, models, counters of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Clock(Protocol):
    """Where time comes from."""

    def now(self) -> int:
        """Microseconds since 1970 in UTC."""
        ...


class Ids(Protocol):
    """Where unguessable bytes come from."""

    def random(self, size: int) -> bytes:
        """`size` bytes that nobody can predict."""
        ...


class Outlet(Protocol):
    """Something outside the store that is derived from the journal.

    `apply` gets events in feed order and may get the last batch again after a crash: it must be
    idempotent. What it returns from is counted as delivered.
    """

    name: str

    def apply(self, events: Sequence[Any]) -> None:
        """Take these events in."""
        ...


class Model(Protocol):
    """A language model that answers one prompt: what compaction asks of it. Blocks; called from any thread.

    `complete` returns the answer's text as the model gave it. It raises `ModelFailed` for whatever went wrong on the
    way: no connection, a timeout, an error of the server, a refusal, an answer without text. It does not retry for
    longer than its own timeout, so that whoever asked can do without.
    """

    name: str

    def complete(self, prompt: str, *, system: str = "", max_tokens: int = 512) -> str:
        """The model's answer, of at most `max_tokens` tokens."""
        ...


class TokenCounter(Protocol):
    """Counts the tokens of a text as a model would. The same text gives the same number in every process, and the
    count of a text is never less than what the model is charged with. `name` stands for the way of counting."""

    name: str

    def count(self, text: str) -> int:
        """How many tokens the text takes."""
        ...
