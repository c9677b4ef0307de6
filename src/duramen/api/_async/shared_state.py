"""Shared state: a value under a key that several agents change by compare-and-set. Every change is journaled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ...errors import InvalidInput, PositionConflict, StateConflict, shown
from ...journal.events import Draft, check_function, check_name, check_whole
from ...journal.journal import Journal

_TRIES = 100


class Versioned(NamedTuple):
    """A value and its version. Version 0 means that it was never set."""

    value: Any
    version: int


class AsyncSharedState:
    """A value that several agents read and change. `dm.state` returns it.

    Every change is an event of the session `state:<key>`.
    """

    def __init__(self, journal: Journal, key: str) -> None:
        self._journal = journal
        self.key = check_name("state", key)
        self._session = f"state:{self.key}"

    async def get(self, default: Any = None) -> Versioned:
        """Return the current value and its version. `default` is the value if it was never set."""
        reading = self._journal.reader
        head = await reading.head(self._session)
        if not head.position:
            return Versioned(default, 0)
        event = (await reading.events(self._session, head.position, head.position, None))[0]
        return Versioned(event.data, head.position)

    async def at(self, version: int) -> Any:
        """Return the value at a version. Raises `InvalidInput` if there is no such version."""
        head = await self._journal.reader.head(self._session)
        if not check_whole("version", version, 1) <= head.position:
            raise InvalidInput(
                f"state {shown(self.key)} has no version {shown(version)}",
                hint=f"its newest version is {head.position}",
            )
        return (await self._journal.reader.events(self._session, version, version, None))[0].data

    async def set(self, value: Any, *, expected: int, actor: str | None = None, key: str | None = None) -> int:
        """Replace the value if its version is `expected`, and return the new version.

        Args:
            value: the new value.
            expected: the version that the caller has read.
            actor: who sets it.
            key: idempotency key. A second call with the same key returns the first version.

        Raises:
            StateConflict: another writer changed the value since. Nothing was stored.
        """
        try:
            events = await self._journal.append(
                self._session, [Draft("state.set", value, actor)], expected=expected, key=key
            )
        except PositionConflict as conflict:
            raise StateConflict(self.key, expected, conflict.actual) from conflict
        return events[0].position

    async def update(self, change: Callable[[Any], Any], *, default: Any = None, actor: str | None = None) -> Versioned:
        """Replace the value by `change(value)`, and return the new value and version.

        If another writer changes the value meanwhile, `change` is called again with the newer value. It must have no
        side effects. Raises `StateConflict` after 100 attempts.
        """
        check_function("change", change)
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
        """Set the value to `mine`, which was made from `base`, and return the new value and version.

        If the value has changed since, `combine(base, theirs, mine)` returns the value to set.
        """
        check_function("combine", combine)
        if not isinstance(base, Versioned):
            raise InvalidInput(f"`base` cannot be {shown(base)}", hint="give what get() returned")

        def change(theirs: Any) -> Any:
            return mine if theirs == base.value else combine(base.value, theirs, mine)

        return await self.update(change, default=base.value, actor=actor)
