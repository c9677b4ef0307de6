"""Child processes for tests: started in a few milliseconds, listened to, killed, and gone at the end.

with Nursery(tmp_path) as nursery:
    child = nursery.start("writer:write", address="agent.db", …)
    child.hear(3)
    child.kill()
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

DEADLINE = 60.0
"""How long to wait for what must happen. Long enough for a loaded machine; nothing sleeps this long."""


def until(condition: Callable[[], Any], why: str, within: float = DEADLINE) -> Any:
    """Wait until the condition holds and return what it gave; fail if it never does."""
    deadline = time.monotonic() + within
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < deadline, f"waited {within:g} s in vain: {why}"
        time.sleep(0.001)


def complete_lines(path: Path) -> list[str]:
    """The lines of a file that a killed process wrote; half a line at the end does not count."""
    return path.read_text().rpartition("\n")[0].splitlines()


class Child:
    """One child process and what it said so far."""

    def __init__(self, nursery: Nursery, pid: int, said: Path) -> None:
        self._nursery = nursery
        self.pid = pid
        self.said = said
        self._status: int | None = None

    def lines(self) -> list[str]:
        """The complete lines that it said."""
        return complete_lines(self.said)

    def complaint(self) -> str:
        """What it wrote to standard error."""
        path = Path(f"{self.said}.stderr")
        return path.read_text() if path.exists() else ""

    def hear(self, count: int, within: float = DEADLINE) -> list[str]:
        """Wait until it said so many lines, or ended; returns what it said."""
        until(lambda: len(self.lines()) >= count or self.ended() is not None, f"{count} lines of {self.said}", within)
        return self.lines()

    def ended(self) -> int | None:
        """Its exit status (negative: the signal that killed it), or None while it lives."""
        if self._status is None:
            self._status = self._nursery.ask({"poll": self.pid})
        return self._status

    def wait(self, within: float = DEADLINE) -> int:
        """Its exit status, once it has ended."""
        until(lambda: self.ended() is not None, f"the end of {self.said}: {self.complaint()}", within)
        assert self._status is not None
        return self._status

    def finish(self, within: float = DEADLINE) -> list[str]:
        """Wait for its good end; returns what it said."""
        assert self.wait(within) == 0, self.complaint()
        return self.lines()

    def kill(self) -> int:
        """SIGKILL, unless it has ended by itself; returns its exit status."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.ended() is None:
            os.kill(self.pid, number)


class Nursery:
    """Starts children in `directory`. Close it and all of them are gone."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._count = itertools.count(1)
        self._children: list[Child] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "programs.nursery"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(entry or os.curdir for entry in sys.path)},
        )

    def start(self, role: str, *, crash: tuple[str, int] | None = None, **given: Any) -> Child:
        """Fork a child that plays `role` ("module:function" in this folder), to die at a crash point if one is
        given: (name, visit)."""
        said = self._directory / f"child-{next(self._count)}"
        said.touch()
        order = {"role": role, "said": str(said), "crash": crash, "given": given}
        child = Child(self, self.ask(order), said)
        self._children.append(child)
        return child

    def kill_all(self) -> None:
        """Kill the children that still live."""
        while self._children:
            self._children.pop().kill()

    def ask(self, order: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End the nursery, and with it all children."""
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Gate:
    """Children that `pass_gate` wait here, and go on all at once."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def open(self) -> None:
        """Let everybody through."""
        os.close(self._file)


def pass_gate(path: str) -> None:
    """Wait until the gate opens."""
    file = os.open(path, os.O_RDWR)
    fcntl.flock(file, fcntl.LOCK_SH)
    os.close(file)
