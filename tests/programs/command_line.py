"""Runs the command line: in a forked child that has everything imported, or as a program of its own.

A command takes a few milliseconds in a forked child and half a second as a program. Use `running` where the program itself
is the point: signals, terminals, closed pipes, commands that follow.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

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
    """The environment of a command: ours without settings of duramen, 140 columns wide."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("DURAMEN_", "NO_COLOR"))}
    return {**inherited, "COLUMNS": "140", **more}


def run(*arguments: object, cwd: Path, stdin: str = "", **env: str) -> CommandResult:
    """Run a command to its end. No command may ever print a traceback."""
    given = Path(_folder().name, "stdin")
    given.write_text(stdin, encoding="utf-8")
    child = _server().start(
        "command_line:call",
        arguments=[str(argument) for argument in arguments],
        folder=str(cwd),
        environment=environment(**env),
        stdin=str(given),
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
    """A command as a program of its own, killed at the end of the block."""
    pipe = subprocess.PIPE
    command = [*COMMAND, *map(str, arguments)]
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=cwd, env=environment()) as process:
        try:
            yield process
        finally:
            process.kill()


def call(_: Callable[..., None], *, arguments: list[str], folder: str, environment: dict[str, str], stdin: str) -> None:
    """The child: becomes the command."""
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
    """One for the whole test run. It ends with this process."""
    return ChildProcesses(Path(_folder().name), preload="command_line:warm_up")


def warm_up() -> None:
    """The fork server: imports what commands need and parses one, because the parser also imports when it is first used."""
    from duramen.cli.app import app

    with redirect_stderr(io.StringIO()), suppress(SystemExit):
        app(["tail", "--after", "1"])
