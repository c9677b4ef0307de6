"""The protocol between the benchmark and the process of a peer: lines of JSON over pipes.

    python -m peers.dbos_peer rate ADDRESS       writes its version, then the seconds for each number of steps it reads
    python -m peers.dbos_peer begin ADDRESS      starts a run, writes a line inside its last step and waits there
    python -m peers.dbos_peer resume ADDRESS     resumes that run and writes a line inside the same step

Both sides are in this module. It imports only the standard library, because every environment must be able to import
it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

LAST_STEP = 20
"""The step in which a run is killed."""

SPACY_MODEL = "BENCH_SPACY_MODEL"
"""The environment variable for the folder of spaCy's English pipeline, for peers that use it."""

_TIMEOUT = 60.0


class PeerFailed(Exception):
    """A peer did not start, or did not answer."""


# -- in the process of the peer


class System(ABC):
    """A durable execution system on one database."""

    @abstractmethod
    def open(self, address: str, inside: Callable[[int], None]) -> str:
        """Open the database and return the version of the system. Every step calls `inside` with its number."""

    @abstractmethod
    def run(self, steps: int) -> None:
        """Execute a new run of `steps` sequential steps to its end."""

    def begin(self, steps: int) -> None:
        """Execute a run that a later process can `resume`."""
        raise NotImplementedError

    def resume(self, steps: int) -> None:
        """Resume that run as the system's manual describes, until it has ended."""
        raise NotImplementedError


def run_peer(system: System) -> None:
    """Execute the mode given on the command line, until the benchmark closes the pipe."""
    answer = answer_writer()
    mode, address = sys.argv[1:]
    if mode == "rate":
        answer(version=system.open(address, lambda number: None))
        for line in sys.stdin:
            began = time.perf_counter()
            system.run(int(line))
            answer(seconds=time.perf_counter() - began)
        os._exit(0)  # some systems have threads that do not end

    def inside(number: int) -> None:
        if number == LAST_STEP:
            answer(inside=number)
            time.sleep(_TIMEOUT if mode == "begin" else 0)

    system.open(address, inside)
    (system.begin if mode == "begin" else system.resume)(LAST_STEP)


def answer_writer() -> Callable[..., None]:
    """A function that writes answers. Standard output is redirected to the log, because a system may print."""
    pipe = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(**fields: Any) -> None:
        pipe.write(json.dumps(fields) + "\n")
        pipe.flush()

    return answer


# -- in the process of the benchmark


class Peer:
    """The process of a peer. Methods raise `PeerFailed` with the last line of its log."""

    def __init__(self, python: Path, module: str, mode: str, address: str, log: Path) -> None:
        self._log = log
        with log.open("a") as errors:
            self._process = subprocess.Popen(
                [str(python), "-m", f"peers.{module}", mode, address],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=log.parent,
                env=_environment(log.parent),
            )

    def read(self, key: str, within: float = _TIMEOUT) -> Any:
        """Wait for the next answer and return its field `key`. A process that exceeds the time is killed."""
        timer = threading.Timer(within, self._process.kill)
        timer.start()
        line = _open(self._process.stdout).readline()
        timer.cancel()
        if not line:
            self._process.wait()
            lines = self._log.read_text(errors="replace").strip().splitlines() or ["no output"]
            raise PeerFailed(lines[-1])
        return json.loads(line)[key]

    def rate(self, steps: int) -> float:
        """Steps per second of a new run, measured in the process of the peer."""
        self.send(str(steps))
        return steps / float(self.read("seconds"))

    def send(self, line: str) -> None:
        """Send a line to the process."""
        stdin = _open(self._process.stdin)
        stdin.write(f"{line}\n")
        stdin.flush()

    def kill(self) -> None:
        """Kill the process, as in a crash, and close its pipes."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            _open(pipe).close()


def _environment(folder: Path) -> dict[str, str]:
    """This process's environment with a folder for bytecode, so that a peer does not compile again at its second
    start."""
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    bench = Path(__file__).parents[1]
    return os.environ | bytecode | {"PYTHONPATH": os.pathsep.join((str(bench), str(bench.parent / "src")))}


def _open(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
