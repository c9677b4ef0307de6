"""PostgreSQL itself keeps workspaces apart: whatever is asked on a handle's connection, no row of another is there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from programs.child_processes import until
from programs.memory_handles import contents, open_memory
from programs.tenants import OURS, THEIRS, fill, report, tables, write_all_tables
from psycopg import errors as pg

import duramen
from duramen.api.settings import open_journal, open_store
from duramen.errors import UnknownSession, WorkspaceRefused
from duramen.runtime import Blocking, drive
from duramen.stores.postgres import connection as postgres
from duramen.stores.postgres.connection import Connection, PostgresSettings
from duramen.stores.postgres.pool import Pool


@pytest.fixture(scope="module")
def filled(module_bound_urls: tuple[str, str]) -> tuple[str, str]:
    """Two workspaces with rows in every table: the URL of an ordinary role, and the superuser's."""
    bound, superuser = module_bound_urls
    fill(bound)
    return bound, superuser


def pool_of(dm: duramen.Duramen) -> Pool:
    pool = dm._core._journal.store.pool  # type: ignore[attr-defined]
    assert isinstance(pool, Pool)
    return pool


@pytest.fixture
def raw(filled: tuple[str, str]) -> Iterator[Connection]:
    """A connection of a handle on our workspace, for whatever SQL comes to mind."""
    with duramen.open(filled[0], workspace=OURS) as dm, pool_of(dm).connection() as connection:
        yield connection


def every_row(superuser: str, workspace: str) -> dict[str, list[str]]:
    """All rows of a workspace, by table, as somebody sees them who sees everything."""
    with psycopg.connect(superuser, autocommit=True) as connection:
        return {
            table: [row[0] for row in connection.execute(_all_of(table), (workspace,))] for table in tables(superuser)
        }


def _all_of(table: str) -> bytes:
    return f"SELECT t::text FROM {table} t WHERE workspace = %s ORDER BY 1".encode()


@pytest.mark.promise("G4")
def test_every_table_has_a_policy_that_binds_its_owner(filled: tuple[str, str]) -> None:
    with psycopg.connect(filled[0], autocommit=True) as connection:
        rows = connection.execute(
            """
            SELECT c.oid::regclass::text, c.relrowsecurity, c.relforcerowsecurity, row_security_active(c.oid),
                   array_agg(pg_get_expr(p.polqual, p.polrelid)), bool_and(p.polcmd = '*'), count(p.polname)
            FROM pg_class c LEFT JOIN pg_policy p ON p.polrelid = c.oid
            WHERE c.oid = ANY(%s::regclass[]) GROUP BY c.oid
            """,
            (tables(filled[0]),),
        ).fetchall()
    assert len(rows) == len(tables(filled[0])) >= 14
    for table, enabled, forced, active, conditions, every_command, count in rows:
        assert (enabled, forced, active, every_command, count) == (True, True, True, True, 1), table
        assert conditions == ["(workspace = current_setting('duramen.workspace'::text))"], table


@pytest.mark.promise("G4")
def test_every_table_is_put_to_the_test(filled: tuple[str, str]) -> None:
    for workspace in (OURS, THEIRS):
        empty = [table for table, rows in every_row(filled[1], workspace).items() if not rows]
        assert empty == [], "tests/programs/tenants.py leaves no row there"


@pytest.mark.promise("G4")
def test_raw_sql_sees_no_row_of_another_workspace(filled: tuple[str, str], raw: Connection) -> None:
    ours = every_row(filled[1], OURS)
    for table in tables(filled[0]):
        seen = [row[0] for row in raw.execute(f"SELECT t::text FROM {table} t ORDER BY 1".encode())]
        assert seen == ours[table], table
        assert raw.execute(_all_of(table), (THEIRS,)).fetchall() == []
        assert raw.execute(f"SELECT count(*) FROM {table} WHERE workspace <> %s".encode(), (OURS,)).fetchone() == (0,)


@pytest.mark.promise("G4")
def test_raw_sql_changes_no_row_of_another_workspace(filled: tuple[str, str], raw: Connection) -> None:
    before = every_row(filled[1], THEIRS)
    for table in tables(filled[0]):
        untouched = f"UPDATE {table} SET workspace = workspace WHERE workspace = %s"
        assert raw.execute(untouched.encode(), (THEIRS,)).rowcount == 0
        assert raw.execute(f"DELETE FROM {table} WHERE workspace = %s".encode(), (THEIRS,)).rowcount == 0
        for statement in (
            f"UPDATE {table} SET workspace = %s",
            f"""INSERT INTO {table} OVERRIDING SYSTEM VALUE
                SELECT (jsonb_populate_record(t, jsonb_build_object('workspace', %s::text))).*
                FROM {table} t LIMIT 1""",
        ):
            with pytest.raises(pg.InsufficientPrivilege), raw.transaction():
                raw.execute(statement.encode(), (THEIRS,))
        with raw.transaction(force_rollback=True):
            raw.execute(f"DELETE FROM {table}".encode())
    assert every_row(filled[1], THEIRS) == before
    with raw.transaction(force_rollback=True):
        for table in tables(filled[0]):
            raw.execute(f"DELETE FROM {table}".encode())
    with duramen.open(filled[0], workspace=THEIRS) as theirs:
        assert theirs.verify().ok


