"""`duramen worker`: takes up runs until it is told to stop."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ...api._sync.duramen import Duramen
from ..screen import Screen
from ..terminal_text import visible
from .task_lookup import Found

_STOPPING = (signal.SIGINT, signal.SIGTERM)


def serve(dm: Duramen, found: Found, concurrency: int, until_idle: bool) -> None:
    """Serve what was found. Says on standard error what it does."""
    screen = Screen(stderr=True)
    screen.say(*_greeting(found), "" if until_idle else " Ctrl-C stops.")
    with _logging(screen), _stopping(dm, screen):
        executed = dm.work(
            found.tasks,
            concurrency=concurrency,
            queues=found.queues,
            schedules=found.schedules,
            until_idle=until_idle,
        )
    screen.say(f"Stopped after {executed:,} execution{'' if executed == 1 else 's'}.")


def _greeting(found: Found) -> Iterator[str | tuple[str, str]]:
    tasks = dict.fromkeys([*found.tasks, *(one.task for one in found.schedules)])
    named = {
        "tasks": [one.name if one.version is None else f"{one.name} (version {one.version})" for one in tasks],
        "queues": [one.name for one in found.queues],
        "schedules": [one.name for one in found.schedules],
    }
    yield "Serving"
    before = " "
    for what, names in named.items():
        if names:
            yield f"{before}{what} "
            yield (visible(", ".join(names)), "cyan")
            before = "; "
    yield "."


@contextmanager
def _stopping(dm: Duramen, screen: Screen) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM lets what is under way end; the second leaves at once."""
    ended, asked = threading.Event(), threading.Event()

    def insist() -> None:
        screen.say("Stopping: what is under way ends first. Again to leave at once; those runs go on later.")
        while not ended.is_set():  # more than once: the worker may not have begun yet
            dm.stop_working()
            ended.wait(0.1)

    def stop(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        threading.Thread(target=insist, name="duramen-stop", daemon=True).start()

    before = {number: signal.signal(number, stop) for number in _STOPPING}
    try:
        yield
    finally:
        ended.set()
        for number, handler in before.items():
            signal.signal(number, handler)


class _Telling(logging.Handler):
    """What the library logs, as lines on a screen. It may hold what the world sent."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.INFO)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        style = "yellow" if record.levelno >= logging.WARNING else ""
        text = " ".join(visible(line) for line in record.getMessage().splitlines())
        self._screen.say((text, style))


@contextmanager
def _logging(screen: Screen) -> Iterator[None]:
    """Show what the library logs, unless the tasks' own modules have set logging up."""
    log = logging.getLogger("duramen")
    if log.hasHandlers():
        yield
        return
    handler, level = _Telling(screen), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
