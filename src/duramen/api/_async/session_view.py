"""A session as it was at a position."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Unpack

from ...journal.events import Event, check_whole
from ..options import ReadOptions, WindowChanges

if TYPE_CHECKING:
    from ...checkpoints.state import Checkpoint
    from ...context.window.context import Context
    from .session import AsyncSession


class AsyncSessionView:
    """A readonly view of a session as it was at a position. `session.at` returns it."""

    def __init__(self, session: AsyncSession, position: int) -> None:
        self._session = session
        self.position = position

    def events(self, **options: Unpack[ReadOptions]) -> AsyncGenerator[Event, None]:
        """Iterate over the events up to the position. See `ReadOptions`."""
        stop = options.get("stop")
        options["stop"] = self.position if stop is None else min(self.position, check_whole("stop", stop, 0))
        return self._session.events(**options)

    async def context(self, *, system: str = "", **changes: Unpack[WindowChanges]) -> Context:
        """Build the context as it was at the position. See `session.context`."""
        return await self._session.context(at=self.position, system=system, **changes)

    async def state(self) -> Checkpoint | None:
        """Return the newest checkpoint at the position; None if there was none."""
        return await self._session.state(at=self.position)

    async def fork(self, session: str) -> AsyncSession:
        """Create a session that continues from the position, and return it. Raises `SessionExists`."""
        return await self._session.fork(session, at=self.position)
