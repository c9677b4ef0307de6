"""How one implementation serves the sync and the async API.

The core is written as coroutines. `Blocking` does blocking work in the calling thread and never suspends, so `drive`
can run a coroutine without an event loop. `Looping` moves blocking work to a few threads and suspends until it is done.
Under `drive`, `Looping` also works in the calling thread: sync code that an event loop started, such as a step, can use
the same store.
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
    """Whether `drive` runs a coroutine in this thread. That coroutine must not suspend."""
    return _thread.driving > 0


def waiting_thread() -> int:
    """The id of the thread that waits for this work: this one, or the one that this one works for."""
    return _thread.acting_for or threading.get_ident()


@contextmanager
def suspension_allowed() -> Iterator[None]:
    """Within this context, coroutines may suspend even under `drive`, because an event loop runs in this thread."""
    before, _thread.driving = _thread.driving, 0
    try:
        yield
    finally:
        _thread.driving = before


async def run_blocking(work: Callable[[], T]) -> T:
    """Do blocking work that is not the store's: in this thread under `drive`, otherwise on another thread."""
    return work() if is_driven() else await asyncio.to_thread(work)


async def run_alongside(work: Callable[[], T], other: Coroutine[Any, Any, U]) -> tuple[T, U]:
    """Do blocking work and run a coroutine at the same time, and return both results.

    If one of them raises, the error is raised after both have ended. Under `drive` the work stays in this thread,
    because it may be user code that depends on its thread; the coroutine runs on another thread.
    """
    if is_driven():
        with ThreadPoolExecutor(1, thread_name_prefix="duramen-alongside") as threads:
            try:
                done = threads.submit(copy_context().run, _act_for, waiting_thread(), other)
            except RuntimeError:  # no new threads: the interpreter is about to end
                first = await other
                return work(), first
            result = work()
            return result, done.result()
    result, answer = await asyncio.gather(asyncio.to_thread(work), other, return_exceptions=True)
    for one in (answer, result):
        if isinstance(one, BaseException):
            raise one
    return cast("T", result), cast("U", answer)


def _act_for(thread: int, coroutine: Coroutine[Any, Any, T]) -> T:
    _thread.acting_for = thread
    return drive(coroutine)


async def pause(seconds: float) -> None:
    """Sleep: block under `drive`, otherwise suspend."""
    if is_driven():
        time.sleep(seconds)
    else:
        await asyncio.sleep(seconds)


class Lock:
    """A lock for threads and coroutines. It is advisory: a caller whose `acquire` timed out continues without it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def acquire(self, timeout: float = 1.0) -> bool:
        """Wait for the lock. Returns False after `timeout` seconds."""
        if is_driven():
            return self._lock.acquire(timeout=timeout)
        until = time.monotonic() + timeout
        while not self._lock.acquire(blocking=False):
            if time.monotonic() > until:
                return False
            await asyncio.sleep(0.0002)
        return True

    def release(self) -> None:
        """Release the lock. Call it only after `acquire` returned True."""
        self._lock.release()


class Notifier:
    """Counts notices and wakes waiting threads and coroutines. Any thread may call `notify`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._sleepers = 0
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self.notices = 0

    def notify(self) -> None:
        """Wake all waiters."""
        # Without the lock, two concurrent notices may count as one. That is harmless: the changes that they announce
        # are visible before the count changes. A waiter registers before it reads the count, so it misses no notice.
        self.notices += 1
        if self._sleepers or self._waiting:
            self._wake()

    def _wake(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._condition.notify_all()
        for loop, future in waiting:
            with suppress(RuntimeError):  # the loop is closed: nothing waits there
                loop.call_soon_threadsafe(_settle, future)

    def wait_blocking(self, seen: int, timeout: float) -> bool:
        """Block until the count differs from `seen`. Returns False after `timeout` seconds."""
        with self._condition:
            self._sleepers += 1
            try:
                return self._condition.wait_for(lambda: self.notices != seen, timeout)
            finally:
                self._sleepers -= 1

    async def wait_looping(self, seen: int, timeout: float) -> bool:
        """Suspend until the count differs from `seen`. Returns False after `timeout` seconds."""
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
    """How a store does blocking work: `Blocking` for the sync API, `Looping` for the async API."""

    looping: bool

    async def run(self, work: Callable[[], T]) -> T:
        """Do blocking work, in this thread or on another one, and return its result."""
        ...

    async def wait(self, notifier: Notifier, seen: int, timeout: float) -> bool:
        """Wait until the count of the notifier differs from `seen`. Returns False after `timeout` seconds."""
        ...

    def close(self) -> None:
        """End the threads."""
        ...


class Blocking:
    """Does everything in the calling thread. Nothing suspends."""

    looping = False

    async def run(self, work: Callable[[], T]) -> T:
        return work()

    async def wait(self, notifier: Notifier, seen: int, timeout: float) -> bool:
        return notifier.wait_blocking(seen, timeout)

    def close(self) -> None:
        """There are no threads to end."""


class Looping:
    """Does blocking work on a few threads, so that the event loop continues."""

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
    raise SuspendedInSync(
        "A sync call tried to await. This is a bug in the store.", hint="report it to the authors of the store"
    )


def drive_iterator(stream: AsyncIterator[T]) -> Iterator[T]:
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
            with suppress(RuntimeError):  # it suspended and cannot be closed; SuspendedInSync is being raised
                drive(close())


async def _next(stream: AsyncIterator[T]) -> T:
    return await anext(stream)
