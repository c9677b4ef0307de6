"""One thread for each handle that keeps the leases of its runs, and writes outcomes that have waited for a moment."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from ...errors import DuramenError, LeaseLost
from ...runtime import drive
from .run_context import RunContext

if TYPE_CHECKING:
    from .engine import Engine

_LOOK = 0.05
"""Seconds between looks: an outcome that nothing follows is durable after at most twice as long."""


class Keeper:
    """Looks after the runs that this handle executes."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._mutex = threading.Lock()
        self._kept: dict[RunContext, float] = {}
        self._some = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextmanager
    def keeping(self, run: RunContext) -> Iterator[None]:
        """Look after a run meanwhile."""
        self._add(run)
        try:
            yield
        finally:
            self._remove(run)

    def _add(self, run: RunContext) -> None:
        with self._mutex:
            self._kept[run] = time.monotonic()
            if self._thread is None:
                self._thread = threading.Thread(target=self._keep, name="duramen-keeper", daemon=True)
                self._thread.start()
        self._some.set()

    def _remove(self, run: RunContext) -> None:
        with self._mutex:
            self._kept.pop(run, None)
            if not self._kept and not self._closed:
                self._some.clear()

    def _keep(self) -> None:
        while not self._closed:
            self._some.wait()
            time.sleep(_LOOK)
            now = time.monotonic()
            with self._mutex:
                kept = list(self._kept.items())
            for run, renewed in kept:
                if run.pending_since is not None and now - run.pending_since > _LOOK:
                    run.flush_from()
                if now - renewed > self._engine.lease_seconds / 3:
                    self._renew(run, now)

    def _renew(self, run: RunContext, now: float) -> None:
        if run.fence is None or run.broken is not None:
            return
        try:
            drive(self._engine.journal.renew(run.row.session, run.fence, self._engine.lease_seconds))
        except LeaseLost as lost:
            run.broken = run.broken or lost
        except DuramenError:
            return  # the store is away: until the lease has run out, there is time to try again
        with self._mutex:
            if run in self._kept:
                self._kept[run] = now

    def close(self) -> None:
        """End the thread."""
        with self._mutex:
            self._closed = True
        self._some.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=5)
