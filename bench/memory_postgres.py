"""The speed of recalls from a million memories on PostgreSQL.

    python bench/memory_postgres.py [--json] [--size N] [--no-index] [--postgres URL [--filled]]

Recalls are filtered by a subject with 1 % of the memories: many subjects in turn, then one subject repeatedly. Another
figure is without a filter. The times include the embedding of the question.

Appending a million memories one by one would take most of an hour. So the benchmark appends them through the public
API, but collects the rows that the store would write and copies them in bulk, in two processes. The vectors are random.
Their values do not affect the time of a comparison, but random vectors are the worst case for the index.

Background work of the store (segments, the index over codes) is complete before the recalls begin. A separate process
opens the filled store, measures the recalls and does nothing else. Only recalls without a filter use that index, and
building it takes long. With --no-index it is not built, and that figure is left out.

Without --postgres the benchmark starts a server from pip. It may use a quarter of the machine's memory, and it has read
all tables once, so the figures are those of a server with warm caches. A database given with --postgres stays filled;
use it again with --filled.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from figures import print_figures
from memory import SUBJECTS, Quick, Speech

import duramen
from duramen.embedders import load_embedder
from duramen.memory.catalog.memory_event import memory_data
from duramen.memory.index.index_entry import pack_vectors, read_term_stats
from duramen.ports import GENESIS, Batch, Head, MemoryChanges, MemoryRow, Record, Stored
from duramen.runtime import drive
from duramen.stores.common.memory_rows import entering
from duramen.stores.common.row_checksum import checksum
from duramen.stores.postgres import searchable
from duramen.stores.postgres.append import add_session

FIGURES = (
    "recall_p95_ms_1m_postgres",
    "recall_p95_ms_1m_postgres_one_subject",
    "first_recall_ms_10k_of_1m_postgres",
    "recall_p95_ms_1m_postgres_unfiltered",
    "filling_s",
    "packing_s",
    "indexing_s",
    "bytes_per_item_postgres",
)
QUESTIONS = 120
TOGETHER = 1_000
_MOVE_SESSION = """
    UPDATE duramen.sessions SET head = %s, hash = %s, tx = greatest(tx, pg_current_xact_id())
    WHERE workspace = %s AND session = %s RETURNING tx::text"""
_EVENT = "workspace session position type time actor cause key subject payload payload_hash hash tx seq feed_check"
_MEMORY = """workspace audience number id session position kind key owner recorded begins ends expires importance
    confidence confirmed times closed successor changed indexed checksum"""
_INDEX_ENTRY = "workspace audience number generation words vector checksum"
_SEARCHABLE = """workspace generation audience number kind session position begins opens ends expires hidden draw length
    metadata terms code checksum"""


class Bulk:
    """Replaces the store's `append`: collects the rows that it would write and copies them in bulk."""

    def __init__(self, dm: duramen.Duramen, url: str, embedder: Quick) -> None:
        self._journal: Any = dm.memory._core._service.journal
        self._codec: Any = dm.memory._core._service.codec
        self._generation = drive(dm.memory._core._service.embedder.generation())
        self._embedder = embedder
        self._connection = psycopg.connect(url)
        self._heads: dict[str, Head] = {}
        self._records: list[tuple[str, Record]] = []
        self._rows: list[MemoryRow] = []

    async def append(self, request: Batch) -> Stored:
        """Like a store's `append`, but not durable until `flush`. There must be no other writer."""
        head = self._heads.get(request.session)
        if head is None:
            head = Head(0, GENESIS)
            add_session(self._connection, (request.workspace, request.session), request.now, None, head)
        records = request.place(head)
        self._heads[request.session] = Head(records[-1].position, records[-1].hash)
        self._records += [(request.session, record) for record in records]
        for change in request.changes:
            assert isinstance(change, MemoryChanges)
            self._rows += [row._replace(session=request.session) for row in entering(change, records)]
        return Stored(records)

    def flush(self, texts: dict[int, dict[str, Any]]) -> None:
        """Copy the memories of one subject. Each counts two changes: the memory and its index entry."""
        cursor, workspace = self._connection.cursor(), self._journal.workspace
        count, audience, session = len(self._rows), self._rows[0].audience, self._rows[0].session
        for_numbers = "SELECT nextval(%s) FROM generate_series(1, %s)"
        numbers = [row[0] for row in cursor.execute(for_numbers, ("duramen.memories_number_seq", count))]
        seqs = [row[0] for row in cursor.execute(for_numbers, ("duramen.feed", len(self._records)))]
        head = self._heads[session]
        tx: Any = cursor.execute(_MOVE_SESSION, (head.position, head.hash, workspace, session)).fetchone()
        events = [
            (workspace, one, *_event(record), tx[0], seq, _feed_check(tx[0], seq, record.hash))
            for (one, record), seq in zip(self._records, seqs, strict=True)
        ]
        self._copy("events", _EVENT, events)
        cursor.execute(
            "INSERT INTO duramen.audiences VALUES (%s, %s, %s, %s)",
            (workspace, audience, 2 * count, checksum(workspace, audience, 2 * count)),
        )
        owner = drive(self._journal.bookmarks.owner_of(self._rows[0].owner))
        vectors = pack_vectors(self._embedder.embed([""] * count) if count > 1 else self._embedder.embed(["", ""]))
        memories, index_entries, search_fields = list[Any](), list[Any](), list[Any]()
        secret = searchable.made_secret(self._connection, workspace)
        for at, (given, number) in enumerate(zip(self._rows, numbers, strict=True)):
            row = given._replace(number=number, changed=count + at + 1)
            fields: tuple[Any, ...] = (workspace, row.audience, number, *row[1:18], self._generation)
            memories.append((*fields, checksum(*fields)))
            stats = read_term_stats(texts[row.position], row.begins)
            index_entry = self._codec.index_entry(row, stats, vectors[at], owner, self._generation)
            fields = (workspace, row.audience, number, self._generation, index_entry.words, index_entry.vector)
            index_entries.append((*fields, checksum(*fields)))
            search_fields.append(
                searchable.columns(workspace, secret, self._generation, row, index_entry.search_fields)
            )
        self._copy("memories", _MEMORY, memories)
        self._copy("index_entries", _INDEX_ENTRY, index_entries)
        self._copy("searchable", _SEARCHABLE, search_fields)
        self._connection.commit()
        self._records, self._rows = [], []

    def _copy(self, table: str, columns: str, rows: list[Any]) -> None:
        named = ", ".join(columns.split())
        with self._connection.cursor().copy(f"COPY duramen.{table} ({named}) FROM STDIN".encode()) as copy:
            for row in rows:
                copy.write_row(row)


