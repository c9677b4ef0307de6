"""The main promise in ten seconds: append, kill -9, reopen, verify.

A child process appends events and reports each one only after `append` returned. It is killed with SIGKILL in the
middle. Then this process opens the same file: every event that was acknowledged must be there.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import apsw
from rich.console import Console
from rich.table import Table

import holdfast

console = Console()
STEPS = ["asked", "planned", "tool.called", "tool.answered", "decided", "said"]


def write(path: str) -> None:
    """What the agent does, until somebody kills it."""
    with holdfast.open(path) as hf:
        session = hf.session("trip-456")
        start = session.head().position
        for number in range(start, start + 100_000):
            kind = STEPS[number % len(STEPS)]
            event = session.append(kind, {"turn": number}, actor="agent", key=f"turn-{number}")
            print(event.position, flush=True)


def killed_run(path: Path) -> int:
    """Start the agent, kill it at a random moment, and say which event it last saw acknowledged."""
    agent = subprocess.Popen([sys.executable, __file__, "write", str(path)], stdout=subprocess.PIPE, text=True)
    assert agent.stdout is not None
    first = agent.stdout.readline()
    time.sleep(random.uniform(0.05, 0.5))
    agent.send_signal(signal.SIGKILL)
    rest = agent.stdout.read().split()
    agent.wait()
    return int((rest or [first])[-1])


def survive(path: Path) -> None:
    table = Table(title="append, kill -9, reopen")
    for column in ("round", "acknowledged before the kill", "there after reopening", "lost", "chain"):
        table.add_column(column, justify="right")
    for number in range(1, 5):
        acknowledged = killed_run(path)
        with holdfast.open(path) as hf:
            session = hf.session("trip-456")
            positions = [event.position for event in session.events()]
            chain = "verified" if session.verify().ok else "[red]broken"
        lost = max(0, acknowledged - len(positions))
        assert positions == list(range(1, len(positions) + 1)), "a gap"
        assert not lost, f"{lost} acknowledged events are gone"
        table.add_row(str(number), f"{acknowledged:,}", f"{len(positions):,}", str(lost), f"[green]{chain}")
    console.print(table)


def tamper(path: Path, copy: Path) -> None:
    shutil.copy(path, copy)
    database = apsw.Connection(str(copy))
    database.execute("UPDATE holdfast_events SET actor = 'mallory' WHERE position = 7")
    database.close()
    with holdfast.open(copy) as hf:
        problem = hf.verify().problems[0]
    console.print(f"\nSomebody edits event 7 of a copy by hand. verify: [red]{problem.session} #{problem.position}[/]:")
    console.print(f"  {problem.reason}")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "agent.db"
        survive(path)
        tamper(path, Path(folder) / "copy.db")
    console.print("\n[green]Nothing acknowledged was lost.[/] Next: docs/architecture.md, or `holdfast --help`.")


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        write(sys.argv[2])
    else:
        main()
