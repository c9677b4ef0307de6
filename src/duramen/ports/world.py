"""Small ports: clock, ids, outlets, models, token counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Clock(Protocol):
    """The source of time. It may differ from the clocks of other machines, and may go back."""

    def now(self) -> int:
        """The current time in microseconds since 1970 in UTC."""
        ...


class Ids(Protocol):
    """The source of random bytes for ids, salts, nonces and keys."""

    def random(self, size: int) -> bytes:
        """`size` unpredictable bytes. Values of 12 bytes or more never repeat, because they are used as nonces."""
        ...


class Outlet(Protocol):
    """A copy of the journal outside the store, such as files, Redis or S3.

    `apply` receives events in feed order. Events count as delivered when it returns. If it raises, or the process dies
    before the cursor is stored, it receives the same events again, so it must be idempotent. `name` identifies the
    durable cursor.
    """

    name: str

    def apply(self, events: Sequence[Any]) -> None:
        """Apply these events."""
        ...


class Model(Protocol):
    """A language model that answers one prompt. Its method blocks and may be called from any thread.

    `complete` returns the text of the answer unchanged. It raises `ModelFailed` for any failure: no connection, a
    timeout, a server error, a refusal, an answer without text. It gives up after its own timeout, retries included, so
    that the caller can continue without it.
    """

    name: str

    def complete(self, prompt: str, *, system: str = "", max_tokens: int = 512) -> str:
        """The model's answer, of at most `max_tokens` tokens."""
        ...


class TokenCounter(Protocol):
    """Counts the tokens of a text as a model would. The same text gives the same number in every process. The number is
    never lower than what the model charges. `name` identifies the way of counting."""

    name: str

    def count(self, text: str) -> int:
        """The number of tokens of the text."""
        ...
