"""`duramen worker`: executes runs until it is stopped."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from ...api._sync.duramen import Duramen
from ..console import PlainConsole
from ..terminal_text import visible
from .task_lookup import Declarations

_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def work(dm: Duramen, declarations: Declarations, concurrency: int, until_idle: bool) -> None:
    """Execute runs of the declared tasks. Prints on standard error what it does."""
    console = PlainConsole(stderr=True)
    console.print_line(*_start_message(declarations), "" if until_idle else " Stop with Ctrl-C.")
    with _log_to_console(console), _stop_on_signal(dm, console):
        executed = dm.work(
            declarations.tasks,
            concurrency=concurrency,
            queues=declarations.queues,
            schedules=declarations.schedules,
            until_idle=until_idle,
        )
    console.print_line(f"Stopped after {executed:,} execution{'' if executed == 1 else 's'}.")


def _start_message(declarations: Declarations) -> Iterator[str | tuple[str, str]]:
    tasks = dict.fromkeys([*declarations.tasks, *(one.task for one in declarations.schedules)])
    named = {
        "tasks": [one.name if one.version is None else f"{one.name} (version {one.version})" for one in tasks],
        "queues": [one.name for one in declarations.queues],
        "schedules": [one.name for one in declarations.schedules],
    }
    yield "Working on"
    before = " "
    for what, names in named.items():
        if names:
            yield f"{before}{what} "
            yield (visible(", ".join(names)), "cyan")
            before = "; "
    yield "."


@contextmanager
def _stop_on_signal(dm: Duramen, console: PlainConsole) -> Iterator[None]:
    """On the first Ctrl-C or SIGTERM, stop after the current runs have ended or wait. On the second, exit at once."""
    ended, requested = threading.Event(), threading.Event()

    def request_stop() -> None:
        console.print_line("Stopping after the current runs. Press Ctrl-C again to stop at once; they continue later.")
        while not ended.is_set():  # repeated, because the worker may not have started yet
            dm.stop_working()
            ended.wait(0.1)

    def stop(number: int, frame: FrameType | None) -> None:
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()
        threading.Thread(target=request_stop, name="duramen-stop", daemon=True).start()

    before = {number: signal.signal(number, stop) for number in _STOP_SIGNALS}
    try:
        yield
    finally:
        ended.set()
        for number, handler in before.items():
            signal.signal(number, handler)


class _ConsoleLogHandler(logging.Handler):
    """Prints the log of the library, escaped: it may contain text from outside."""

    def __init__(self, console: PlainConsole) -> None:
        super().__init__(logging.INFO)
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        style = "yellow" if record.levelno >= logging.WARNING else ""
        text = " ".join(visible(line) for line in record.getMessage().splitlines())
        self._console.print_line((text, style))


@contextmanager
def _log_to_console(console: PlainConsole) -> Iterator[None]:
    """Print the log of the library, unless the modules of the tasks configured logging."""
    log = logging.getLogger("duramen")
    if log.hasHandlers():
        yield
        return
    handler, level = _ConsoleLogHandler(console), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
