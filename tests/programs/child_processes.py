"""Child processes for tests. They start in a few milliseconds, can be read and killed, and end with the test.

with ChildProcesses(tmp_path) as processes:
    child = processes.start("writer:write", address="agent.db", …)
    child.wait_for_lines(3)
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
"""Seconds to wait for a condition. Long enough for a loaded machine; nothing sleeps this long."""


def until(condition: Callable[[], Any], why: str, within: float = DEADLINE) -> Any:
    """Wait until the condition holds and return its value. Fails after `within` seconds."""
    deadline = time.monotonic() + within
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"waited {within:g} s for: {why}"
        time.sleep(0.001)


def complete_lines(path: Path) -> list[str]:
    """The complete lines of a file that a killed process wrote."""
    return path.read_text().rpartition("\n")[0].splitlines()


class ChildProcess:
    """One child process and its output."""

    def __init__(self, processes: ChildProcesses, pid: int, output: Path) -> None:
        self._processes = processes
        self.pid = pid
        self.output = output
        self._status: int | None = None

    def lines(self) -> list[str]:
        """The complete lines that it printed."""
        return complete_lines(self.output)

    def errors(self) -> str:
        """Its standard error."""
        path = Path(f"{self.output}.stderr")
        return path.read_text() if path.exists() else ""

    def wait_for_lines(self, count: int, within: float = DEADLINE) -> list[str]:
        """Wait until it printed `count` lines, or ended. Returns its lines."""
        until(lambda: len(self.lines()) >= count or self.ended() is not None, f"{count} lines of {self.output}", within)
        return self.lines()

    def ended(self) -> int | None:
        """Its exit status (negative: the signal that killed it), or None while it runs."""
        if self._status is None:
            self._status = self._processes.request({"poll": self.pid})
        return self._status

    def wait(self, within: float = DEADLINE) -> int:
        """Its exit status, once it has ended."""
        until(lambda: self.ended() is not None, f"the end of {self.output}: {self.errors()}", within)
        assert self._status is not None
        return self._status

    def finish(self, within: float = DEADLINE) -> list[str]:
        """Wait until it ended with status 0. Returns its lines."""
        assert self.wait(within) == 0, self.errors()
        return self.lines()

    def kill(self) -> int:
        """Kill it, unless it has ended. Returns its exit status."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.ended() is None:
            os.kill(self.pid, number)


class ChildProcesses:
    """Starts child processes, whose output goes to `directory`. `close` kills all of them.

    `preload` names a function ("module:function" in this folder) that is called once, before the first fork.
    """

    def __init__(self, directory: Path, preload: str = "") -> None:
        self._directory = directory
        self._count = itertools.count(1)
        self._children: list[ChildProcess] = []
        self._process = subprocess.Popen(
            [sys.executable, "-m", "programs.fork_server", *([preload] if preload else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(entry or os.curdir for entry in sys.path)},
        )

    def start(self, function: str, /, *, crash: tuple[str, int] | None = None, **arguments: Any) -> ChildProcess:
        """Fork a child that calls `function` ("module:function" in this folder) with `arguments`. With `crash`, a crash
        point and a number, it is killed when it reaches the point for that time."""
        output = self._directory / f"child-{next(self._count)}"
        output.touch()
        request = {"function": function, "output": str(output), "crash": crash, "arguments": arguments}
        child = ChildProcess(self, self.request(request), output)
        self._children.append(child)
        return child

    def kill_all(self) -> None:
        """Kill the children that still run."""
        while self._children:
            self._children.pop().kill()

    def request(self, message: dict[str, Any]) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End the fork server, and with it all children."""
        self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Gate:
    """Children wait in `pass_gate`, and continue all at once."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def open(self) -> None:
        """Let all waiting children continue."""
        os.close(self._file)


def pass_gate(path: str) -> None:
    """Wait until the gate opens."""
    file = os.open(path, os.O_RDWR)
    fcntl.flock(file, fcntl.LOCK_SH)
    os.close(file)
