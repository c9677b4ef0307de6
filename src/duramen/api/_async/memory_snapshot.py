"""Memory as of a time."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from typing import TYPE_CHECKING, Unpack

from ..options import ALL, RecallOptions, Scope

if TYPE_CHECKING:
    from ...memory.catalog.records import Memory, Recalled
    from .memories import AsyncMemories


class AsyncMemorySnapshot:
    """The memory of a workspace as it was at a time. `dm.memory.as_of` returns it."""

    def __init__(self, memories: AsyncMemories, time: int) -> None:
        self._memories = memories
        self._time = time

    async def recall(self, query: str, **options: Unpack[RecallOptions]) -> Recalled:
        """Search what was known then. Takes the options of `dm.memory.recall`."""
        return await self._memories._recall(query, self._time, options)

    async def list(
        self, *, kinds: str | Iterable[str] | None = None, limit: int = ALL, **whose: Unpack[Scope]
    ) -> AsyncGenerator[Memory, None]:
        """Iterate over the memories that were known then, oldest first. See `Scope`."""
        async for memory in self._memories._list(self._time, kinds, limit, whose):
            yield memory
