"""Ownership of a session."""

from __future__ import annotations

from ...journal.journal import Journal
from ...ports import LeaseRow


class AsyncLease:
    """Ownership of a session until it expires, is released or taken over."""

    def __init__(self, journal: Journal, session: str, row: LeaseRow) -> None:
        self._journal = journal
        self._session = session
        self._row = row

    @property
    def session(self) -> str:
        """The session that is owned."""
        return self._session

    @property
    def owner(self) -> str:
        """The name that the owner gave."""
        return self._row.owner

    @property
    def fence(self) -> int:
        """The number that every write of the owner carries."""
        return self._row.fence

    @property
    def expires(self) -> int:
        """When it ends, in microseconds since 1970."""
        return self._row.expires

    async def renew(self, *, seconds: float = 30.0) -> None:
        """Own it for longer. Raises `LeaseLost`."""
        self._row = await self._journal.renew(self.session, self.fence, seconds)

    async def release(self) -> None:
        """Give it back."""
        await self._journal.store.release(self._journal.workspace, self.session, self.fence)
