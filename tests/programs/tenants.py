"""Two workspaces in one PostgreSQL database, both with rows in every table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

import duramen
from duramen.memory.index import segment_writer

from .child_processes import until
from .memory_handles import finish_indexing, open_memory

OURS, THEIRS = "north", 'it\'s\\south\nof "here"'
"""The second name needs quoting."""

TABLES = """
    SELECT c.relname FROM pg_class c
    WHERE c.relnamespace = 'duramen'::regnamespace AND c.relkind IN ('r', 'p')
      AND c.relname NOT IN ('meta', 'worded') ORDER BY 1
"""


class RecordingOutlet:
    """An outlet that records its events."""

    name = "recording"

    def __init__(self) -> None:
        self.events: list[duramen.Event] = []

    def apply(self, events: Sequence[duramen.Event]) -> None:
        self.events += events


@duramen.step
def query_rows(query: str) -> list[Any]:
    """The rows that a query reads on the connection of the step."""
    return [list(row) for row in duramen.transaction().execute(query).fetchall()]


@duramen.task
def report(query: str) -> list[Any]:
    return query_rows(query)


def write_all_tables(dm: duramen.Duramen) -> RecordingOutlet:
    """Write rows to every table. All workspaces get the same names and words."""
    session = dm.session("talk")
    session.append("note", f"large {dm.workspace}" * 5_000, subject="ada", key="first")
    session.say("user", "The sun is up", subject="ada")
    session.checkpoint({"messages": [{"n": number} for number in range(20)]})
    session.remember("the sun is up", subject="ada", key="sun", fresh=True)
    dm.memory.recall("sun", subject="ada")
    default, segment_writer.MIN_CHANGES = segment_writer.MIN_CHANGES, 1
    try:
        finish_indexing(dm)
    finally:
        segment_writer.MIN_CHANGES = default
    session.fork("branch", at=1).append("note", f"in the branch of {dm.workspace}")
    dm.run(report, "SELECT 1", id="report")
    session.lease("worker", seconds=60)
    outlet = RecordingOutlet()
    until(lambda: dm.deliver(outlet) or outlet.events, "the first delivery")
    return outlet


def fill_workspaces(url: str) -> None:
    """Fill both workspaces."""
    for workspace in (OURS, THEIRS):
        with open_memory(url, workspace=workspace) as dm:
            write_all_tables(dm)


def tenant_tables(url: str) -> list[str]:
    """All tables with rows of tenants, from the catalog."""
    with psycopg.connect(url, autocommit=True) as connection:
        return [f"duramen.{row[0]}" for row in connection.execute(TABLES)]
