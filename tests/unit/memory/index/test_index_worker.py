"""The background threads that index and write back stop at once."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from programs.child_processes import until

import duramen


class StopWhileClearing(threading.Event):
    """Stops its worker just before the wake-up event is cleared, as another thread can."""

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
def test_a_worker_that_is_stopped_at_any_moment_ends_at_once(worker: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("index.index_worker", "knowledge.write_back"):
        monkeypatch.setattr(f"duramen.memory.{module}._LOOK_EVERY", 600.0)
    with duramen.open("memory:", embedder="none") as dm:
        service = dm.memory._core._service
        stopped = getattr(service, worker)
        before, stopped._wake = stopped._wake, StopWhileClearing(stopped)
        before.set()  # the thread may wait for it already
        stopped.wake()
        until(lambda: stopped._thread is not None and not stopped._thread.is_alive(), "the end of the thread")
