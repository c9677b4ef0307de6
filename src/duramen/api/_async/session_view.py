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
    """A session up to a position: what was known then."""

    def __init__(self, session: AsyncSession, position: int) -> None:
        self._session = session
        self.position = position

    def events(self, **options: Unpack[ReadOptions]) -> AsyncGenerator[Event, None]:
        """The events that there were."""
        stop = options.get("stop")
        options["stop"] = self.position if stop is None else min(self.position, check_whole("stop", stop, 0))
        return self._session.events(**options)

    async def context(self, *, system: str = "", **changes: Unpack[WindowChanges]) -> Context:
        """What the model saw then."""
        return await self._session.context(at=self.position, system=system, **changes)

    async def state(self) -> Checkpoint | None:
        """The newest checkpoint that there was."""
        return await self._session.state(at=self.position)

    async def fork(self, session: str) -> AsyncSession:
        """A new session that continues from here."""
        return await self._session.fork(session, at=self.position)
