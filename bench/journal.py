"""Speed of the journal compared with the floor: a bare insert-and-commit loop with the same bytes.

    python bench/journal.py [--json] [--rounds N] [--postgres URL]

All measurements alternate, round by round, in one run on one disk. The figures are ratios of medians. Without
--postgres the benchmark starts a server from pip.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import apsw
import msgspec
import psycopg
from figures import Rates, figures_json, print_figures, rate

import duramen

DATA = {"role": "user", "content": "The quick brown fox books a flight to Lisbon. " * 3, "turn": 7, "tools": ["search"]}
PAYLOAD = b"\0" + msgspec.msgpack.encode(DATA)


def in_threads(count: int, work: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class SqliteFloor:
    """The bare loop: one row, one commit, the same pragmas."""

    def __init__(self, path: Path) -> None:
        self._connection = apsw.Connection(str(path))
        for name, value in (("journal_mode", "wal"), ("synchronous", "full"), ("secure_delete", "on")):
            self._connection.pragma(name, value)
        self._connection.execute("CREATE TABLE floor (id INTEGER PRIMARY KEY, payload BLOB)")

    def insert(self, count: int) -> None:
        connection = self._connection
        for _ in range(count):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("INSERT INTO floor (payload) VALUES (?)", (PAYLOAD,))
            connection.execute("COMMIT")


def append(handle: duramen.Duramen, session: str, count: int) -> None:
    target = handle.session(session)
    for _ in range(count):
        target.append("note", DATA, actor="agent")


async def append_concurrently(handle: duramen.AsyncDuramen, sessions: int, count: int) -> None:
    async def one(number: int) -> None:
        target = handle.session(f"async-{number}")
        for _ in range(count):
            await target.append("note", DATA, actor="agent")

    await asyncio.gather(*(one(number) for number in range(sessions)))


def measure_sqlite(folder: Path, rounds: int) -> Rates:
    rates: Rates = {name: [] for name in ("floor", "append", "threads", "group")}
    floor = SqliteFloor(folder / "floor.db")
    loop = asyncio.new_event_loop()
    async_handle = loop.run_until_complete(duramen.aopen(folder / "group.db"))
    # Each measurement uses its own file, so that the WAL checkpoint of one does not slow down the round of another.
    with duramen.open(folder / "append.db") as handle, duramen.open(folder / "threads.db") as shared:
        for _ in range(rounds):
            rates["floor"].append(rate(400, lambda: floor.insert(400)))
            rates["append"].append(rate(400, lambda: append(handle, "one", 400)))
            rates["threads"].append(rate(1600, lambda: in_threads(32, lambda n: append(shared, f"t{n}", 50))))
            rates["group"].append(
                rate(3200, lambda: loop.run_until_complete(append_concurrently(async_handle, 64, 50)))
            )
    loop.run_until_complete(async_handle.close())
    loop.close()
    return rates


@contextmanager
def postgres(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    from duramen.testing.postgres import PostgresServer

    with PostgresServer.start() as server:
        yield server.create_database("bench")


def insert_and_commit(connection: psycopg.Connection[Any], count: int) -> None:
    for _ in range(count):
        connection.execute("INSERT INTO floor (payload) VALUES (%s)", (PAYLOAD,))
        connection.commit()


def measure_postgres(url: str, rounds: int) -> Rates:
    rates: Rates = {name: [] for name in ("floor", "autocommit", "append", "floor_32", "append_32")}
    with ExitStack() as stack:
        raw = [stack.enter_context(psycopg.connect(url)) for _ in range(32)]
        auto = stack.enter_context(psycopg.connect(url, autocommit=True))
        auto.execute("DROP TABLE IF EXISTS floor")
        auto.execute("CREATE TABLE floor (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload bytea)")
        handle = stack.enter_context(duramen.open(url))
        for _ in range(rounds):
            rates["floor"].append(rate(300, lambda: insert_and_commit(raw[0], 300)))
            rates["autocommit"].append(rate(300, lambda: insert_and_commit(auto, 300)))
            rates["append"].append(rate(300, lambda: append(handle, "one", 300)))
            rates["floor_32"].append(rate(960, lambda: in_threads(32, lambda n: insert_and_commit(raw[n], 30))))
            rates["append_32"].append(rate(960, lambda: in_threads(32, lambda n: append(handle, f"t{n}", 30))))
    return rates


def measure_reading(folder: Path, rounds: int, count: int = 100_000) -> tuple[list[float], float]:
    """Events read per second, decoded and verified; and bytes per event in the file, without its payload."""
    path = folder / "read.db"
    drafts = [duramen.Draft("note", DATA, "agent")] * 500
    with duramen.open(path) as handle:
        session = handle.session("long")
        for _ in range(count // len(drafts)):
            session.append_all(drafts)
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()
    overhead = os.path.getsize(path) / count - len(PAYLOAD)
    with duramen.open(path) as handle:
        session = handle.session("long")
        rates = [rate(count, lambda: sum(len(page) for page in session.pages())) for _ in range(rounds)]
    return rates, overhead


def measure_import(rounds: int) -> list[float]:
    """Milliseconds that `import duramen` adds to a bare interpreter."""
    extra = []
    for _ in range(rounds):
        bare, full = (_start("pass"), _start("import duramen"))
        extra.append((full - bare) * 1000)
    return extra


def _start(program: str) -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - began


def measure(rounds: int, url: str | None) -> tuple[dict[str, float], dict[str, Rates]]:
    """The figures, and the measurements behind them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sqlite_rates = measure_sqlite(folder, rounds)
        reading, overhead = measure_reading(folder, rounds)
        with postgres(url) as server:
            postgres_rates = measure_postgres(server, rounds)
    sqlite = {name: statistics.median(values) for name, values in sqlite_rates.items()}
    pg = {name: statistics.median(values) for name, values in postgres_rates.items()}
    figures = {
        "sqlite_append_vs_floor": sqlite["append"] / sqlite["floor"],
        "sqlite_group_vs_floor": sqlite["group"] / sqlite["floor"],
        "sqlite_threads_vs_floor": sqlite["threads"] / sqlite["floor"],
        "postgres_append_vs_floor": pg["append"] / pg["floor"],
        "postgres_32_vs_floor": pg["append_32"] / pg["floor_32"],
        "read_events_per_s": statistics.median(reading),
        "bytes_overhead_per_event": overhead,
        "import_ms": statistics.median(measure_import(2 * rounds)),
    }
    return figures, {"sqlite {} /s": sqlite_rates, "postgres {} /s": postgres_rates}


def main() -> None:
    parser = argparse.ArgumentParser(description="The journal compared with the floor.")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=7, help="number of rounds (default: 7)")
    parser.add_argument("--postgres", metavar="URL", help="a database (default: start a server from pip)")
    chosen = parser.parse_args()
    figures, measurements = measure(chosen.rounds, chosen.postgres)
    print_figures("duramen journal", figures, measurements)
    if chosen.json:
        print(figures_json(figures))


if __name__ == "__main__":
    main()
