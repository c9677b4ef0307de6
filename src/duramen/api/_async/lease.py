"""The lease on a session."""

from __future__ import annotations

from ...journal.journal import Journal
from ...ports import LeaseRow


class AsyncLease:
    """Ownership of a session for a limited time. It ends when it expires, is released, or another owner takes it
    over."""

    def __init__(self, journal: Journal, session: str, row: LeaseRow) -> None:
        self._journal = journal
        self._session = session
        self._row = row

    @property
    def session(self) -> str:
        """The id of the session."""
        return self._session

    @property
    def owner(self) -> str:
        """The name of the owner."""
        return self._row.owner

    @property
    def fence(self) -> int:
        """The fencing number. Pass it as `fence` to every write."""
        return self._row.fence

    @property
    def expires(self) -> int:
        """When the lease expires, in microseconds since 1970."""
        return self._row.expires

    async def renew(self, *, seconds: float = 30.0) -> None:
        """Extend the lease: it expires this many seconds from now. Raises `LeaseLost` if another owner has taken it
        over."""
        self._row = await self._journal.renew(self.session, self.fence, seconds)

    async def release(self) -> None:
        """Release the session for other owners."""
        await self._journal.store.release(self._journal.workspace, self.session, self.fence)
