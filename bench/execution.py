"""How fast runs are, beside the floor and beside other durable execution systems.

    python bench/execution.py [--json] [--rounds N] [--postgres URL] [--peers FOLDER | --no-peers]

Steps are trivial: they return a small number. Everything is measured interleaved, round by round, in one run on one
disk; the figures are ratios of medians. The peers are installed into an environment of their own (.venv/peers) and
run in processes of their own. A peer that cannot be had leaves its figures null, and a line says why.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import msgspec
from peers.install import Peers
from peers.resuming import resume_ms
from peers.syncs import count_syncs
from rich.console import Console
from rich.table import Table

import duramen
from duramen.errors import StateConflict

STEPS = 200
AGENTS = (1, 4, 16)
MUST: dict[str, tuple[str, float] | None] = {
    "steps_vs_floor_sqlite": (">=", 0.75),
    "steps_vs_dbos_sqlite": (">=", 5.0),
    "steps_vs_langgraph_sqlite": None,
    "steps_vs_dbos_postgres": (">=", 5.0),
    "steps_vs_absurd_postgres": (">=", 1.2),
    "fsyncs_per_step": ("<=", 1.05),
    "bytes_per_step": ("<=", 250.0),
    "resume_ms_vs_dbos": ("<=", 0.2),
    "concurrent_runs_steps_per_s_vs_sequential": (">=", 5.0),
    "cost_1000_steps_vs_10": ("<=", 1.3),
    **{f"agents_overhead_us.{agents}": None for agents in AGENTS},
}

Rates = dict[str, list[float]]


@duramen.step
def add(number: int) -> int:
    return number + 1


@duramen.task
def loop(steps: int) -> int:
    total = 0
    for _ in range(steps):
        total = add(total)
    return total


@duramen.step
async def add_async(number: int) -> int:
    return number + 1


@duramen.task
async def loop_async(steps: int) -> int:
    total = 0
    for _ in range(steps):
        total = await add_async(total)
    return total


def rate(count: int, work: Callable[[], Any]) -> float:
    """Operations a second of `work`, which does `count` of them."""
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


class Floor:
    """The bare loop: a step's result and the next one's intent, two rows and one commit, the same pragmas."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path))
        pragmas = {"journal_mode": "wal", "synchronous": "full", "secure_delete": "on", "wal_autocheckpoint": 2000}
        for name, value in pragmas.items():
            self._connection.pragma(name, value)
        self._connection.execute("CREATE TABLE floor (id INTEGER PRIMARY KEY, payload BLOB)")
        self._payloads = [
            (_payload({"step": f"add#{number}", "value": number}), _payload({"step": f"add#{number + 1}"}))
            for number in range(1, STEPS + 1)
        ]

    def run(self) -> None:
        connection = self._connection
        for done, started in self._payloads:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO floor (payload) VALUES (?)", (done,))
            connection.execute("INSERT INTO floor (payload) VALUES (?)", (started,))
            connection.execute("COMMIT")


def _payload(data: dict[str, Any]) -> bytes:
    return b"\0" + msgspec.msgpack.encode(data)


# -- steps, one after the other


def measure_sqlite(folder: Path, peers: Peers, rounds: int) -> Rates:
    found: Rates = {name: [] for name in ("floor", "duramen", "dbos", "langgraph")}
    # Each in a file of its own: a checkpoint that one of them earned must not fall into another's round.
    files = {peer: str(folder / f"{peer}.db") for peer in ("dbos", "langgraph")}
    floor = Floor(folder / "floor.db")
    with duramen.open(folder / "steps.db") as handle, peers.ready("sqlite", files) as team:
        floor.run()
        handle.run(loop, STEPS)
        for _ in range(rounds):
            for _ in range(4):  # these two are short, and a disk changes its mood within a second
                found["floor"].append(rate(STEPS, floor.run))
                found["duramen"].append(rate(STEPS, lambda: handle.run(loop, STEPS)))
            team.take_turns(STEPS, found)
    return found


def measure_postgres(url: str, peers: Peers, rounds: int) -> Rates:
    found: Rates = {name: [] for name in ("duramen", "dbos", "absurd")}
    addresses = {"dbos": url, "absurd": url}
    with duramen.open(url) as handle, peers.ready("postgres", addresses) as team:
        handle.run(loop, 20)
        for _ in range(rounds):
            found["duramen"].append(rate(STEPS, lambda: handle.run(loop, STEPS)))
            team.take_turns(STEPS, found)
    return found


