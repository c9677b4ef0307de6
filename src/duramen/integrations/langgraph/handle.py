"""Either kind of handle behind either kind of call: blocking calls on an asynchronous handle, and the reverse."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from typing import Any, TypeVar

from ...api._async.duramen import AsyncDuramen
from ...api._sync.duramen import Duramen
from ...errors import InvalidInput
from ...journal.journal import Journal
from ...runtime import drive

T = TypeVar("T")


class HandleAdapter:
    """A handle's journal, and how an event loop gets at it without being blocked."""

    def __init__(self, handle: Duramen | AsyncDuramen) -> None:
        if not isinstance(handle, Duramen | AsyncDuramen):
            raise InvalidInput(
                f"{type(handle).__name__} is no handle", hint="give what duramen.open or duramen.aopen returned"
            )
        self._looping = isinstance(handle, AsyncDuramen)
        self.journal: Journal = (handle if isinstance(handle, AsyncDuramen) else handle._core)._journal

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it on the event loop, or on a thread if the handle blocks."""
        return await work if self._looping else await asyncio.to_thread(drive, work)

    async def iterate(self, stream: AsyncGenerator[T, None]) -> AsyncIterator[T]:
        """The same for each item of a stream."""
        try:
            while True:
                try:
                    item = await self.run(_next(stream))
                except StopAsyncIteration:
                    return
                yield item
        finally:
            await self.run(_close(stream))


async def _next(stream: AsyncGenerator[T, None]) -> T:
    return await anext(stream)


async def _close(stream: AsyncGenerator[T, None]) -> None:
    await stream.aclose()
