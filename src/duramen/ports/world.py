"""Ports to the rest of the world: clock, ids, outlets, models, token counters."""

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
        """`size` unpredictable bytes."""
        ...


class Outlet(Protocol):
    """Something outside the store that is derived from the journal.

    `apply` gets events in feed order. After a crash it may get the last batch again, so it must be idempotent. Events
    count as delivered when it returns.
    """

    name: str

    def apply(self, events: Sequence[Any]) -> None:
        """Apply these events."""
        ...


class Model(Protocol):
    """A language model that answers one prompt. Blocks; called from any thread.

    `complete` returns the text of the answer unchanged. It raises `ModelFailed` for any failure: no connection, a
    timeout, a server error, a refusal, an answer without text. It does not retry for longer than its own timeout, so
    that the caller can continue without it.
    """

    name: str

    def complete(self, prompt: str, *, system: str = "", max_tokens: int = 512) -> str:
        """The model's answer, of at most `max_tokens` tokens."""
        ...


class TokenCounter(Protocol):
    """Counts the tokens of a text as a model would. The same text gives the same number in every process, and never less
    than the model charges. `name` identifies the way of counting."""

    name: str

    def count(self, text: str) -> int:
        """How many tokens the text takes."""
        ...
