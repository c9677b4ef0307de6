"""Query plans: row level security does not change the indexes that a query uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from programs.tenants import OURS, fill_workspaces

import duramen
from duramen.runtime import drive
from duramen.stores.postgres.memories import M
from duramen.stores.postgres.sql import Q

Connection = psycopg.Connection[tuple[Any, ...]]

KEY_COLUMNS = {
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
"""The columns that distinguish the rows of a table. Plans for a few rows would not use indexes."""

VALUES = {"text": "'x' || n", "bigint": "n", "bytea": r"'\x' || lpad(to_hex(n), 8, '0')"}
QUERIES = {
    name: query
    for name, query in sorted((vars(Q) | vars(M)).items())
    if re.match("SELECT|INSERT|UPDATE|DELETE|WITH", query) and re.search(r"workspace = %", query)
}


@pytest.fixture(scope="module")
def connections(module_bound_urls: tuple[str, str]) -> Iterator[tuple[Connection, Connection]]:
    """A connection that is restricted to our workspace and a superuser's, in a store with many rows."""
    bound, superuser = module_bound_urls
    fill_workspaces(bound)
    with psycopg.connect(bound, autocommit=True) as ours, psycopg.connect(superuser, autocommit=True) as unrestricted:
        ours.execute("SELECT set_config('duramen.workspace', %s, false)", (OURS,))
        for table, columns in KEY_COLUMNS.items():
            _add_rows(unrestricted, f"duramen.{table}", columns)
        unrestricted.execute("ANALYZE")
        yield ours, unrestricted


def _add_rows(connection: Connection, table: str, columns: list[str], workspace: str = OURS) -> None:
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


def _with_numbered_parameters(query: str) -> str:
    """A query with its parameters as $1, $2, …"""
    names: dict[str, int] = {}
    query = re.sub(r"%\((\w+)\)s", lambda match: f"${names.setdefault(match[1], len(names) + 1)}", query)
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
    """The scans of a plan with their conditions and filters, without the condition of the policy."""
    lines = [line.strip(" ->").replace(POLICY, "") for line in plan.splitlines()]
    return sorted(line for line in lines if re.match(r"(?!One-Time).*( Scan |Cond: |Filter: )", line))


POLICY = " AND (workspace = current_setting('duramen.workspace'::text))"


@pytest.mark.promise("G4")
@pytest.mark.parametrize("name", QUERIES)
def test_a_query_uses_the_same_indexes_with_row_security(connections: tuple[Connection, Connection], name: str) -> None:
    bound, unrestricted = (_plan(connection, _with_numbered_parameters(QUERIES[name])) for connection in connections)
    assert _scans(bound) == _scans(unrestricted), f"{bound}\n\nwithout row security:\n{unrestricted}"
    assert "current_setting('duramen.workspace'" in bound
    assert "current_setting" not in unrestricted


@pytest.mark.promise("B2")
def test_memories_without_a_vector_are_found_without_a_table_scan(postgres_url: str) -> None:
    scans = "SELECT seq_scan, seq_tup_read FROM pg_stat_user_tables WHERE relid = 'duramen.memories'::regclass"
    with (
        duramen.open(postgres_url, embedder="none") as dm,
        psycopg.connect(postgres_url, autocommit=True) as unrestricted,
    ):
        store: Any = dm.memory._core._service.journal.store
        dm.memory.remember("one of many")
        _add_rows(unrestricted, "duramen.memories", KEY_COLUMNS["memories"], dm.workspace)
        unrestricted.execute("UPDATE duramen.memories SET indexed = 1")
        unrestricted.execute(
            "INSERT INTO duramen.index_entries "
            "SELECT workspace, audience, number, 1, '', NULL, '' FROM duramen.memories"
        )
        unrestricted.execute("VACUUM ANALYZE duramen.memories, duramen.index_entries")
        before = unrestricted.execute(scans).fetchall()
        for _ in range(8):
            assert drive(store.unindexed(dm.workspace, 1, 32)) == []
            assert drive(store.count_unindexed(dm.workspace, 1)) == 0
        with store.pool.connection() as connection:
            connection.execute("SELECT pg_stat_force_next_flush()")
        assert unrestricted.execute(scans).fetchall() == before
