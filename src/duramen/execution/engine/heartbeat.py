"""One thread per handle that renews the leases of its runs and syncs outcomes that no synced write followed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import LeaseLost
from ...runtime import drive
from .run_context import RunContext

if TYPE_CHECKING:
    from .engine import Engine

log = logging.getLogger("duramen")
_INTERVAL = 0.025
"""Seconds between beats. A beat syncs outcomes of at least this age, so an outcome waits at most twice as long."""


class Heartbeat:
    """Renews leases and syncs outcomes for the runs that one handle executes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        self._runs: dict[RunContext, float] = {}
        """The time of the last renewal, by run."""
        self._some = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextmanager
    def watching(self, run: RunContext) -> Iterator[None]:
        """Renew and sync this run until the block ends."""
        with self._mutex:
            self._runs[run] = time.monotonic()
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="duramen-heartbeat", daemon=True)
                self._thread.start()
        self._some.set()
        try:
            yield
        finally:
            with self._mutex:
                self._runs.pop(run, None)
                if not self._runs and not self._closed:
                    self._some.clear()

    def _beat(self) -> None:
        while not self._closed:
            self._some.wait()
            time.sleep(_INTERVAL)
            now = time.monotonic()
            with self._mutex:
                runs = list(self._runs.items())
            for run, renewed in runs:
                if now - renewed > self._engine.lease_seconds / 3:
                    self._renew(run, now)
            self._sync([run for run, _ in runs], now - _INTERVAL)

    def _renew(self, run: RunContext, now: float) -> None:
        fence = run.journal.fence
        if fence is None or run.journal.broken is not None:
            return
        try:
            drive(self._engine.journal.renew(run.row.session, fence, self._engine.lease_seconds))
        except LeaseLost as lost:
            run.journal.break_off(lost)
        except Exception as error:  # noqa: BLE001 - the other runs still need this thread
            log.debug("the lease of run %s could not be renewed, will try again: %s", run.row.run, error)
            return  # the next beats try again until the lease expires
        with self._mutex:
            if run in self._runs:
                self._runs[run] = now

    def _sync(self, runs: list[RunContext], before: float) -> None:
        """Sync the store once if a run has unsynced outcomes that are older than `before`."""
        waiting = [(run.journal, run.journal.unsynced_since) for run in runs]
        due = [(journal, since) for journal, since in waiting if since is not None and since <= before]
        if not due:
            return
        for journal, _ in due:
            journal.unsynced_since = None  # reset before the sync, which does not cover later commits
        try:
            drive(self._engine.journal.store.sync())
        except Exception as error:  # noqa: BLE001 - the thread must continue
            log.debug("outcomes could not be synced, will try again: %s", error)
            for journal, since in due:
                journal.unsynced_since = since

    def close(self) -> None:
        """End the thread."""
        with self._mutex:
            self._closed = True
        self._some.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)
