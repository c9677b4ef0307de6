"""What row level security costs: every query uses the indexes that it uses without. And what the background costs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from programs.tenants import OURS, fill

import duramen
from duramen.runtime import drive
from duramen.stores.postgres.memories import M
from duramen.stores.postgres.sql import Q

Connection = psycopg.Connection[tuple[Any, ...]]

GROWN = {
    "sessions": ["session"],
    "events": ["position", "key"],
    "blobs": ["address"],
    "subjects": ["ref", "name"],
    "leases": ["session"],
    "cursors": ["outlet"],
    "runs": ["run", "session", "wake"],
    "bookmarks": ["id", "position", "expires"],
    "chunks": ["start"],
    "audiences": ["audience"],
    "memories": ["number", "id", "changed", "key"],
    "index_entries": ["number"],
    "recalls": ["number"],
    "generations": ["generation"],
}
"""Which columns tell the rows of a table apart. Plans for a handful of rows would show nothing."""

VALUES = {"text": "'x' || n", "bigint": "n", "bytea": r"'\x' || lpad(to_hex(n), 8, '0')"}
QUERIES = {
    name: query
    for name, query in sorted((vars(Q) | vars(M)).items())
    if re.match("SELECT|INSERT|UPDATE|DELETE|WITH", query) and re.search(r"workspace = %", query)
}


@pytest.fixture(scope="module")
def connections(module_bound_urls: tuple[str, str]) -> Iterator[tuple[Connection, Connection]]:
    """One that is bound to our workspace, and one that sees everything, in a store that is not small."""
    bound, superuser = module_bound_urls
    fill(bound)
    with psycopg.connect(bound, autocommit=True) as ours, psycopg.connect(superuser, autocommit=True) as free:
        ours.execute("SELECT set_config('duramen.workspace', %s, false)", (OURS,))
        for table, columns in GROWN.items():
            _grow(free, f"duramen.{table}", columns)
        free.execute("ANALYZE")
        yield ours, free


def _grow(connection: Connection, table: str, columns: list[str], workspace: str = OURS) -> None:
    query = "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = %s::regclass"
    types = dict(connection.execute(query, (table,)).fetchall())
    other = ", ".join(f"'{column}', {VALUES[types[column]]}" for column in columns)
    connection.execute(
        f"""
        INSERT INTO {table} OVERRIDING SYSTEM VALUE
        SELECT (jsonb_populate_record(t, jsonb_build_object({other}))).* FROM {table} t, generate_series(1000, 5000) n
        WHERE t.ctid = (SELECT min(ctid) FROM {table} WHERE workspace = %s)
        """.encode(),
        (workspace,),
    )


def _numbered(query: str) -> str:
    """A query of ours with the parameters as PostgreSQL names them."""
    names: dict[str, int] = {}
    query = re.sub(r"%\((\w+)\)s", lambda found: f"${names.setdefault(found[1], len(names) + 1)}", query)
    numbers = iter(range(len(names) + 1, 99))
    query = re.sub("%s", lambda _: f"${next(numbers)}", query)
    return query.replace("CONDITIONS", "true")


def _plan(connection: Connection, query: str) -> str:
    with connection.transaction(force_rollback=True):
        for kind in ("seqscan", "bitmapscan", "memoize"):
            connection.execute(f"SET LOCAL enable_{kind} = off".encode())
        lines = [row[0] for row in connection.execute(f"EXPLAIN (GENERIC_PLAN, COSTS OFF) {query}".encode())]
    return re.sub(r"\((\$\d+)\)::text", r"\1", "\n".join(lines))


def _scans(plan: str) -> list[str]:
    """Which indexes are used, under which conditions, and what is left to a filter, but for what the policy asks."""
    lines = [line.strip(" ->").replace(POLICY, "") for line in plan.splitlines()]
    return sorted(line for line in lines if re.match(r"(?!One-Time).*( Scan |Cond: |Filter: )", line))


POLICY = " AND (workspace = current_setting('duramen.workspace'::text))"


@pytest.mark.promise("G4")
@pytest.mark.parametrize("name", QUERIES)
def test_a_query_uses_the_same_indexes_under_the_policies(
    connections: tuple[Connection, Connection], name: str
) -> None:
    bound, free = (_plan(connection, _numbered(QUERIES[name])) for connection in connections)
    assert _scans(bound) == _scans(free), f"{bound}\n\nwithout policies:\n{free}"
    assert "current_setting('duramen.workspace'" in bound
    assert "current_setting" not in free


@pytest.mark.promise("B2")
def test_what_waits_for_a_vector_is_found_without_reading_what_does_not(postgres_url: str) -> None:
    scans = "SELECT seq_scan, seq_tup_read FROM pg_stat_user_tables WHERE relid = 'duramen.memories'::regclass"
    with duramen.open(postgres_url, embedder="none") as dm, psycopg.connect(postgres_url, autocommit=True) as free:
        store: Any = dm.memory._core._service.journal.store
        dm.memory.remember("one of many")
        _grow(free, "duramen.memories", GROWN["memories"], dm.workspace)
        free.execute("UPDATE duramen.memories SET indexed = 1")
        free.execute(
            "INSERT INTO duramen.index_entries SELECT workspace, audience, number, 1, '', NULL, '' FROM duramen.memories"
        )
        free.execute("VACUUM ANALYZE duramen.memories, duramen.index_entries")
        before = free.execute(scans).fetchall()
        for _ in range(8):
            assert drive(store.unindexed(dm.workspace, 1, 32)) == []
            assert drive(store.count_unindexed(dm.workspace, 1)) == 0
        with store.pool.connection() as connection:
            connection.execute("SELECT pg_stat_force_next_flush()")
        assert free.execute(scans).fetchall() == before
