"""Runs the command line: in a forked child with all modules imported, or as a separate program.

A command takes a few milliseconds in a forked child and half a second as a program. Use `running` to test the program
itself: signals, terminals, closed pipes, commands that follow a session.
"""

from __future__ import annotations

import io
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import duramen

from .child_processes import ChildProcesses

COMMAND = [sys.executable, "-m", "duramen.cli.app"]
HOSTILE_TEXT = "[red]hi[/red] \x1b[2J\x1b]0;owned\x07 \x9b31m \u202elive \U000e0041 \u2028end"


@dataclass(frozen=True, slots=True)
class CommandResult:
    """The exit code and both outputs of a command."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[Any]:
        """The output, parsed as one JSON value per line."""
        return [json.loads(line) for line in self.out.splitlines()]


def environment(**more: str) -> dict[str, str]:
    """The environment of a command: that of the test without duramen's variables, and 140 columns wide."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("DURAMEN_", "NO_COLOR"))}
    return {**inherited, "COLUMNS": "140", **more}


def run(*arguments: object, cwd: Path, stdin: str = "", **env: str) -> CommandResult:
    """Run a command to its end. Fails if the command prints a traceback."""
    input_file = Path(_folder().name, "stdin")
    input_file.write_text(stdin, encoding="utf-8")
    child = _server().start(
        "command_line:call",
        arguments=[str(argument) for argument in arguments],
        folder=str(cwd),
        environment=environment(**env),
        stdin=str(input_file),
    )
    code = child.wait(within=60)
    result = CommandResult(code, child.output.read_text(encoding="utf-8"), child.errors())
    assert "Traceback" not in result.out + result.err, result.err
    return result


def run_each(*commands: Sequence[object], cwd: Path, **env: str) -> list[CommandResult]:
    """Run several commands, one after the other."""
    return [run(*command, cwd=cwd, **env) for command in commands]


@contextmanager
def running(*arguments: object, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A command as a separate program, killed at the end of the block."""
    pipe = subprocess.PIPE
    command = [*COMMAND, *map(str, arguments)]
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=cwd, env=environment()) as process:
        try:
            yield process
        finally:
            process.kill()


def run_on_terminal(*arguments: object, cwd: Path, stream: str = "stdout", **env: str) -> CommandResult:
    """Run a command as a separate program to its end. One of its output streams is a terminal."""
    ours, theirs = os.openpty()
    streams: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, stream: theirs}
    command = [*COMMAND, *map(str, arguments)]
    with subprocess.Popen(command, cwd=cwd, env=environment(TERM="xterm", **env), **streams) as process:
        os.close(theirs)
        watchdog = threading.Timer(60, process.kill)
        watchdog.start()
        shown = b"".join(iter(lambda: _read_terminal(ours), b""))
        out, err = process.communicate()
        watchdog.cancel()
    os.close(ours)
    outputs = {"stdout": out, "stderr": err, stream: shown}
    return CommandResult(process.returncode, outputs["stdout"].decode(), outputs["stderr"].decode())


def _read_terminal(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:
        return b""  # the command has ended


def call(_: Callable[..., None], *, arguments: list[str], folder: str, environment: dict[str, str], stdin: str) -> None:
    """Run the command in the child process."""
    from duramen.cli.app import main

    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(os.open(stdin, os.O_RDONLY), 0)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for the rest of the process
    sys.argv = ["duramen", *arguments]
    sys.path[0] = folder
    main()


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory()


@cache
def _server() -> ChildProcesses:
    """The fork server of the whole test run. It ends with this process."""
    return ChildProcesses(Path(_folder().name), preload="command_line:warm_up")


def warm_up() -> None:
    """Import all modules that commands need, once in the fork server instead of in each child."""
    from duramen.cli.app import app

    for module in pkgutil.walk_packages(duramen.__path__, "duramen."):
        if not module.name.startswith(("duramen.integrations", "duramen.testing")):
            import_module(module.name)
    # The parser imports more when it is first used.
    with redirect_stderr(io.StringIO()), suppress(SystemExit):
        app(["tail", "--after", "1"])
