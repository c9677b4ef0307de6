"""Memory as of a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import TYPE_CHECKING, Unpack

from ..options import ALL, RecallOptions, Scope

if TYPE_CHECKING:
    from ...memory.catalog.records import Memory, Recalled
    from .memories import AsyncMemories


class AsyncMemorySnapshot:
    """What was known at a time."""

    def __init__(self, memories: AsyncMemories, time: int) -> None:
        self._memories = memories
        self._time = time

    async def recall(self, query: str, **options: Unpack[RecallOptions]) -> Recalled:
        """What was known then that fits a query."""
        return await self._memories._recall(query, self._time, options)

    async def list(
        self, *, kinds: str | Iterable[str] | None = None, limit: int = ALL, **whose: Unpack[Scope]
    ) -> AsyncGenerator[Memory, None]:
        """What was known then."""
        async for memory in self._memories._list(self._time, kinds, limit, whose):
            yield memory
