"""LISTEN: a separate connection that calls a notifier when a process has appended.

A process notifies itself of its own appends after each commit. Receiving each of them from the server too would cost
about as much as the append. So the listener pauses between two notifications.
"""

from __future__ import annotations

import threading

import psycopg

from ...runtime import Notifier
from .connection import Connection, PostgresSettings, connect

RUNS = "runs"
"""The payload of a notification about a run."""
_PAUSE = 0.01


class Listener:
    """Listens in a thread, which the first follower starts. It reconnects after a lost connection. After each connect
    it calls the notifiers, because it may have missed a notification."""

    def __init__(self, settings: PostgresSettings, notifier: Notifier, runs_notifier: Notifier) -> None:
        self._settings = settings
        self._notifier = notifier
        self._runs_notifier = runs_notifier
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def start(self) -> None:
        """Start the thread. Returns at once. The second call does nothing."""
        with self._mutex:
            if self._thread is None and not self._stopping.is_set():
                self._thread = threading.Thread(target=self._listen, name="duramen-listen", daemon=True)
                self._thread.start()

    def _listen(self) -> None:
        while not self._stopping.is_set():
            try:
                with connect(self._settings) as connection:
                    connection.execute("LISTEN duramen")
                    self._notifier.notify()
                    self._runs_notifier.notify()
                    self._hear(connection)
            except psycopg.Error:
                self._stopping.wait(0.2)

    def _hear(self, connection: Connection) -> None:
        while not self._stopping.is_set():
            for notice in connection.notifies(timeout=0.5, stop_after=1):
                self._notifier.notify()
                if notice.payload == RUNS:
                    self._runs_notifier.notify()
            self._stopping.wait(_PAUSE)  # notifications that arrive in the pause are read together

    def stop(self) -> None:
        """Stop the thread and close its connection."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
