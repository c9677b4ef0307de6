"""Sync and async calls on both kinds of handle."""

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
    """The journal of a handle, and methods to use it without blocking the event loop."""

    def __init__(self, handle: Duramen | AsyncDuramen) -> None:
        if not isinstance(handle, Duramen | AsyncDuramen):
            raise InvalidInput(
                f"{type(handle).__name__} is not a duramen handle",
                hint="pass the handle that duramen.open() or duramen.aopen() returned",
            )
        self._looping = isinstance(handle, AsyncDuramen)
        self.journal: Journal = (handle if isinstance(handle, AsyncDuramen) else handle._core)._journal

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Await the work on the event loop, or run it on a thread if the handle is sync. Returns its result."""
        return await work if self._looping else await asyncio.to_thread(drive, work)

    async def iterate(self, stream: AsyncGenerator[T, None]) -> AsyncIterator[T]:
        """Yield the items of a stream, each as by `run`."""
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
