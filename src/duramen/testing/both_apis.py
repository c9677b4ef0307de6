"""One test for both APIs: stepped by hand on the blocking runtime, and on an event loop."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import wraps
from typing import Any

from ..api._async.duramen import AsyncDuramen
from ..api.open import open_on
from ..api.settings import Settings
from ..journal.events import Event
from ..runtime import Blocking, Looping, drive
from .clock import FakeClock

Body = Callable[..., Coroutine[Any, Any, None]]


class Opener:
    """Opens handles on the store under test, and closes them at the end."""

    def __init__(self, address: str, looping: bool) -> None:
        self._address = address
        self._looping = looping
        self._opened: list[AsyncDuramen] = []
        self.clock = FakeClock()

    async def __call__(self, **settings: Any) -> AsyncDuramen:
        chosen: Settings = {"clock": self.clock, **settings}  # type: ignore[typeddict-item]
        handle = await open_on(Looping() if self._looping else Blocking(), self._address, chosen)
        self._opened.append(handle)
        return handle

    async def together(self, *work: Awaitable[Any]) -> list[Any]:
        """Run at the same time where there is a loop, else one after the other."""
        if self._looping:
            return list(await asyncio.gather(*work, return_exceptions=True))
        return [await _caught(one) for one in work]

    async def racing(self, *work: Coroutine[Any, Any, Any]) -> list[Any]:
        """Run at the same time: on the loop, or each in a thread of its own."""
        if self._looping:
            return await self.together(*work)
        with ThreadPoolExecutor(len(work)) as threads:
            return list(threads.map(lambda one: drive(_caught(one)), work))

    async def close(self) -> None:
        for handle in self._opened:
            await handle.close()


async def _caught(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - the test looks at it
        return error


def both_apis(body: Body) -> Callable[..., None]:
    """Run a coroutine test stepped by hand or on an event loop, as the `looping` fixture says."""

    @wraps(body)
    def test(self: Any, opener: Opener, looping: bool) -> None:
        async def whole() -> None:
            try:
                await body(self, opener)
            finally:
                await opener.close()

        if looping:
            asyncio.run(whole())
        else:
            drive(whole())

    test.__signature__ = inspect.signature(_shape)  # type: ignore[attr-defined]
    return test


def _shape(self: Any, opener: Opener, looping: bool) -> None: ...


async def collect(events: Any) -> list[Event]:
    """All events of an iterator."""
    return [event async for event in events]