@contextmanager
def postgres(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    from duramen.testing.postgres import PostgresServer

    with PostgresServer.start() as server:
        yield server.create_database("bench")


# -- what a step costs


def size_after(path: Path, steps: int) -> int:
    """Bytes of a new file with a run of so many steps, all of them out of the write-ahead log."""
    with duramen.open(path) as handle:
        handle.run(loop, steps)
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return os.path.getsize(path)


def measure_growth(folder: Path, runs: int, steps: int = 1000) -> Rates:
    """Seconds from step to step, around the tenth and at the end of a long run; after a first run."""
    stamps: list[float] = []

    @duramen.step
    def stamp() -> int:
        stamps.append(time.perf_counter())
        return 1

    @duramen.task
    def stamped() -> None:
        for _ in range(steps + 1):
            stamp()

    found: Rates = {"tenth": [], "last": []}
    with duramen.open(folder / "growth.db") as handle:
        handle.run(stamped)
        for _ in range(runs):
            stamps.clear()
            handle.run(stamped)
            gaps = [after - before for before, after in pairwise(stamps)]
            found["tenth"].append(statistics.median(gaps[4:15]))
            found["last"].append(statistics.median(gaps[-50:]))
    return found


# -- many at once


def measure_concurrency(folder: Path, rounds: int) -> Rates:
    return asyncio.run(_measure_concurrency(folder, rounds))


async def _measure_concurrency(folder: Path, rounds: int) -> Rates:
    found: Rates = {"sequential": [], "concurrent": []}
    async with (
        await duramen.aopen(folder / "sequential.db") as one,
        await duramen.aopen(folder / "concurrent.db") as many,
    ):
        await asyncio.gather(one.run(loop_async, STEPS), many.run(loop_async, STEPS))
        for _ in range(rounds):
            began = time.perf_counter()
            await one.run(loop_async, STEPS)
            found["sequential"].append(STEPS / (time.perf_counter() - began))
            began = time.perf_counter()
            await asyncio.gather(*(many.run(loop_async, 50) for _ in range(64)))
            found["concurrent"].append(64 * 50 / (time.perf_counter() - began))
    return found


def measure_agents(folder: Path, rounds: int, updates: int = 320) -> tuple[Rates, int]:
    """Microseconds of an append, and of an update when so many threads share a state; and how many gave up."""
    found: Rates = {name: [] for name in ("append", *map(str, AGENTS))}
    refused: list[StateConflict] = []

    def agent(state: duramen.SharedState, count: int) -> None:
        for _ in range(count):
            try:
                state.update(lambda value: value + 1, default=0)
            except StateConflict as conflict:
                refused.append(conflict)

    with duramen.open(folder / "agents.db") as handle:
        session = handle.session("alone")
        for _ in range(rounds):
            found["append"].append(
                1e6 / rate(updates, lambda: [session.append("state.set", 7) for _ in range(updates)])
            )
            for agents in AGENTS:
                state, count = handle.state(f"shared-{agents}"), updates // agents
                threads = [threading.Thread(target=agent, args=(state, count)) for _ in range(agents)]
                found[str(agents)].append(1e6 / rate(updates, partial(join_all, threads)))
        total = sum(handle.state(f"shared-{agents}").get(0).value for agents in AGENTS)
        assert total + len(refused) == rounds * updates * len(AGENTS), "an update was lost"
    return found, len(refused)


def join_all(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# -- all together


def middle(values: list[float]) -> float | None:
    return statistics.median(values) if values else None


def ratio(rates: Rates, one: str, other: str) -> float | None:
    """Of medians; none if one was not measured."""
    above, below = middle(rates[one]), middle(rates[other])
    return None if above is None or below is None else above / below


def measure(
    peers: Peers, folder: Path, rounds: int, url: str | None
) -> tuple[dict[str, float | None], dict[str, Rates], list[str]]:
    """The figures that must be reached, what was measured for them, and what there is to say."""
    sqlite = measure_sqlite(folder, peers, rounds)
    with postgres(url) as server:
        pg = measure_postgres(server, peers, rounds)
    resuming = resume_ms(folder, peers, rounds)
    growth, concurrency = measure_growth(folder, 2 * rounds), measure_concurrency(folder, rounds)
    agents, refused = measure_agents(folder, rounds)
    alone = middle(agents["append"]) or 0
    figures: dict[str, float | None] = {
        "steps_vs_floor_sqlite": ratio(sqlite, "duramen", "floor"),
        "steps_vs_dbos_sqlite": ratio(sqlite, "duramen", "dbos"),
        "steps_vs_langgraph_sqlite": ratio(sqlite, "duramen", "langgraph"),
        "steps_vs_dbos_postgres": ratio(pg, "duramen", "dbos"),
        "steps_vs_absurd_postgres": ratio(pg, "duramen", "absurd"),
        "fsyncs_per_step": (count_syncs(folder, 1010) - count_syncs(folder, 10)) / 1000,
        "bytes_per_step": (size_after(folder / "large.db", 2100) - size_after(folder / "small.db", 100)) / 2000,
        "resume_ms_vs_dbos": ratio(resuming, "duramen", "dbos"),
        "concurrent_runs_steps_per_s_vs_sequential": ratio(concurrency, "concurrent", "sequential"),
        "cost_1000_steps_vs_10": ratio(growth, "last", "tenth"),
        **{f"agents_overhead_us.{count}": (middle(agents[str(count)]) or 0) - alone for count in AGENTS},
    }
    notes = [f"no {peer}: {why}" for peer, why in peers.failed.items()]
    notes += [f"{refused} updates of shared state gave up after conflicts"] if refused else []
    micros = {name: [1e6 * value for value in values] for name, values in growth.items()}
    behind = {
        "sqlite {}, steps/s": sqlite,
        "postgres {}, steps/s": pg,
        "sqlite {} runs, steps/s": concurrency,
        "resume {}, ms": resuming,
        "{} step, us": micros,
        "shared state {}, us": agents,
    }
    return figures, behind, notes


def show(figures: dict[str, float | None], behind: dict[str, Rates], versions: dict[str, str]) -> None:
    named = ", ".join(f"{peer} {version}" for peer, version in sorted(versions.items()))
    table = Table(title=f"duramen runs beside {named}" if named else "duramen runs")
    for column in ("figure", "measured", "must reach", ""):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for name, value in figures.items():
        must = MUST[name]
        bound = "" if must is None else f"{must[0]} {must[1]:,g}"
        table.add_row(name, "null" if value is None else f"{value:,.2f}", bound, verdict(value, must))
    for title, rates in behind.items():
        for name, values in rates.items():
            if values:
                table.add_row(f"[dim]{title.format(name)}", f"[dim]{statistics.median(values):,.0f}", "", "")
    Console().print(table)


def verdict(value: float | None, must: tuple[str, float] | None) -> str:
    if value is None or must is None:
        return ""
    sign, bound = must
    return "[green]yes" if (value >= bound if sign == ">=" else value <= bound) else "[red]no"


def as_json(figures: dict[str, float | None]) -> str:
    """`a.1` and `a.4` become an object `a`."""
    nested: dict[str, Any] = {}
    for name, value in figures.items():
        key, _, inner = name.partition(".")
        rounded = None if value is None else round(value, 3)
        if inner:
            nested.setdefault(key, {})[inner] = rounded
        else:
            nested[key] = rounded
    return json.dumps(nested)


def main() -> None:
    arguments = argparse.ArgumentParser(description="Runs beside the floor and beside other systems.")
    arguments.add_argument("--json", action="store_true", help="one JSON object on the last line")
    arguments.add_argument("--rounds", type=int, default=5, help="how often each is measured (5)")
    arguments.add_argument("--postgres", metavar="URL", help="an empty database to use instead of one from pip")
    home = Path(__file__).parents[1] / ".venv" / "peers"
    arguments.add_argument("--peers", metavar="FOLDER", type=Path, default=home, help="where they are, or shall be")
    arguments.add_argument("--no-peers", action="store_true", help="install and measure none of them")
    chosen = arguments.parse_args()
    with tempfile.TemporaryDirectory() as name:
        peers = Peers.none(Path(name)) if chosen.no_peers else Peers.install(chosen.peers, Path(name))
        figures, behind, notes = measure(peers, Path(name), chosen.rounds, chosen.postgres)
    show(figures, behind, peers.versions)
    for note in notes:
        print(note)
    if chosen.json:
        print(as_json(figures))


if __name__ == "__main__":
    main()