@pytest.mark.promise("G4")
def test_a_connection_that_says_no_workspace_is_refused(filled: tuple[str, str]) -> None:
    with psycopg.connect(filled[0], autocommit=True) as connection:
        for table in tables(filled[0]):
            with pytest.raises(pg.UndefinedObject, match=r"duramen\.workspace"):
                connection.execute(f"SELECT * FROM {table}".encode())
        connection.execute("SET row_security = off")
        with pytest.raises(pg.InsufficientPrivilege):
            connection.execute("SELECT * FROM duramen.events")


@pytest.mark.promise("G4")
def test_steps_get_a_connection_to_their_own_workspace(filled: tuple[str, str]) -> None:
    query = "SELECT DISTINCT workspace FROM duramen.events"
    for workspace in (OURS, THEIRS):
        with open_memory(filled[0], workspace=workspace) as dm:
            assert dm.run(report, query, id="who") == [[workspace]]
            assert dm.workspaces() == [workspace]

    async def main() -> None:
        async with await duramen.aopen(filled[0], workspace=OURS) as dm:
            assert await dm.run(report, query, id="who else") == [[OURS]]

    asyncio.run(main())


@duramen.step
def wander(statement: str, fails: bool = False) -> None:
    duramen.transaction().execute(statement)
    if fails:
        raise ValueError(statement)


@duramen.task
def wandering(statement: str, fails: bool = False) -> None:
    wander(statement, fails)


def settings_of(dm: duramen.Duramen) -> set[tuple[Any, ...]]:
    """What every connection of a pool of two is set to, and who it is."""
    pool = pool_of(dm)
    query = "SELECT current_setting('duramen.workspace'), current_user = session_user"
    with pool.connection() as one, pool.connection() as two:
        return {row for each in (one, two) for row in each.execute(query).fetchall()}


OTHER = "pg_monitor"
ALL_RIGHTS = [f"ALL ON ALL {kind} IN SCHEMA duramen TO {OTHER}" for kind in ("TABLES", "SEQUENCES")]
WANDERING = [
    f"SELECT set_config('duramen.workspace', $x${THEIRS}$x$, false)",
    "RESET ALL",
    f"SET ROLE {OTHER}",
    f"COMMIT; SELECT set_config('duramen.workspace', $x${THEIRS}$x$, false)",
    "COMMIT; DISCARD ALL",
    f"SELECT set_config('duramen.workspace', $x${THEIRS}$x$, false); SELECT 1 / 0",
]


@pytest.mark.promise("G4")
@pytest.mark.parametrize("fails", [False, True], ids=["returning", "raising"])
@pytest.mark.parametrize("statement", WANDERING, ids=["set", "reset", "role", "ended", "discarded", "failed"])
def test_a_connection_comes_back_to_its_workspace(filled: tuple[str, str], statement: str, fails: bool) -> None:
    role = psycopg.conninfo.conninfo_to_dict(filled[0])["user"]
    with psycopg.connect(filled[1], autocommit=True) as connection:  # a role that may write there, and is not ours
        for rights in (f'{OTHER} TO "{role}"', f"ALL ON SCHEMA duramen, public TO {OTHER}", *ALL_RIGHTS):
            connection.execute(f"GRANT {rights}".encode())
    with duramen.open(filled[0], workspace=OURS, pool_size=2) as dm:
        for number in range(3):
            with suppress(duramen.errors.DuramenError, psycopg.Error, ValueError):
                dm.run(wandering, statement, fails, id=f"wandering {statement} {fails} {number}")
        assert settings_of(dm) == {(OURS, True)}
        seen = dm.run(report, "SELECT DISTINCT workspace FROM duramen.sessions", id=f"back {statement} {fails}")
        assert seen == [[OURS]]


@pytest.mark.promise("G4")
def test_connections_that_are_made_again_are_set_again(filled: tuple[str, str]) -> None:
    with duramen.open(filled[0], workspace=OURS, pool_size=2) as dm, psycopg.connect(filled[1]) as admin:
        session = dm.session("lost")
        session.append("note", 1)
        for number in range(3):
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                          "AND pid <> pg_backend_pid()")  # fmt: skip
            session.append("note", number)
            assert settings_of(dm) == {(OURS, True)}
        pool_of(dm)._replace(pool_of(dm)._pool)
        session.append("note", "on another pool")
        assert settings_of(dm) == {(OURS, True)}


