"""Interrupts an append at every place where Python can handle a signal, and checks that the store still works."""

from __future__ import annotations

import faulthandler
import json
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Self

import duramen
from duramen import crash_points as crashpoints
from duramen.errors import DuramenError

HANG_SECONDS = 15


class Interrupt:
    """Raises KeyboardInterrupt at the n-th place where Python can handle a signal: when a function is entered, and when
    a built-in function has returned."""

    def __init__(self, nth: int) -> None:
        self._left = nth

    def __enter__(self) -> Self:
        sys.setprofile(self._count_down)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _count_down(self, frame: Any, event: str, what: Any) -> None:
        del frame, what  # so that the traceback does not hold references to them
        if event in ("call", "c_return"):
            self._left -= 1
            if self._left == 0:
                sys.setprofile(None)
                raise KeyboardInterrupt


class ConcurrentAppends:
    """Threads that append at the same time as the main thread.

    One thread leads a commit group until the others have joined the next group. With `place` "following" they join
    before the main thread, with "leading" after it.
    """

    def __init__(self, store: duramen.Duramen, place: str, number: int) -> None:
        self.unexpected: list[str] = []
        self._store = store
        self._number = number
        self._held, self._go = threading.Event(), threading.Event()
        self._first, *self._others = [threading.Thread(target=self._write, args=(index,)) for index in range(3)]
        crashpoints.listen(self._hold)
        self._first.start()
        self._held.wait()
        if place == "following":
            self._start_others()
        self._helper = threading.Thread(target=self._release, args=(place,))
        self._helper.start()

    def _hold(self, point: str) -> None:
        if point == "append.begun" and threading.current_thread() is self._first:
            self._held.set()
            self._go.wait()

    def _start_others(self) -> None:
        for thread in self._others:
            thread.start()
        time.sleep(0.003)  # usually long enough to join the group; otherwise this round tests less

    def _release(self, place: str) -> None:
        time.sleep(0.003)
        if place == "leading":
            self._start_others()
        self._go.set()

    def _write(self, index: int) -> None:
        try:
            self._store.session("a").append("note", [self._number, index])
        except DuramenError:
            return  # the leader was interrupted, so the append may or may not be stored
        except BaseException as error:  # noqa: BLE001 - no other error may occur
            self.unexpected.append(repr(error))

    def join(self) -> list[str]:
        """Wait for all of them. Returns unexpected errors."""
        self._helper.join()
        for thread in (self._first, *self._others):
            thread.join()
        crashpoints.listen(None)
        return self.unexpected


def interrupt_every_step(say: Callable[[str], None], address: str, place: str, kind: str) -> None:
    """Append repeatedly, interrupted one place later each time, until an append succeeds.

    After each append, this handle and another one must be able to write. Prints the number of appends and the failures.
    """
    with duramen.open(address, timeout=5) as store, duramen.open(address, timeout=5) as other:
        store.session("a").append("note", "first")
        number, interrupted = 0, True
        failures: list[Any] = []
        while interrupted and not failures:
            number += 1
            faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
            others = ConcurrentAppends(store, place, number) if place != "alone" else None
            interrupted = _append(store, kind, number)
            failures += others.join() if others is not None else []
            for handle, size in ((store, 3000), (other, 1)):  # the large payload relies on the cached head
                try:
                    handle.session("a").append("note", f"after {number} " * size)
                except DuramenError as error:
                    failures.append(f"after append {number}: {error!r}")
        faulthandler.cancel_dump_traceback_later()
        say(json.dumps([number, failures]))


def _append(store: duramen.Duramen, kind: str, number: int) -> bool:
    session = store.session(f"new {number}" if kind == "new session" else "a")
    data = f"{number} " + "word" * (4500 if kind == "blob" else 1)  # few words: redaction looks at each of them
    try:
        with Interrupt(number):
            session.append("note", data)
    except KeyboardInterrupt:
        return True
    return False
