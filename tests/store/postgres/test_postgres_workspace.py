"""The schema can be distributed by workspace: every key begins with it and every query binds it."""

from __future__ import annotations

import re
from pathlib import Path

import psycopg
import pytest
import sqlglot
from sqlglot import exp

import duramen
from duramen.stores import postgres
from duramen.stores.common.sql_file import load_queries

FOLDER = Path(postgres.__file__).parent
QUERIES = {
    f"{path.stem}.{name}": text
    for path in sorted(FOLDER.glob("*.sql"))
    for name, text in vars(load_queries(path)).items()
}
PLACEHOLDERS = {"WORDED": "duramen.worded", "MASK": "0", "SCORE": "0", "DISTANCE": "1", "LATELY": "LATELY"}
ALL_WORKSPACES = re.compile(
    r"\.(all_\w+|orphan_\w+|misplaced_\w+|missing_\w+|miscounted_\w+|disorder|displaced|list_workspaces)$"
)
"""Integrity checks and the list of workspaces read every workspace, one at a time."""
SCOPES = (exp.Select, exp.Update, exp.Delete)
Scope = exp.Expression


def parse(text: str) -> list[Scope]:
    """The syntax trees of a query, with its placeholders replaced."""
    lately = QUERIES["retrieval.lately"]
    text = re.sub(r"%\((\w+)\)s|%s", "'value'", text.replace("LATELY", lately))
    placeholders = r"\b(AUDIENCES|CONDITIONS|FILTERS|WORDS|LATE|WORDED|MASK|SCORE|DISTANCE)\b"
    text = re.sub(placeholders, lambda match: PLACEHOLDERS.get(match[0], "true"), text)
    text = text.replace("OVERRIDING SYSTEM VALUE", "")
    return [tree for tree in sqlglot.parse(text, dialect="postgres") if tree is not None]


def scope_of(node: Scope) -> Scope | None:
    """The innermost query that contains a node."""
    above = node.parent
    while above is not None and not isinstance(above, SCOPES):
        above = above.parent
    return above


def tables_of(tree: Scope) -> list[exp.Table]:
    return [table for table in tree.find_all(exp.Table) if table.db == "duramen" and table.name != "meta"]


def is_required(condition: Scope) -> bool:
    """Whether a condition must hold for each row: no OR and no NOT is above it in its query."""
    above = condition.parent
    while isinstance(above, exp.And | exp.Paren):
        above = above.parent
    return isinstance(above, exp.Where | exp.Join)


def table_of_alias(scope: Scope | None, alias: str) -> exp.Table | None:
    """The table of an alias in a query or in the queries around it. None for a subquery."""
    while scope is not None:
        for table in tables_of(scope):
            if scope_of(table) is scope and table.alias_or_name == alias:
                return table
        scope = scope_of(scope)
    return None


def unbound_tables(tree: Scope, all_workspaces: bool) -> list[str]:
    """The tables of a query whose workspace is neither a parameter nor that of a bound table in the same query.

    A table of an outer query is not enough, because planners do not pass the value into every subquery. It is enough
    if the query reads `all_workspaces`.
    """
    tables = tables_of(tree)
    bound = {id(table) for table in tables if is_target(table)}
    if all_workspaces:
        roots = [table for table in tables if (scope := scope_of(table)) is not None and is_outermost(scope)]
        first: dict[int, exp.Table] = {}
        for table in roots:
            first.setdefault(id(scope_of(table)), table)
        bound |= {id(table) for table in first.values()}
    pairs = []
    for comparison in tree.find_all(exp.EQ):
        sides = [
            side
            for side in (comparison.left, comparison.right)
            if isinstance(side, exp.Column) and side.name == "workspace"
        ]
        if sides and is_required(comparison):
            pairs.append((comparison, sides))
    progress = True
    while progress:
        progress = False
        for comparison, sides in pairs:
            scope = scope_of(comparison)
            column_tables = [table_of_column(scope, side) for side in sides]
            given = len(sides) == 1 and isinstance(
                comparison.right if sides[0] is comparison.left else comparison.left, exp.Literal | exp.Cast
            )
            same_query = [
                table for table in column_tables if all_workspaces or table is None or scope_of(table) is scope
            ]
            known = given or any(table is None or id(table) in bound for table in same_query)
            for table in column_tables:
                if known and table is not None and id(table) not in bound:
                    bound.add(id(table))
                    progress = True
    return [table.sql() for table in tables if id(table) not in bound]


