"""Time and randomness under the control of a test."""

from __future__ import annotations

import random


class FakeClock:
    """A clock that moves only on `advance`. It counts microseconds since 1970, as the `Clock` port requires."""

    def __init__(self, start: int = 1_700_000_000_000_000) -> None:
        self._now = start

    def now(self) -> int:
        return self._now

    def advance(self, seconds: float) -> None:
        """Move the clock; a negative number moves it back."""
        self._now += int(seconds * 1_000_000)


class FakeIds:
    """Returns the same random bytes for the same seed. Never use it to seal real data."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def random(self, size: int) -> bytes:
        return self._random.randbytes(size)
