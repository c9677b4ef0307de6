"""LISTEN: a connection of its own that rings a notifier whenever some process appended.

This process rings for its own appends as soon as they are committed. To hear of each of them from the server as well
would cost about as much as the append, so the listener pauses between what it hears.
"""

from __future__ import annotations

import threading

import psycopg

from ...runtime import Notifier
from .connection import Connection, PostgresSettings, connect

RUNS = "runs"
"""What is notified if a run changed."""
_PAUSE = 0.01


class Listener:
    """Started by the first follower. Lost connections are made again; each time the notifier rings, because
    something may have been missed."""

    def __init__(self, settings: PostgresSettings, notifier: Notifier, runs_notifier: Notifier) -> None:
        self._settings = settings
        self._notifier = notifier
        self._runs_notifier = runs_notifier
        self._mutex = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def start(self) -> None:
        """Begin to listen; returns at once."""
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
            self._stopping.wait(_PAUSE)  # what comes meanwhile is heard at once

    def stop(self) -> None:
        """End the thread and its connection."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
