"""The time to resume a session: to open it, and to build its context. Used by `context.py`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import duramen
from duramen import Draft

_COLD_BUILD = """
import sys, time, duramen
with duramen.open(sys.argv[1]) as dm:
    session = dm.session("s")
    began = time.perf_counter()
    session.context()
    print(time.perf_counter() - began)
"""


def turn(number: int) -> list[Draft]:
    """A question and its answer."""
    asked = f"Turn {number}: what became of order {number * 7} for customer C{number % 97}, and when does it arrive?"
    answer = (
        f"Order {number * 7} left on day {number % 30} and arrives in {number % 5 + 1} days; I told C{number % 97}."
    )
    return [
        Draft("talk.message", {"role": "user", "content": asked}),
        Draft("talk.message", {"role": "assistant", "content": answer}),
    ]


def fill(path: Path, events: int) -> None:
    """Fill a session with `events` events: notes, a conversation with summaries, checkpoints, progress."""
    with duramen.open(path) as dm:
        session = dm.session("s")
        session.progress.begin("Fill the session", next_action="Go on")
        state: dict[str, list[int]] = {"seen": []}
        while (at := session.head().position) < events:
            notes = [Draft("note", {"number": at + index}) for index in range(470)]
            session.append_all([*notes, *turn(at), *turn(at + 1)])
            session.context()
            state["seen"].append(at)
            session.checkpoint(state)


def resume_times(folder: Path, rounds: int, short: int, long: int) -> dict[str, list[float]]:
    """Milliseconds to open a store and read the state, context and progress of a short and a long session. The two
    alternate."""
    paths = {"short": folder / "short.db", "long": folder / "long.db"}
    fill(paths["short"], short)
    fill(paths["long"], long)
    times: dict[str, list[float]] = {"short": [], "long": []}
    for _ in range(4 * rounds):
        for name, path in paths.items():
            times[name].append(1e3 * _seconds(lambda path=path: _resume(path)))  # type: ignore[misc]
    return times


def _resume(path: Path) -> None:
    with duramen.open(path) as dm:
        session = dm.session("s")
        assert session.state() is not None
        assert session.context().messages
        assert session.progress.goal


def build_times(folder: Path, turns: int, cold: int) -> dict[str, list[float]]:
    """Milliseconds to build the context of a session of `turns` turns: warm after each of the last 200 turns, and cold
    in a new process."""
    path = folder / "talk.db"
    times: dict[str, list[float]] = {"warm": [], "cold": []}
    with duramen.open(path) as dm:
        session = dm.session("s")
        for number in range(0, turns - 200, 8):
            session.append_all([draft for one in range(number, number + 8) for draft in turn(one)])
            session.context()
        for number in range(turns - 200, turns):
            session.append_all(turn(number))
            session.context()  # this call writes the summary that is due, which is not part of the measured build
            times["warm"].append(1e3 * _seconds(session.context))
    for _ in range(cold):
        done = subprocess.run(
            [sys.executable, "-c", _COLD_BUILD, str(path)], capture_output=True, text=True, check=True
        )
        times["cold"].append(1e3 * float(done.stdout))
    return times


def p95(values: list[float]) -> float:
    """The 95th percentile."""
    return statistics.quantiles(values, n=20)[-1]


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