def _event(record: Record) -> tuple[Any, ...]:
    return (*record[:4], None if record.cause is None else str(record.cause), *record[5:])


def _feed_check(tx: str, seq: int, hash: bytes) -> bytes:
    return hashlib.sha256(f"{tx}:{seq}".encode() + hash).digest()[:8]


def spoken(seed: int) -> Speech:
    """Texts of the same words with another seed, so that questions match stored memories."""
    speech = Speech(2)
    speech._chance.seed(seed)
    return speech


def fill(url: str, first: int, last: int, each: int) -> None:
    """Store the memories of the subjects from `first` up to `last`."""
    embedder, speech = Quick(None), spoken(1_000 + first)
    with duramen.open(url, embedder=embedder) as dm:
        dm.memory._core._service.index_worker.stop()  # building the index during the inserts takes much longer
        bulk = Bulk(dm, url, embedder)
        store: Any = bulk._journal.store
        store.append = bulk.append
        for subject in range(first, last):
            session = dm.session(f"of {subject}")
            texts: dict[int, dict[str, Any]] = {}
            for done in range(0, each, TOGETHER):
                data = [memory_data(speech.text(), "fact", {}) for _ in range(min(TOGETHER, each - done))]
                texts |= dict(enumerate(data, done + 1))
                session.append_all([duramen.Draft("memory.added", one) for one in data], subject=f"subject {subject}")
            bulk.flush(texts)


def fill_in_processes(url: str, size: int) -> dict[str, float]:
    """Fill a store with two processes. Returns the figure of the time."""
    with duramen.open(url, embedder=Quick(None)) as dm:
        dm.memory.recall("the first one makes the generation")
    began = time.perf_counter()
    half, each = SUBJECTS // 2, size // SUBJECTS
    with psycopg.connect(url, autocommit=True) as connection:
        made: Any = connection.execute("SELECT pg_get_indexdef('duramen.searchable_terms'::regclass)").fetchone()
        connection.execute("DROP INDEX duramen.searchable_terms")
        children = [
            subprocess.Popen([sys.executable, __file__, "--fill", f"{first},{first + half},{each}", "--postgres", url])
            for first in (0, half)
        ]
        if any(child.wait() for child in children):
            sys.exit("a process that fills the store failed")
        connection.execute(made[0])
        connection.execute("VACUUM ANALYZE")
    return {"filling_s": time.perf_counter() - began}


