"""How one core serves two faces: blocking work runs in place, or on threads beside an event loop.

The core is written as coroutines. `Blocking` never suspends, so `drive` can step a coroutine by hand;
`Looping` moves blocking work to a few threads and suspends until it is done. Under `drive` it works in place too: plain
code that runs beside an event loop, such as a step, reaches the same store.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import Any, Protocol, TypeVar, cast

from .errors import SuspendedInSync

T = TypeVar("T")
U = TypeVar("U")


class _Thread(threading.local):
    driving = 0
    acting_for: int | None = None


_thread = _Thread()


def is_driven() -> bool:
    """Whether this thread steps a coroutine by hand, which must not suspend."""
    return _thread.driving > 0


def who() -> int:
    """The thread that waits for what is done here: this one, or the one that it works for."""
    return _thread.acting_for or threading.get_ident()


@contextmanager
def on_a_loop() -> Iterator[None]:
    """Inside, an event loop runs in this thread although it is driven: what runs there may suspend again."""
    before, _thread.driving = _thread.driving, 0
    try:
        yield
    finally:
        _thread.driving = before


async def aside(work: Callable[[], T]) -> T:
    """Do blocking work that is no store's: in place under `drive`, else on a thread while the event loop goes on."""
    return work() if is_driven() else await asyncio.to_thread(work)


async def meanwhile(work: Callable[[], T], other: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Do blocking work, and something else of ours until it is done; what both give. Raises what either raises, when
    both have ended. Under `drive` the work is done in place, as it may be the user's and need this very thread, and a
    thread beside it does the other."""
    if is_driven():
        with ThreadPoolExecutor(1, thread_name_prefix="duramen-meanwhile") as threads:
            try:
                done = threads.submit(copy_context().run, _act_for, who(), other)
            except RuntimeError:  # no new threads: the interpreter is about to end
                beside = await other
                return work(), beside
            result = work()
            return result, done.result()
    result, beside = await asyncio.gather(asyncio.to_thread(work), other, return_exceptions=True)
    for one in (beside, result):
        if isinstance(one, BaseException):
            raise one
    return cast("T", result), cast("U", beside)


def _act_for(thread: int, coroutine: Coroutine[Any, Any, T]) -> T:
    _thread.acting_for = thread
    return drive(coroutine)


async def pause(seconds: float) -> None:
    """Let some time pass."""
    if is_driven():
        time.sleep(seconds)
    else:
        await asyncio.sleep(seconds)


class Lock:
    """One at a time, threads and coroutines alike, for work that would otherwise be done in vain. It is a courtesy, not
    a lock: whoever waited too long goes on without."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def take(self, longest: float = 1.0) -> bool:
        """Wait for the turn; whether it came."""
        if is_driven():
            return self._lock.acquire(timeout=longest)
        until = time.monotonic() + longest
        while not self._lock.acquire(blocking=False):
            if time.monotonic() > until:
                return False
            await asyncio.sleep(0.0002)
        return True

    def give_back(self) -> None:
        """The next one, please. Only after `take` said yes."""
        self._lock.release()


class Notifier:
    """Counts rings and wakes whoever waits for the next one. Ring it from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._sleepers = 0
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self.notices = 0

    def notify(self) -> None:
        """Wake all who wait."""
        # Without the lock, two that ring at once may count as one: what both did can be seen before the count moves.
        # Whoever waits says so before looking at the count, so one of the two sees the other.
        self.notices += 1
        if self._sleepers or self._waiting:
            self._wake()

    def _wake(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._condition.notify_all()
        for loop, future in waiting:
            with suppress(RuntimeError):  # the loop was closed: nobody there waits any more
                loop.call_soon_threadsafe(_settle, future)

    def wait_blocking(self, seen: int, timeout: float) -> bool:
        """Block until the count differs from `seen`; False if `timeout` passed first."""
        with self._condition:
            self._sleepers += 1
            try:
                return self._condition.wait_for(lambda: self.notices != seen, timeout)
            finally:
                self._sleepers -= 1

    async def wait_looping(self, seen: int, timeout: float) -> bool:
        """Suspend until the count differs from `seen`; False if `timeout` passed first."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        entry = (loop, future)
        with self._condition:
            self._waiting.append(entry)
        try:
            if self.notices != seen:
                return True
            await asyncio.wait_for(future, timeout)
        except TimeoutError:
            return self.notices != seen
        finally:
            with self._condition:
                if entry in self._waiting:
                    self._waiting.remove(entry)
        return True


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class Runtime(Protocol):
    """What a store needs in order to serve either face."""

    looping: bool

    async def run(self, work: Callable[[], T]) -> T:
        """Do blocking work: in place, or on a thread while the loop goes on."""
        ...

    async def wait(self, notifier: Notifier, seen: int, timeout: float) -> bool:
        """Wait for the notifier to ring past `seen`."""
        ...

    def close(self) -> None:
        """End the threads."""
        ...


class Blocking:
    """Everything happens in the calling thread; nothing ever suspends."""

    looping = False

    async def run(self, work: Callable[[], T]) -> T:
        return work()

    async def wait(self, notifier: Notifier, seen: int, timeout: float) -> bool:
        return notifier.wait_blocking(seen, timeout)

    def close(self) -> None:
        """Nothing to end."""


class Looping:
    """Blocking work happens on a few threads, so that the event loop goes on."""

    looping = True

    def __init__(self, threads: int = 8) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="duramen")

    async def run(self, work: Callable[[], T]) -> T:
        if is_driven():
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def wait(self, notifier: Notifier, seen: int, timeout: float) -> bool:
        if is_driven():
            return notifier.wait_blocking(seen, timeout)
        return await notifier.wait_looping(seen, timeout)

    def close(self) -> None:
        self._pool.shutdown(wait=False)


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends and return its result."""
    _thread.driving += 1
    try:
        coroutine.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    finally:
        _thread.driving -= 1
    coroutine.close()
    raise SuspendedInSync("a store suspended in the blocking face", hint="report this: it is a bug in the store")


def drive_each(stream: AsyncIterator[T]) -> Iterator[T]:
    """Iterate over an asynchronous iterator that never suspends."""
    try:
        while True:
            try:
                yield drive(_next(stream))
            except StopAsyncIteration:
                return
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            with suppress(RuntimeError):  # it hangs where it suspended, and that is what is being raised
                drive(close())


async def _next(stream: AsyncIterator[T]) -> T:
    return await anext(stream)
