"""State that several agents share: a value under a key, changed by compare-and-set, its history journaled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...errors import PositionConflict, StateConflict
from ...journal.events import Draft, check_name
from ...journal.journal import Journal

_TRIES = 100


class Versioned(NamedTuple):
    """A value and the version at which it was read; 0: it was never set."""

    value: Any
    version: int


class AsyncSharedState:
    """One value that several agents change. Every change is an event of the session `state:<key>`."""

    def __init__(self, journal: Journal, key: str) -> None:
        self._journal = journal
        self.key = check_name("state", key)
        self._session = f"state:{key}"

    async def get(self, default: Any = None) -> Versioned:
        """The value as it stands, and its version."""
        reading = self._journal.reader
        head = await reading.head(self._session)
        if not head.position:
            return Versioned(default, 0)
        event = (await reading.events(self._session, head.position, head.position, None))[0]
        return Versioned(event.data, head.position)

    async def at(self, version: int) -> Any:
        """The value as it was at a version."""
        return (await self._journal.reader.events(self._session, version, version, None))[0].data

    async def set(self, value: Any, *, expected: int, actor: str | None = None, key: str | None = None) -> int:
        """Replace the value if it still is at the version `expected`; returns the new version. Raises `StateConflict`:
        a late update is refused; it is neither lost nor written over a newer one. With an idempotency `key` it can be repeated."""
        try:
            events = await self._journal.append(
                self._session, [Draft("state.set", value, actor)], expected=expected, key=key
            )
        except PositionConflict as conflict:
            raise StateConflict(self.key, expected, conflict.actual) from conflict
        return events[0].position

    async def update(self, change: Callable[[Any], Any], *, default: Any = None, actor: str | None = None) -> Versioned:
        """Replace the value by what `change` makes of it; if another writer was first, of theirs. `change` may be called
        several times and must do nothing else."""
        for _ in range(_TRIES):
            value, version = await self.get(default)
            try:
                changed = change(value)
                return Versioned(changed, await self.set(changed, expected=version, actor=actor))
            except StateConflict as conflict:
                last = conflict
        raise last

    async def merge(
        self,
        mine: Any,
        base: Versioned,
        combine: Callable[[Any, Any, Any], Any],
        *,
        actor: str | None = None,
    ) -> Versioned:
        """Set `mine`, made from `base`; if the value has moved since, `combine(base, theirs, mine)` decides."""

        def change(theirs: Any) -> Any:
            return mine if theirs == base.value else combine(base.value, theirs, mine)

        return await self.update(change, default=base.value, actor=actor)
