"""Time and randomness that a test owns."""

from __future__ import annotations

import random


class FakeClock:
    """A clock that stands until it is moved. Microseconds since 1970, as the port asks."""

    def __init__(self, start: int = 1_700_000_000_000_000) -> None:
        self._now = start

    def now(self) -> int:
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += int(seconds * 1_000_000)


class FakeIds:
    """Bytes that are the same in every run with the same seed. Never use them to seal real data."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def random(self, size: int) -> bytes:
        return self._random.randbytes(size)