def build_index(url: str, size: int, index: bool) -> dict[str, float]:
    """Do the background work of a filled store: segments and, with `index`, the index over codes. Returns the figures
    of times and sizes."""
    with duramen.open(url, embedder=Quick(None)) as dm:
        service: Any = dm.memory._core._service
        service.index_worker.stop()
        began = time.perf_counter()
        drive(service.index_worker.write_segments())
        figures = {"packing_s": time.perf_counter() - began}
        if index:
            began = time.perf_counter()
            service.index_worker._maintain_now(service.journal.store.retriever)
            figures["indexing_s"] = time.perf_counter() - began
    with psycopg.connect(url, autocommit=True) as connection:
        size_of: Any = connection.execute(
            "SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relnamespace = 'duramen'::regnamespace"
            " AND relkind = 'r'"
        ).fetchone()
        connection.execute("CHECKPOINT")  # otherwise it could run during the recalls
    return figures | {"bytes_per_item_postgres": float(size_of[0]) / size}


def warm_up(url: str) -> None:
    """Make the server read all tables, so that they are in its cache if they fit."""
    with psycopg.connect(url, autocommit=True) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'duramen'").fetchall()
        connection.execute("SET enable_indexonlyscan = off")
        connection.execute("SET enable_indexscan = off")
        for (table,) in tables:
            connection.execute(f"SELECT count(*) FROM duramen.{table}".encode())


def measure_recalls(url: str, index: bool) -> dict[str, float]:
    """The figures of recalls from a filled store, in this process."""
    with duramen.open(url, embedder=Quick(load_embedder("minilm"))) as dm:
        if not index:
            dm.memory._core._service.index_worker._next_maintenance = float("inf")
        dm.memory.recall("warm", subject="nobody")
        began = time.perf_counter()
        dm.memory.recall(spoken(5).text(4), subject="subject 3")
        first = 1e3 * (time.perf_counter() - began)
        subjects = [f"subject {number * 37 % SUBJECTS}" for number in range(QUESTIONS)]
        figures = {
            "recall_p95_ms_1m_postgres": p95(dm, [{"subject": one} for one in subjects]),
            "recall_p95_ms_1m_postgres_one_subject": p95(dm, [{"subject": "subject 3"}] * QUESTIONS),
            "first_recall_ms_10k_of_1m_postgres": first,
        }
        if index:
            everybody = [{"everyone": True}] * (QUESTIONS // 2)
            figures["recall_p95_ms_1m_postgres_unfiltered"] = p95(dm, everybody, warm=True)
        return figures


def p95(dm: duramen.Duramen, whose: list[dict[str, Any]], warm: bool = False) -> float:
    """The 95th percentile of recalls, in milliseconds. It includes the first recall of each audience, unless `warm`."""
    speech, took = spoken(3), []
    if warm:
        dm.memory.recall(speech.text(4), **whose[0])
    for one in whose:
        question = speech.text(4)
        began = time.perf_counter()
        dm.memory.recall(question, **one)
        took.append(1e3 * (time.perf_counter() - began))
    return statistics.quantiles(took, n=20)[-1]


@contextmanager
def database(given: str | None) -> Iterator[str]:
    """The URL of the given database, or of one on a new server."""
    if given is not None:
        yield given
        return
    from duramen.testing.postgres import PostgresServer

    room = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4 // 2**20
    settings = {"shared_buffers": f"{max(128, room)}MB", "max_wal_size": "8GB"}
    with PostgresServer.start(settings) as server:
        yield server.create_database("bench")


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    parser.add_argument("--size", type=int, default=1_000_000, help="number of memories (default: 1000000)")
    parser.add_argument("--postgres", metavar="URL", help="an empty database; with --filled, a database filled before")
    parser.add_argument("--filled", action="store_true", help="the database is filled: measure recalls only")
    parser.add_argument("--no-index", action="store_true", help="do not build the index over codes; omit its figures")
    parser.add_argument("--fill", help=argparse.SUPPRESS)
    parser.add_argument("--ask", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fill:
        fill(given.postgres, *map(int, given.fill.split(",")))
    elif given.ask:
        print(json.dumps(measure_recalls(given.postgres, not given.no_index)))
    else:
        figures: dict[str, float | None] = dict.fromkeys(FIGURES)
        with database(given.postgres) as url:
            if not given.filled:
                figures |= fill_in_processes(url, given.size) | build_index(url, given.size, not given.no_index)
            warm_up(url)
            command = [sys.executable, __file__, "--ask", "--postgres", url, *(["--no-index"] * given.no_index)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            figures |= json.loads(done.stdout.splitlines()[-1])
        print_figures("Memory on PostgreSQL", figures, {})
        if given.json:
            print(json.dumps(figures))


if __name__ == "__main__":
    main()
