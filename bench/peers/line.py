"""The line between the benchmark and a process that does steps.

    python -m peers.with_dbos rate ADDRESS       says it is ready, then takes numbers of steps, answers with seconds
    python -m peers.with_dbos begin ADDRESS      starts a run, says so from inside its last step and hangs there
    python -m peers.with_dbos resume ADDRESS     goes on with that run, and says so from inside the same step

Both ends are here, so nothing but Python is needed to import it.
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
"""The variable that names the folder of spaCy's English pipeline, for a peer that uses it."""

_PATIENCE = 60.0


class PeerFailed(Exception):
    """A peer did not start, or did not answer."""


# -- the child's end


class System(ABC):
    """A durable execution system on one database."""

    @abstractmethod
    def open(self, address: str, inside: Callable[[int], None]) -> str:
        """Get ready and return the system's version. Every step calls `inside` with its number."""

    @abstractmethod
    def run(self, steps: int) -> None:
        """A new run of so many steps, one after the other, to its end."""

    def begin(self, steps: int) -> None:
        """A run that a later process can `resume`."""
        raise NotImplementedError

    def resume(self, steps: int) -> None:
        """Go on with it in whatever way the system's manual names, until it has ended."""
        raise NotImplementedError


def serve(system: System) -> None:
    """Do what the command line says, until the benchmark hangs up."""
    say = private_stdout()
    mode, address = sys.argv[1:]
    if mode == "rate":
        say(version=system.open(address, lambda number: None))
        for line in sys.stdin:
            began = time.perf_counter()
            system.run(int(line))
            say(seconds=time.perf_counter() - began)
        os._exit(0)  # some systems have threads that do not end

    def inside(number: int) -> None:
        if number == LAST_STEP:
            say(inside=number)
            time.sleep(_PATIENCE if mode == "begin" else 0)

    system.open(address, inside)
    (system.begin if mode == "begin" else system.resume)(LAST_STEP)


def private_stdout() -> Callable[..., None]:
    """A way to speak that nobody else has: what a system prints goes to the log."""
    line = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**answer: Any) -> None:
        line.write(json.dumps(answer) + "\n")
        line.flush()

    return say


# -- the benchmark's end


class Peer:
    """A child that does steps on demand. Raises `PeerFailed` with the end of its log."""

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

    def hear(self, key: str, within: float = _PATIENCE) -> Any:
        """The next answer; a child that does not give it in time is killed."""
        timer = threading.Timer(within, self._process.kill)
        timer.start()
        line = _open(self._process.stdout).readline()
        timer.cancel()
        if not line:
            self._process.wait()
            lines = self._log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
            raise PeerFailed(lines[-1])
        return json.loads(line)[key]

    def rate(self, steps: int) -> float:
        """Steps a second, as the child's clock has it."""
        self.tell(str(steps))
        return steps / float(self.hear("seconds"))

    def tell(self, line: str) -> None:
        """Give it an order."""
        stdin = _open(self._process.stdin)
        stdin.write(f"{line}\n")
        stdin.flush()

    def kill(self) -> None:
        """SIGKILL, as a crash would have it; and no trace of the process."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            _open(pipe).close()


def _environment(folder: Path) -> dict[str, str]:
    """Ours, and one place for everybody's bytecode: nobody compiles at the second start, whatever pip has done."""
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    bench = Path(__file__).parents[1]
    return os.environ | bytecode | {"PYTHONPATH": os.pathsep.join((str(bench), str(bench.parent / "src")))}


def _open(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe
