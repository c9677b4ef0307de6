"""What counts as an episode, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InvalidInput


@dataclass(frozen=True, slots=True)
class EpisodePolicy:
    """How many episodes a session has, and for how many seconds after the last one they count. None: no end."""

    cap: int | None = 1000
    ttl: float | None = 24 * 3600.0

    def __post_init__(self) -> None:
        for name, value in (("cap", self.cap), ("ttl", self.ttl)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0):
                raise InvalidInput(f"{value!r} cannot be `{name}`", hint="give a number above 0, or None for no end")
