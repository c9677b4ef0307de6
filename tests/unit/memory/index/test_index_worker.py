"""The threads that index and write back: they end when they should."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from programs.child_processes import until

import duramen


class StoppedWhileClearing(threading.Event):
    """Stops its worker right before the wake-up is cleared, as another thread can."""

    def __init__(self, worker: Any) -> None:
        super().__init__()
        self._worker = worker

    def clear(self) -> None:
        if self._worker._thread is threading.current_thread():
            super().clear()
            threading.Thread(target=self._worker.stop).start()
            until(self.is_set, "the wake-up of stop")
        super().clear()


@pytest.mark.parametrize("worker", ["index_worker", "write_back"])
def test_a_worker_stopped_at_any_moment_ends_at_once(worker: str) -> None:
    with duramen.open("memory:", embedder="none") as dm:
        service = dm.memory._core._service
        stopped = getattr(service, worker)
        before, stopped._wake = stopped._wake, StoppedWhileClearing(stopped)
        before.set()  # if the thread runs already, it waits there
        stopped.wake()
        until(lambda: stopped._thread is not None and not stopped._thread.is_alive(), "the end of the thread", within=2)
