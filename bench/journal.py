"""How fast the journal is, beside the floor: the same bytes in a bare insert-and-commit loop.

    python bench/journal.py [--json] [--rounds N] [--postgres URL]

Everything is measured interleaved, round by round, in one run on one disk; the figures are ratios of medians.
Without --postgres a server from pip is started for the run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
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
from rich.console import Console
from rich.table import Table

import duramen

DATA = {"role": "user", "content": "The quick brown fox books a flight to Lisbon. " * 3, "turn": 7, "tools": ["search"]}
PAYLOAD = b"\0" + msgspec.msgpack.encode(DATA)
MUST = {
    "sqlite_append_vs_floor": (">=", 0.8),
    "sqlite_group_vs_floor": (">=", 6.0),
    "sqlite_threads_vs_floor": (">=", 4.0),
    "postgres_append_vs_floor": (">=", 0.8),
    "postgres_32_vs_floor": (">=", 0.8),
    "read_events_per_s": (">=", 150_000.0),
    "bytes_overhead_per_event": ("<=", 150.0),
    "import_ms": ("<=", 80.0),
}


def rate(count: int, work: Callable[[], Any]) -> float:
    """Operations a second of `work`, which does `count` of them."""
    began = time.perf_counter()
    work()
    return count / (time.perf_counter() - began)


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


async def append_looping(handle: duramen.AsyncDuramen, sessions: int, count: int) -> None:
    async def one(number: int) -> None:
        target = handle.session(f"async-{number}")
        for _ in range(count):
            await target.append("note", DATA, actor="agent")

    await asyncio.gather(*(one(number) for number in range(sessions)))


def measure_sqlite(folder: Path, rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in ("floor", "append", "threads", "group")}
    floor = SqliteFloor(folder / "floor.db")
    loop = asyncio.new_event_loop()
    looping = loop.run_until_complete(duramen.aopen(folder / "group.db"))
    # Each in a file of its own: a checkpoint that one of them earned must not fall into another's round.
    with duramen.open(folder / "append.db") as handle, duramen.open(folder / "threads.db") as shared:
        for _ in range(rounds):
            found["floor"].append(rate(400, lambda: floor.insert(400)))
            found["append"].append(rate(400, lambda: append(handle, "one", 400)))
            found["threads"].append(rate(1600, lambda: in_threads(32, lambda n: append(shared, f"t{n}", 50))))
            found["group"].append(rate(3200, lambda: loop.run_until_complete(append_looping(looping, 64, 50))))
    loop.run_until_complete(looping.close())
    loop.close()
    return found


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


def measure_postgres(url: str, rounds: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in ("floor", "autocommit", "append", "floor_32", "append_32")}
    with ExitStack() as stack:
        raw = [stack.enter_context(psycopg.connect(url)) for _ in range(32)]
        auto = stack.enter_context(psycopg.connect(url, autocommit=True))
        auto.execute("DROP TABLE IF EXISTS floor")
        auto.execute("CREATE TABLE floor (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload bytea)")
        handle = stack.enter_context(duramen.open(url))
        for _ in range(rounds):
            found["floor"].append(rate(300, lambda: insert_and_commit(raw[0], 300)))
            found["autocommit"].append(rate(300, lambda: insert_and_commit(auto, 300)))
            found["append"].append(rate(300, lambda: append(handle, "one", 300)))
            found["floor_32"].append(rate(960, lambda: in_threads(32, lambda n: insert_and_commit(raw[n], 30))))
            found["append_32"].append(rate(960, lambda: in_threads(32, lambda n: append(handle, f"t{n}", 30))))
    return found


def measure_reading(folder: Path, rounds: int, count: int = 100_000) -> tuple[list[float], float]:
    """Events a second, decoded and verified; and bytes in the file over the payload of each event."""
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


def measure(rounds: int, url: str | None) -> tuple[dict[str, float], dict[str, float]]:
    """The figures that must be reached, and the plain rates behind them."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sqlite = {key: statistics.median(values) for key, values in measure_sqlite(folder, rounds).items()}
        reading, overhead = measure_reading(folder, rounds)
        with postgres(url) as server:
            pg = {key: statistics.median(values) for key, values in measure_postgres(server, rounds).items()}
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
    rates = {f"sqlite {key} /s": value for key, value in sqlite.items()}
    rates |= {f"postgres {key} /s": value for key, value in pg.items()}
    return figures, rates


def show(figures: dict[str, float], rates: dict[str, float]) -> None:
    console = Console()
    table = Table(title="duramen journal")
    for column in ("figure", "measured", "must reach", ""):
        table.add_column(column, justify="left" if column == "figure" else "right")
    for name, value in figures.items():
        sign, bound = MUST[name]
        kept = value >= bound if sign == ">=" else value <= bound
        table.add_row(name, f"{value:,.2f}", f"{sign} {bound:,g}", "[green]yes" if kept else "[red]no")
    for name, value in rates.items():
        table.add_row(f"[dim]{name}", f"[dim]{value:,.0f}", "", "")
    console.print(table)


def main() -> None:
    arguments = argparse.ArgumentParser(description="The journal beside the floor.")
    arguments.add_argument("--json", action="store_true", help="one JSON object on the last line")
    arguments.add_argument("--rounds", type=int, default=7, help="how often each is measured (7)")
    arguments.add_argument("--postgres", metavar="URL", help="a server to use instead of one from pip")
    chosen = arguments.parse_args()
    figures, rates = measure(chosen.rounds, chosen.postgres)
    show(figures, rates)
    if chosen.json:
        print(json.dumps({name: round(value, 3) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
