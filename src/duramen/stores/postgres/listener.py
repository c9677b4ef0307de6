"""LISTEN: a connection of its own that rings a bell whenever some process appended."""

from __future__ import annotations

import threading

import psycopg

from ...runtime import Bell
from .connection import Connection, PostgresSettings, connect


class Listener:
    """Started by the first follower. Lost connections are made again; each time the bell rings, because
    something may have been missed."""

    def __init__(self, settings: PostgresSettings, bell: Bell, runs_bell: Bell) -> None:
        self._settings = settings
        self._bell = bell
        self._runs_bell = runs_bell
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
                    self._bell.ring()
                    self._runs_bell.ring()
                    self._hear(connection)
            except psycopg.Error:
                self._stopping.wait(0.2)

    def _hear(self, connection: Connection) -> None:
        while not self._stopping.is_set():
            for told in connection.notifies(timeout=0.5, stop_after=1):
                self._bell.ring()
                if told.payload == "runs":
                    self._runs_bell.ring()

    def stop(self) -> None:
        """End the thread and its connection."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
