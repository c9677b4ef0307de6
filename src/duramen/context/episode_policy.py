"""The policy that limits the episodes of a session."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import InvalidInput, shown


@dataclass(frozen=True, slots=True)
class EpisodePolicy:
    """`cap`: episodes per session. `ttl`: seconds after the newest event until they expire. None means no limit."""

    cap: int | None = 1000
    ttl: float | None = 24 * 3600.0

    def __post_init__(self) -> None:
        for name, value in (("cap", self.cap), ("ttl", self.ttl)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0):
                raise InvalidInput(
                    f"`{name}` cannot be {shown(value)}", hint="give a number above 0, or None for no limit"
                )
