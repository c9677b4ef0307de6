"""Journals the hand-off at the start of a session that continues another one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from ..runtime import Lock
from .services import Services

if TYPE_CHECKING:
    from .handoff import Handoff

OpenWork = Callable[[str], Awaitable[tuple[Sequence[str], Sequence[str]]]]
"""The open questions of a session's runs, and their steps in doubt."""

_PATIENCE = 30.0
"""Seconds to wait for another call that journals the hand-off of the same session."""


class Continuation:
    """Journals the hand-off from the session that this one continues: once, before any other event of this session."""

    def __init__(self, services: Services, session: str, open_work: OpenWork, continues: str | None) -> None:
        self._services = services
        self._session = session
        self._open_work = open_work
        self._continues = continues
        self._lock = Lock()

    @property
    def is_pending(self) -> bool:
        """Whether `begin` still has something to journal."""
        return self._continues is not None

    async def begin(self) -> None:
        """Journal the hand-off if one is pending. Raises `InvalidInput` if the session continues a different one."""
        if self._continues is None:
            return
        acquired = await self._lock.acquire(_PATIENCE)
        try:
            if self._continues is not None:
                await self._journal_handoff(self._continues)
                self._continues = None
        finally:
            if acquired:
                self._lock.release()

    async def _journal_handoff(self, old: str) -> None:
        handoffs = self._services.handoffs
        begun = await handoffs.begun(self._session)
        if begun is not None and begun.session != old:
            from .handoff import already_continues

            raise already_continues(self._session, begun.session)
        if begun is None:
            await handoffs.begin(self._session, await self._handoff_of(old))

    async def handoff(self) -> Handoff:
        """The hand-off for a session that continues this one."""
        await self.begin()
        return await self._handoff_of(self._session)

    async def _handoff_of(self, session: str) -> Handoff:
        return await self._services.handoffs.of(session, *await self._open_work(session))