@pytest.mark.promise("G4")
def test_two_tenants_live_the_same_life_side_by_side(bound_url: str) -> None:
    with open_memory(bound_url, workspace=OURS) as ours, open_memory(bound_url, workspace=THEIRS) as theirs:
        outlets = {dm.workspace: write_all_tables(dm) for dm in (ours, theirs)}
        for dm in (ours, theirs):
            assert dm.workspaces() == [dm.workspace]
            large = next(dm.session("talk").events()).data
            assert large == f"large {dm.workspace}" * 5_000
            assert [event.data for event in dm.session("branch").events()] == [
                large,
                f"in the branch of {dm.workspace}",
            ]
            assert dm.session("talk").lease("another") is None
            assert {info.id for info in dm.runs()} == {"report"}
            until(lambda dm=dm: not dm.deliver(outlets[dm.workspace]), "the feed to end")
        ours_given, theirs_given = ({(e.session, e.position): e.hash for e in one.events} for one in outlets.values())
        assert ours_given.keys() & theirs_given.keys()
        assert not set(ours_given.values()) & set(theirs_given.values())
        ours.erase("ada")
        assert contents(theirs.memory.recall("sun", subject="ada")) == ["the sun is up"]
        assert contents(ours.memory.recall("sun", subject="ada")) == []
        ours.session("only ours").append("note", 1)
        with pytest.raises(UnknownSession):
            theirs.session("only ours").fork("mine")
        for dm in (ours, theirs):
            assert (dm.verify().ok, dm.verify().remarks) == (True, [])


@pytest.mark.promise("G4")
def test_what_is_told_to_all_tells_nothing(bound_url: str) -> None:
    with psycopg.connect(bound_url, autocommit=True) as listener:
        listener.execute("LISTEN duramen")
        with open_memory(bound_url, workspace=THEIRS) as dm:
            write_all_tables(dm)
        told = {(one.channel, one.payload) for one in listener.notifies(timeout=2)}
    assert told == {("duramen", ""), ("duramen", "runs")}


@pytest.mark.promise("G4")
def test_a_store_that_is_used_for_another_workspace_is_refused(filled: tuple[str, str]) -> None:
    store = open_store(filled[0], {"workspace": OURS}, Blocking())
    journal = open_journal(store, {"workspace": THEIRS})
    before = every_row(filled[1], THEIRS)
    with pytest.raises(WorkspaceRefused) as refused:
        drive(journal.append("talk", [duramen.Draft("note", 1)]))
    assert "pooler" in refused.value.hint
    assert drive(store.head(THEIRS, "talk")) is None
    drive(store.close())
    nobody = postgres.connect(PostgresSettings(filled[0]))
    with pytest.raises(WorkspaceRefused), postgres.translated("here"):
        nobody.execute("SELECT 1 FROM duramen.events")
    nobody.close()
    assert every_row(filled[1], THEIRS) == before


# -- who is not bound, and who migrates


@pytest.mark.promise("G4")
def test_verify_says_when_the_database_does_not_enforce_it(filled: tuple[str, str], bound_url: str) -> None:
    with duramen.open(filled[1], workspace=OURS) as dm:
        assert sorted(dm.workspaces()) == sorted([OURS, THEIRS])
        (remark,) = dm.verify().remarks
        assert "superuser" in remark
    role = psycopg.conninfo.conninfo_to_dict(bound_url)["user"]
    superuser = filled[1].rsplit("/", 1)[0]
    with duramen.open(bound_url) as dm, psycopg.connect(superuser + "/postgres", autocommit=True) as admin:
        dm.session("s").append("note", 1)
        assert list(dm.verify().remarks) == []
        admin.execute(f'ALTER ROLE "{role}" BYPASSRLS'.encode())
        assert "BYPASSRLS" in dm.verify().remarks[0]
        admin.execute(f'ALTER ROLE "{role}" NOBYPASSRLS'.encode())
        with psycopg.connect(bound_url, autocommit=True) as owner:
            owner.execute("ALTER TABLE duramen.blobs NO FORCE ROW LEVEL SECURITY")
        assert "off for blobs" in dm.verify().remarks[0]
        assert dm.verify().ok


def test_a_migration_that_would_pass_over_rows_fails(bound_url: str) -> None:
    for workspace in (OURS, THEIRS):
        with duramen.open(bound_url, workspace=workspace) as dm:
            dm.session("s").append("note", 1)
    settings = PostgresSettings(bound_url, workspace=OURS)
    version = postgres.SCHEMA_VERSION + 1
    change = "UPDATE duramen.sessions SET created = 7;"
    with postgres.connect(settings) as connection, pytest.raises(pg.InsufficientPrivilege, match="row-level security"):
        postgres.migrate(connection, settings, [*postgres.MIGRATIONS, (version, change)])
    table = "ALTER TABLE duramen.sessions {} ROW LEVEL SECURITY;"
    careful = f"{table.format('NO FORCE')} {change} {table.format('FORCE')}"
    for workspace in (OURS, THEIRS):
        settings = PostgresSettings(bound_url, workspace=workspace)
        with postgres.connect(settings) as connection:
            postgres.migrate(connection, settings, [*postgres.MIGRATIONS, (version, careful)])
            assert connection.execute("SELECT created FROM duramen.sessions").fetchall() == [(7,)]
