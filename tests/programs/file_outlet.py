"""An outlet that writes a file, and functions that deliver to it in a child process."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

import duramen


class FileOutlet:
    """Writes one line for each event. Idempotent: skips events that the file already holds.

    With `die_after`, the process is killed after that many events.
    """

    name = "file"

    def __init__(self, path: Path, die_after: int | None = None) -> None:
        self._path = path
        self._die_after = die_after

    def held(self) -> list[tuple[str, int]]:
        """The events in the file, in order, without an incomplete last line."""
        text = self._path.read_text() if self._path.exists() else ""
        complete = text.rpartition("\n")[0]
        if len(complete) + 1 < len(text):
            os.truncate(self._path, len(complete) + 1 if complete else 0)
        return [(session, position) for session, position, _ in map(json.loads, complete.splitlines())]

    def apply(self, events: Sequence[duramen.Event]) -> None:
        held = set(self.held())
        with self._path.open("a") as file:
            for event in events:
                if (event.session, event.position) not in held:
                    file.write(json.dumps([event.session, event.position, event.data]) + "\n")
                if self._die_after is not None:
                    self._die_after -= 1
                    if self._die_after == 0:
                        file.flush()
                        os.kill(os.getpid(), signal.SIGKILL)
            file.flush()
            os.fsync(file.fileno())


def deliver(say: Callable[[str], None], address: str, path: str, die_after: int | None = None) -> None:
    """Deliver once. Prints the number of events."""
    with duramen.open(address) as store:
        say(str(store.deliver(FileOutlet(Path(path), die_after))))


def deliver_until(say: Callable[[str], None], address: str, path: str, count: int) -> None:
    """Deliver until the file holds `count` events."""
    outlet = FileOutlet(Path(path))
    with duramen.open(address) as store:
        while len(outlet.held()) < count:
            store.deliver(outlet)
