"""Access to the file: many connections for reads, one for writes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import apsw

from ...errors import InvalidInput, StoreClosed, StoreError
from ...runtime import Notifier, Runtime, waiting_thread
from .connection import SqliteSettings, check_readable, connect, translated
from .writer import Writer

T = TypeVar("T")


class Access:
    """Runs the functions of the store's parts on a connection, in this thread or on another one, as the runtime
    decides. Safe to use from several threads."""

    def __init__(self, settings: SqliteSettings, runtime: Runtime) -> None:
        self.settings = settings
        self.runtime = runtime
        self.refusal: StoreError | None = None
        """The error for all further calls: the store was closed, or this is a forked child."""
        self.notifier, self.runs_notifier = Notifier(), Notifier()
        self._idle: list[apsw.Connection] = []
        self._watching = threading.Lock()
        self.writer = Writer(settings, self.notifier, self.runs_notifier)
        try:
            self._watcher = connect(settings)
            if settings.readonly:
                with translated(settings.path):
                    check_readable(self._watcher, settings.path)
        except BaseException:
            self.writer.close()
            raise

    def check(self) -> None:
        """Raise if the store was closed, or belongs to the parent process."""
        if self.refusal is not None:
            raise self.refusal.with_traceback(None)

    def check_writable(self) -> None:
        """The same as `check`. Also raises `InvalidInput` if this thread has a transaction open, because it would wait
        for itself."""
        self.check()
        if self.writer.held_by is not None and self.writer.held_by == waiting_thread():
            raise InvalidInput(
                "this step has a transaction open, and no other write is possible until it ends",
                hint="write through the connection of duramen.transaction(), or in another step",
            )

    async def read(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run a function that only reads. It does not wait for writers."""
        self.check()
        return await self.runtime.run(lambda: self._reading(work))

    def _reading(self, work: Callable[[apsw.Connection], T]) -> T:
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = connect(self.settings)
        try:
            with translated(self.settings.path):
                return work(connection)
        finally:
            self._idle.append(connection)
            if self.refusal is not None:
                self._close_idle()

    async def write(self, work: Callable[[apsw.Connection], T]) -> T:
        """Run a function that writes, in its own transaction. On return it is safe from a power cut."""
        self.check_writable()
        return await self.runtime.run(lambda: self.writer.transaction(work))

    def data_version(self) -> int:
        """A number that changes when another process commits."""
        with self._watching, translated(self.settings.path):
            return int(self._watcher.pragma("data_version"))

    def close(self) -> None:
        """Close every connection."""
        self.refusal = StoreClosed(f"{self.settings.path} was closed", hint="open it again")
        self._close_idle()
        with suppress(apsw.Error):
            self._watcher.close()
        self.writer.close()
        self.notifier.notify()
        self.runs_notifier.notify()

    def _close_idle(self) -> None:
        while self._idle:
            with suppress(apsw.Error):
                self._idle.pop().close()
