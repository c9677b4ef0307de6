"""Speed of runs compared with a bare SQLite loop (the floor) and with other durable execution systems.

    python bench/execution.py [--json] [--rounds N] [--postgres URL] [--peers FOLDER | --no-peers]

Steps are trivial: they return a small number. All measurements alternate, round by round, in one run on one disk. The
figures are ratios of medians. The peers are installed into a separate environment (.venv/peers) and run in their own
processes. The figures of a missing peer are null, and a note gives the reason.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import msgspec
from figures import Rates, argument_parser, figures_json, median, print_figures, rate, ratio
from peers.install import Peers
from peers.resume_time import resume_ms
from peers.sync_count import count_syncs

import duramen
from duramen.errors import StateConflict

STEPS = 200
AGENTS = (1, 4, 16)


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


class Floor:
    """The bare loop: one commit per step, with two rows (an outcome and the next intent) and the same pragmas."""

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


# -- sequential steps


def measure_sqlite(folder: Path, peers: Peers, rounds: int) -> Rates:
    rates: Rates = {name: [] for name in ("floor", "duramen", "dbos", "langgraph")}
    # Each system uses its own file, so that the WAL checkpoint of one does not slow down the round of another.
    files = {peer: str(folder / f"{peer}.db") for peer in ("dbos", "langgraph")}
    floor = Floor(folder / "floor.db")
    with duramen.open(folder / "steps.db") as handle, peers.ready("sqlite", files) as group:
        floor.run()
        handle.run(loop, STEPS)
        for _ in range(rounds):
            for _ in range(4):  # more often, because they are short and the speed of a disk varies within a second
                rates["floor"].append(rate(STEPS, floor.run))
                rates["duramen"].append(rate(STEPS, lambda: handle.run(loop, STEPS)))
            group.add_rates(STEPS, rates)
    return rates


def measure_postgres(url: str, peers: Peers, rounds: int) -> Rates:
    rates: Rates = {name: [] for name in ("duramen", "dbos", "absurd")}
    addresses = {"dbos": url, "absurd": url}
    with duramen.open(url) as handle, peers.ready("postgres", addresses) as group:
        handle.run(loop, 20)
        for _ in range(rounds):
            rates["duramen"].append(rate(STEPS, lambda: handle.run(loop, STEPS)))
            group.add_rates(STEPS, rates)
    return rates


@contextmanager
def postgres(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    from duramen.testing.postgres import PostgresServer

    with PostgresServer.start() as server:
        yield server.create_database("bench")


# -- the cost of a step


def size_after(path: Path, steps: int) -> int:
    """Bytes of a new file with a run of `steps` steps, after a WAL checkpoint."""
    with duramen.open(path) as handle:
        handle.run(loop, steps)
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    return os.path.getsize(path)


def measure_growth(folder: Path, runs: int, steps: int = 1000) -> Rates:
    """Seconds between steps around step 10 and at the end of a long run, after a warm-up run."""
    stamps: list[float] = []

    @duramen.step
    def stamp() -> int:
        stamps.append(time.perf_counter())
        return 1

    @duramen.task
    def stamped() -> None:
        for _ in range(steps + 1):
            stamp()

    rates: Rates = {"tenth": [], "last": []}
    with duramen.open(folder / "growth.db") as handle:
        handle.run(stamped)
        for _ in range(runs):
            stamps.clear()
            handle.run(stamped)
            gaps = [after - before for before, after in pairwise(stamps)]
            rates["tenth"].append(statistics.median(gaps[4:15]))
            rates["last"].append(statistics.median(gaps[-50:]))
    return rates


# -- concurrency


def measure_concurrency(folder: Path, rounds: int) -> Rates:
    return asyncio.run(_measure_concurrency(folder, rounds))


async def _measure_concurrency(folder: Path, rounds: int) -> Rates:
    rates: Rates = {"sequential": [], "concurrent": []}
    async with (
        await duramen.aopen(folder / "sequential.db") as one,
        await duramen.aopen(folder / "concurrent.db") as many,
    ):
        await asyncio.gather(one.run(loop_async, STEPS), many.run(loop_async, STEPS))
        for _ in range(rounds):
            began = time.perf_counter()
            await one.run(loop_async, STEPS)
            rates["sequential"].append(STEPS / (time.perf_counter() - began))
            began = time.perf_counter()
            await asyncio.gather(*(many.run(loop_async, 50) for _ in range(64)))
            rates["concurrent"].append(64 * 50 / (time.perf_counter() - began))
    return rates


def measure_agents(folder: Path, rounds: int, updates: int = 320) -> tuple[Rates, int]:
    """Microseconds of an append and of an update of a state shared by threads, and the number of conflicts."""
    rates: Rates = {name: [] for name in ("append", *map(str, AGENTS))}
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
            rates["append"].append(
                1e6 / rate(updates, lambda: [session.append("state.set", 7) for _ in range(updates)])
            )
            for agents in AGENTS:
                state, count = handle.state(f"shared-{agents}"), updates // agents
                threads = [threading.Thread(target=agent, args=(state, count)) for _ in range(agents)]
                rates[str(agents)].append(1e6 / rate(updates, partial(join_all, threads)))
        total = sum(handle.state(f"shared-{agents}").get(0).value for agents in AGENTS)
        assert total + len(refused) == rounds * updates * len(AGENTS), "an update was lost"
    return rates, len(refused)


def join_all(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# -- figures


def measure(
    peers: Peers, folder: Path, rounds: int, url: str | None
) -> tuple[dict[str, float | None], dict[str, Rates], list[str]]:
    """The figures, the measurements behind them, and notes."""
    sqlite = measure_sqlite(folder, peers, rounds)
    with postgres(url) as server:
        pg = measure_postgres(server, peers, rounds)
    resumed = resume_ms(folder, peers, rounds)
    growth, concurrency = measure_growth(folder, 2 * rounds), measure_concurrency(folder, rounds)
    agents, refused = measure_agents(folder, rounds)
    alone = median(agents["append"]) or 0
    figures: dict[str, float | None] = {
        "steps_vs_floor_sqlite": ratio(sqlite, "duramen", "floor"),
        "steps_vs_dbos_sqlite": ratio(sqlite, "duramen", "dbos"),
        "steps_vs_langgraph_sqlite": ratio(sqlite, "duramen", "langgraph"),
        "steps_vs_dbos_postgres": ratio(pg, "duramen", "dbos"),
        "steps_vs_absurd_postgres": ratio(pg, "duramen", "absurd"),
        "fsyncs_per_step": (count_syncs(folder, 1010) - count_syncs(folder, 10)) / 1000,
        "bytes_per_step": (size_after(folder / "large.db", 2100) - size_after(folder / "small.db", 100)) / 2000,
        "resume_ms_vs_dbos": ratio(resumed, "duramen", "dbos"),
        "concurrent_runs_steps_per_s_vs_sequential": ratio(concurrency, "concurrent", "sequential"),
        "cost_1000_steps_vs_10": ratio(growth, "last", "tenth"),
        **{f"agents_overhead_us.{count}": (median(agents[str(count)]) or 0) - alone for count in AGENTS},
    }
    notes = [f"no {peer}: {why}" for peer, why in peers.failed.items()]
    notes += [f"{refused} updates of shared state failed with a conflict"] if refused else []
    micros = {name: [1e6 * value for value in values] for name, values in growth.items()}
    measurements = {
        "sqlite {}, steps/s": sqlite,
        "postgres {}, steps/s": pg,
        "sqlite {} runs, steps/s": concurrency,
        "resume {}, ms": resumed,
        "{} step, us": micros,
        "shared state {}, us": agents,
    }
    return figures, measurements, notes


def main() -> None:
    parser = argument_parser("Runs compared with the floor and with other systems.", rounds=5)
    parser.add_argument("--postgres", metavar="URL", help="an empty database (default: start a server from pip)")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        peers = Peers.none(Path(name)) if chosen.no_peers else Peers.install(chosen.peers, Path(name))
        figures, measurements, notes = measure(peers, Path(name), chosen.rounds, chosen.postgres)
    versions = ", ".join(f"{peer} {version}" for peer, version in sorted(peers.versions.items()))
    print_figures(f"duramen and {versions}" if versions else "duramen", figures, measurements, notes)
    if chosen.json:
        print(figures_json(figures))


if __name__ == "__main__":
    main()
