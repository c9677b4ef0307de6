"""PostgreSQL separates workspaces: no statement on the connection of a handle reaches rows of another workspace."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from programs.child_processes import until
from programs.memory_handles import contents, open_memory
from programs.tenants import OURS, THEIRS, fill_workspaces, report, tenant_tables, write_all_tables
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
    """Two workspaces with rows in every table: the URLs of an ordinary role and of a superuser."""
    bound, superuser = module_bound_urls
    fill_workspaces(bound)
    return bound, superuser


def pool_of(dm: duramen.Duramen) -> Pool:
    pool = dm._core._journal.store.pool  # type: ignore[attr-defined]
    assert isinstance(pool, Pool)
    return pool


@pytest.fixture
def our_connection(filled: tuple[str, str]) -> Iterator[Connection]:
    """A connection of a handle on our workspace."""
    with duramen.open(filled[0], workspace=OURS) as dm, pool_of(dm).connection() as connection:
        yield connection


def all_rows(superuser: str, workspace: str) -> dict[str, list[str]]:
    """All rows of a workspace by table, read by a superuser."""
    with psycopg.connect(superuser, autocommit=True) as connection:
        return {
            table: [row[0] for row in connection.execute(_rows_of(table), (workspace,))]
            for table in tenant_tables(superuser)
        }


def _rows_of(table: str) -> bytes:
    return f"SELECT t::text FROM {table} t WHERE workspace = %s ORDER BY 1".encode()


@pytest.mark.promise("G4")
def test_every_table_has_a_policy_that_applies_to_its_owner(filled: tuple[str, str]) -> None:
    with psycopg.connect(filled[0], autocommit=True) as connection:
        rows = connection.execute(
            """
            SELECT c.oid::regclass::text, c.relrowsecurity, c.relforcerowsecurity, row_security_active(c.oid),
                   array_agg(pg_get_expr(p.polqual, p.polrelid)), bool_and(p.polcmd = '*'), count(p.polname)
            FROM pg_class c LEFT JOIN pg_policy p ON p.polrelid = c.oid
            WHERE c.oid = ANY(%s::regclass[]) GROUP BY c.oid
            """,
            (tenant_tables(filled[0]),),
        ).fetchall()
    assert len(rows) == len(tenant_tables(filled[0])) >= 14
    for table, enabled, forced, active, conditions, every_command, count in rows:
        assert (enabled, forced, active, every_command, count) == (True, True, True, True, 1), table
        assert conditions == ["(workspace = current_setting('duramen.workspace'::text))"], table


@pytest.mark.promise("G4")
def test_both_workspaces_have_rows_in_every_table(filled: tuple[str, str]) -> None:
    for workspace in (OURS, THEIRS):
        empty = [table for table, rows in all_rows(filled[1], workspace).items() if not rows]
        assert empty == [], "write_all_tables in tests/programs/tenants.py writes no row there"


@pytest.mark.promise("G4")
def test_raw_sql_sees_no_row_of_another_workspace(filled: tuple[str, str], our_connection: Connection) -> None:
    ours = all_rows(filled[1], OURS)
    for table in tenant_tables(filled[0]):
        seen = [row[0] for row in our_connection.execute(f"SELECT t::text FROM {table} t ORDER BY 1".encode())]
        assert seen == ours[table], table
        assert our_connection.execute(_rows_of(table), (THEIRS,)).fetchall() == []
        assert our_connection.execute(
            f"SELECT count(*) FROM {table} WHERE workspace <> %s".encode(), (OURS,)
        ).fetchone() == (0,)


@pytest.mark.promise("G4")
def test_raw_sql_changes_no_row_of_another_workspace(filled: tuple[str, str], our_connection: Connection) -> None:
    before = all_rows(filled[1], THEIRS)
    for table in tenant_tables(filled[0]):
        update_theirs = f"UPDATE {table} SET workspace = workspace WHERE workspace = %s"
        assert our_connection.execute(update_theirs.encode(), (THEIRS,)).rowcount == 0
        assert our_connection.execute(f"DELETE FROM {table} WHERE workspace = %s".encode(), (THEIRS,)).rowcount == 0
        for statement in (
            f"UPDATE {table} SET workspace = %s",
            f"""INSERT INTO {table} OVERRIDING SYSTEM VALUE
                SELECT (jsonb_populate_record(t, jsonb_build_object('workspace', %s::text))).*
                FROM {table} t LIMIT 1""",
        ):
            with pytest.raises(pg.InsufficientPrivilege), our_connection.transaction():
                our_connection.execute(statement.encode(), (THEIRS,))
        with our_connection.transaction(force_rollback=True):
            our_connection.execute(f"DELETE FROM {table}".encode())
    assert all_rows(filled[1], THEIRS) == before
    with our_connection.transaction(force_rollback=True):
        for table in tenant_tables(filled[0]):
            our_connection.execute(f"DELETE FROM {table}".encode())
    with duramen.open(filled[0], workspace=THEIRS) as theirs:
        assert theirs.verify().ok


@pytest.mark.promise("G4")
def test_a_connection_without_a_workspace_is_refused(filled: tuple[str, str]) -> None:
    with psycopg.connect(filled[0], autocommit=True) as connection:
        for table in tenant_tables(filled[0]):
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
def run_statement(statement: str, fails: bool = False) -> None:
    duramen.transaction().execute(statement)
    if fails:
        raise ValueError(statement)


@duramen.task
def run_statement_task(statement: str, fails: bool = False) -> None:
    run_statement(statement, fails)


def connection_settings(dm: duramen.Duramen) -> set[tuple[Any, ...]]:
    """The workspace of both connections of a pool, and whether they have their original role."""
    pool = pool_of(dm)
    query = "SELECT current_setting('duramen.workspace'), current_user = session_user"
    with pool.connection() as one, pool.connection() as two:
        return {row for each in (one, two) for row in each.execute(query).fetchall()}


OTHER_ROLE = "pg_monitor"
ALL_RIGHTS = [f"ALL ON ALL {kind} IN SCHEMA duramen TO {OTHER_ROLE}" for kind in ("TABLES", "SEQUENCES")]
STATEMENTS = [
    f"SELECT set_config('duramen.workspace', $x${THEIRS}$x$, false)",
    "RESET ALL",
    f"SET ROLE {OTHER_ROLE}",
    f"COMMIT; SELECT set_config('duramen.workspace', $x${THEIRS}$x$, false)",
    "COMMIT; DISCARD ALL",
    f"SELECT set_config('duramen.workspace', $x${THEIRS}$x$, false); SELECT 1 / 0",
]


@pytest.mark.promise("G4")
@pytest.mark.parametrize("fails", [False, True], ids=["returning", "raising"])
@pytest.mark.parametrize("statement", STATEMENTS, ids=["set", "reset", "role", "ended", "discarded", "failed"])
def test_a_returned_connection_is_reset_to_its_workspace(filled: tuple[str, str], statement: str, fails: bool) -> None:
    role = psycopg.conninfo.conninfo_to_dict(filled[0])["user"]
    with psycopg.connect(filled[1], autocommit=True) as connection:  # another role that may write there
        for rights in (f'{OTHER_ROLE} TO "{role}"', f"ALL ON SCHEMA duramen, public TO {OTHER_ROLE}", *ALL_RIGHTS):
            connection.execute(f"GRANT {rights}".encode())
    with duramen.open(filled[0], workspace=OURS, pool_size=2) as dm:
        for number in range(3):
            with suppress(duramen.errors.DuramenError, psycopg.Error, ValueError):
                dm.run(run_statement_task, statement, fails, id=f"{statement} {fails} {number}")
        assert connection_settings(dm) == {(OURS, True)}
        seen = dm.run(report, "SELECT DISTINCT workspace FROM duramen.sessions", id=f"back {statement} {fails}")
        assert seen == [[OURS]]


@pytest.mark.promise("G4")
def test_new_connections_are_set_to_the_workspace(filled: tuple[str, str]) -> None:
    with duramen.open(filled[0], workspace=OURS, pool_size=2) as dm, psycopg.connect(filled[1]) as admin:
        session = dm.session("lost")
        session.append("note", 1)
        for number in range(3):
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
                          "AND pid <> pg_backend_pid()")  # fmt: skip
            session.append("note", number)
            assert connection_settings(dm) == {(OURS, True)}
        pool_of(dm)._replace(pool_of(dm)._pool)
        session.append("note", "on another pool")
        assert connection_settings(dm) == {(OURS, True)}


@pytest.mark.promise("G4")
def test_two_tenants_with_the_same_names_do_not_affect_each_other(bound_url: str) -> None:
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
            until(lambda dm=dm: not dm.deliver(outlets[dm.workspace]), "all deliveries")
        our_hashes, their_hashes = (
            {(event.session, event.position): event.hash for event in one.events} for one in outlets.values()
        )
        assert our_hashes.keys() & their_hashes.keys()
        assert not set(our_hashes.values()) & set(their_hashes.values())
        ours.erase("ada")
        assert contents(theirs.memory.recall("sun", subject="ada")) == ["the sun is up"]
        assert contents(ours.memory.recall("sun", subject="ada")) == []
        ours.session("only ours").append("note", 1)
        with pytest.raises(UnknownSession):
            theirs.session("only ours").fork("mine")
        for dm in (ours, theirs):
            assert (dm.verify().ok, dm.verify().remarks) == (True, [])


@pytest.mark.promise("G4")
def test_notifications_contain_no_data_of_a_tenant(bound_url: str) -> None:
    with psycopg.connect(bound_url, autocommit=True) as listener:
        listener.execute("LISTEN duramen")
        with open_memory(bound_url, workspace=THEIRS) as dm:
            write_all_tables(dm)
        with psycopg.connect(bound_url, autocommit=True) as sender:
            sender.execute("NOTIFY duramen, 'last'")
        notifications = set()
        for notification in listener.notifies(timeout=30):
            notifications.add((notification.channel, notification.payload))
            if notification.payload == "last":
                break
    assert notifications == {("duramen", ""), ("duramen", "runs"), ("duramen", "last")}


@pytest.mark.promise("G4")
def test_a_store_cannot_be_used_for_another_workspace(filled: tuple[str, str]) -> None:
    store = open_store(filled[0], {"workspace": OURS}, Blocking())
    journal = open_journal(store, {"workspace": THEIRS})
    before = all_rows(filled[1], THEIRS)
    with pytest.raises(WorkspaceRefused) as refused:
        drive(journal.append("talk", [duramen.Draft("note", 1)]))
    assert "pooler" in refused.value.hint
    assert drive(store.head(THEIRS, "talk")) is None
    drive(store.close())
    no_workspace = postgres.connect(PostgresSettings(filled[0]))
    with pytest.raises(WorkspaceRefused), postgres.translated("here"):
        no_workspace.execute("SELECT 1 FROM duramen.events")
    no_workspace.close()
    assert all_rows(filled[1], THEIRS) == before


# -- roles that bypass row security, and migrations


@pytest.mark.promise("G4")
def test_verify_reports_roles_and_tables_without_row_security(filled: tuple[str, str], bound_url: str) -> None:
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


def test_a_migration_that_would_skip_rows_fails(bound_url: str) -> None:
    for workspace in (OURS, THEIRS):
        with duramen.open(bound_url, workspace=workspace) as dm:
            dm.session("s").append("note", 1)
    settings = PostgresSettings(bound_url, workspace=OURS)
    version = postgres.SCHEMA_VERSION + 1
    change = "UPDATE duramen.sessions SET created = 7;"
    with postgres.connect(settings) as connection, pytest.raises(pg.InsufficientPrivilege, match="row-level security"):
        postgres.migrate(connection, settings, [*postgres.MIGRATIONS, (version, change)])
    table = "ALTER TABLE duramen.sessions {} ROW LEVEL SECURITY;"
    complete_change = f"{table.format('NO FORCE')} {change} {table.format('FORCE')}"
    for workspace in (OURS, THEIRS):
        settings = PostgresSettings(bound_url, workspace=workspace)
        with postgres.connect(settings) as connection:
            postgres.migrate(connection, settings, [*postgres.MIGRATIONS, (version, complete_change)])
            assert connection.execute("SELECT created FROM duramen.sessions").fetchall() == [(7,)]
