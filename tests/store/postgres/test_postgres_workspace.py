"""The schema can be distributed by workspace: every key begins with it, and every query binds it."""

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
MARKS = {"WORDED": "duramen.worded", "MASK": "0", "SCORE": "0", "DISTANCE": "1", "LATELY": "LATELY"}
FREE = re.compile(
    r"\.(all_\w+|orphan_\w+|misplaced_\w+|missing_\w+|miscounted_\w+|disorder|displaced|list_workspaces)$"
)
"""Integrity checks, and the list of workspaces: they look at every workspace, each by itself."""
SCOPES = (exp.Select, exp.Update, exp.Delete)
Scope = exp.Expression


def parsed(text: str) -> list[Scope]:
    """A query as a tree, with marks and placeholders replaced."""
    lately = QUERIES["retrieval.lately"]
    text = re.sub(r"%\((\w+)\)s|%s", "'value'", text.replace("LATELY", lately))
    marks = r"\b(AUDIENCES|CONDITIONS|FILTERS|WORDS|LATE|WORDED|MASK|SCORE|DISTANCE)\b"
    text = re.sub(marks, lambda found: MARKS.get(found[0], "true"), text)
    text = text.replace("OVERRIDING SYSTEM VALUE", "")
    return [one for one in sqlglot.parse(text, dialect="postgres") if one is not None]


def scope_of(node: Scope) -> Scope | None:
    """The query that a part belongs to."""
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


def visible(scope: Scope | None, alias: str) -> exp.Table | None:
    """The table that an alias stands for in a query or in those around it; None for a subquery."""
    while scope is not None:
        for table in tables_of(scope):
            if scope_of(table) is scope and table.alias_or_name == alias:
                return table
        scope = scope_of(scope)
    return None


def unbound(tree: Scope, free: bool) -> list[str]:
    """The tables of a query whose workspace is neither given nor that of a bound table in the same query. That of a table in
    the query around it is not enough, unless the query is `free`: no planner carries it into every subquery."""
    tables = tables_of(tree)
    bound = {id(table) for table in tables if is_target(table)}
    if free:
        roots = [table for table in tables if (scope := scope_of(table)) is not None and is_outermost(scope)]
        first: dict[int, exp.Table] = {}
        for table in roots:
            first.setdefault(id(scope_of(table)), table)
        bound |= {id(table) for table in first.values()}
    pairs = []
    for one in tree.find_all(exp.EQ):
        sides = [side for side in (one.left, one.right) if isinstance(side, exp.Column) and side.name == "workspace"]
        if sides and is_required(one):
            pairs.append((one, sides))
    changed = True
    while changed:
        changed = False
        for one, sides in pairs:
            scope = scope_of(one)
            named = [resolved(scope, side) for side in sides]
            given = len(sides) == 1 and isinstance(
                one.right if sides[0] is one.left else one.left, exp.Literal | exp.Cast
            )
            near = [table for table in named if free or table is None or scope_of(table) is scope]
            known = given or any(table is None or id(table) in bound for table in near)
            for table in named:
                if known and table is not None and id(table) not in bound:
                    bound.add(id(table))
                    changed = True
    return [table.sql() for table in tables if id(table) not in bound]


def is_outermost(scope: Scope) -> bool:
    return scope_of(scope) is None


def resolved(scope: Scope | None, column: exp.Column) -> exp.Table | None:
    """The table of a column. Without an alias it is the only one of its query."""
    if column.table:
        return visible(scope, column.table)
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
def test_a_query_binds_the_workspace_of_every_table(name: str) -> None:
    text = QUERIES[name]
    if "duramen." not in text or name in ("retrieval.lately",) or re.match(r"(CREATE|DROP) INDEX", text):
        return
    for tree in parsed(text):
        assert unbound(tree, FREE.search(name) is not None) == []


@pytest.mark.parametrize(
    ("query", "found"),
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
def test_a_query_that_does_not_is_found(query: str, found: list[str]) -> None:
    (tree,) = parsed(query)
    assert unbound(tree, free=False) == found


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
