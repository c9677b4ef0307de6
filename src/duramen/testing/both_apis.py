"""Runs a coroutine test on both APIs: on the blocking runtime of the sync API, and on an event loop."""

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

TestBody = Callable[..., Coroutine[Any, Any, None]]


class Opener:
    """Opens handles on the store under test. Calling it returns a new handle; `close` closes all of them."""

    def __init__(self, address: str, is_async: bool) -> None:
        self._address = address
        self._is_async = is_async
        self._opened: list[AsyncDuramen] = []
        self.clock = FakeClock()

    async def __call__(self, **settings: Any) -> AsyncDuramen:
        chosen: Settings = {"clock": self.clock, **settings}  # type: ignore[typeddict-item]
        handle = await open_on(Looping() if self._is_async else Blocking(), self._address, chosen)
        self._opened.append(handle)
        return handle

    async def together(self, *work: Awaitable[Any]) -> list[Any]:
        """Run concurrently on an event loop, otherwise one after the other. Returns results and errors, in order."""
        if self._is_async:
            return list(await asyncio.gather(*work, return_exceptions=True))
        return [await _result_or_error(one) for one in work]

    async def racing(self, *work: Coroutine[Any, Any, Any]) -> list[Any]:
        """Run concurrently on the event loop, or each in its own thread. Returns results and errors, in order."""
        if self._is_async:
            return await self.together(*work)
        with ThreadPoolExecutor(len(work)) as threads:
            return list(threads.map(lambda one: drive(_result_or_error(one)), work))

    async def close(self) -> None:
        for handle in self._opened:
            await handle.close()


async def _result_or_error(work: Awaitable[Any]) -> Any:
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - the test checks it
        return error


def both_apis(body: TestBody) -> Callable[..., None]:
    """Run a coroutine test on the API that the `is_async` fixture selects."""

    @wraps(body)
    def test(self: Any, opener: Opener, is_async: bool) -> None:
        async def run() -> None:
            try:
                await body(self, opener)
            finally:
                await opener.close()

        if is_async:
            asyncio.run(run())
        else:
            drive(run())

    test.__signature__ = inspect.signature(_test_signature)  # type: ignore[attr-defined]
    return test


def _test_signature(self: Any, opener: Opener, is_async: bool) -> None: ...


async def collect(events: Any) -> list[Event]:
    """All events of an iterator."""
    return [event async for event in events]