def is_outermost(scope: Scope) -> bool:
    return scope_of(scope) is None


def table_of_column(scope: Scope | None, column: exp.Column) -> exp.Table | None:
    """The table of a column. A column without an alias belongs to the only table of its query."""
    if column.table:
        return table_of_alias(scope, column.table)
    own = [table for table in tables_of(scope) if scope_of(table) is scope] if scope is not None else []
    return own[0] if own else None


def is_target(table: exp.Table) -> bool:
    """Whether rows with a workspace are inserted into a table."""
    schema = table.parent
    return (
        isinstance(schema, exp.Schema)
        and isinstance(schema.parent, exp.Insert)
        and schema.expressions[0].name == "workspace"
    )


@pytest.mark.parametrize("name", sorted(QUERIES))
def test_every_query_binds_the_workspace_of_each_table(name: str) -> None:
    text = QUERIES[name]
    if "duramen." not in text or name in ("retrieval.lately",) or re.match(r"(CREATE|DROP) INDEX", text):
        return
    for tree in parse(text):
        assert unbound_tables(tree, ALL_WORKSPACES.search(name) is not None) == []


@pytest.mark.parametrize(
    ("query", "unbound"),
    [
        ("SELECT 1 FROM duramen.events", ["duramen.events"]),
        ("SELECT 1 FROM duramen.events WHERE workspace = %s OR session = %s", ["duramen.events"]),
        (
            "SELECT 1 FROM duramen.events WHERE workspace = %s AND session IN (SELECT session FROM duramen.runs)",
            ["duramen.runs"],
        ),
        (
            "SELECT 1 FROM duramen.events e JOIN duramen.runs r ON r.session = e.session WHERE e.workspace = %s",
            ["duramen.runs AS r"],
        ),
        (
            "WITH a AS (SELECT 1 FROM duramen.leases) DELETE FROM duramen.events WHERE workspace = %s",
            ["duramen.leases"],
        ),
        ("INSERT INTO duramen.runs (run) VALUES (%s)", ["duramen.runs"]),
        ("SELECT 1 FROM duramen.events e JOIN duramen.runs r ON r.workspace = e.workspace WHERE e.workspace = %s", []),
    ],
)
def test_a_query_without_a_workspace_is_detected(query: str, unbound: list[str]) -> None:
    (tree,) = parse(query)
    assert unbound_tables(tree, all_workspaces=False) == unbound


UNIQUE = """
    SELECT c.relname, (SELECT attname FROM pg_attribute WHERE attrelid = i.indrelid AND attnum = i.indkey[0])
    FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_class t ON t.oid = i.indrelid
    WHERE t.relnamespace = 'duramen'::regnamespace AND t.relname <> 'meta' AND i.indisunique"""
INHERITED = """
    SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE c.relnamespace = 'duramen'::regnamespace AND NOT c.relispartition"""
KEYLESS = """
    SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'duramen'::regnamespace AND c.relkind = 'r'
    AND NOT EXISTS (SELECT 1 FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary)"""


def test_every_key_begins_with_the_workspace(postgres_url: str) -> None:
    duramen.open(postgres_url).close()
    with psycopg.connect(postgres_url) as connection:
        keys = dict(connection.execute(UNIQUE).fetchall())
        assert len(keys) > 15
        assert set(keys.values()) == {"workspace"}, keys
        assert connection.execute(KEYLESS).fetchall() == []
        assert connection.execute(INHERITED).fetchall() == [], "no table inherits from another"
