"""The roles of docs/guides/postgresql.md. The tests run the SQL of that page unchanged."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable

import psycopg
import pytest
from programs.memory_handles import contents, open_memory
from programs.paths import ROOT
from programs.tenants import tenant_tables, write_all_tables
from psycopg import errors as pg

import duramen
from duramen.errors import StoreReadOnly, WorkspaceRefused

PAGE = (ROOT / "docs" / "guides" / "postgresql.md").read_text(encoding="utf-8")
ROLES, SCHEMA, PINNED = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
Address = Callable[[str], str]


@pytest.fixture(scope="module")
def address(module_url: str) -> Address:
    """The URL of each role of the page. Roles belong to the whole server, so their names get a suffix here."""
    suffix = uuid.uuid4().hex[:8]

    def renamed(text: str) -> str:
        return re.sub(r"\b(duramen_(?:owner|agents|admin)|tenant_acme|agents(?= OWNER))\b", rf"\1_{suffix}", text)

    with psycopg.connect(module_url, autocommit=True) as connection:
        for statement in renamed(ROLES).split(";"):
            connection.execute(re.sub("--.*", "", statement).strip().encode())
        info = connection.info
        urls = {"": f"postgresql://{info.user}:{info.password}@{info.host}:{info.port}/agents_{suffix}"}
        for role in ("duramen_owner", "duramen_agents", "duramen_admin", "tenant_acme"):
            urls[role] = f"postgresql://{renamed(role)}:change%20me@{info.host}:{info.port}/agents_{suffix}"
    with psycopg.connect(urls[""], autocommit=True) as connection:
        connection.execute(renamed(SCHEMA).encode())
        with pytest.raises(StoreReadOnly):
            duramen.open(urls["duramen_agents"], timeout=2)
        duramen.open(urls["duramen_owner"]).close()
        connection.execute(renamed(PINNED).encode())
        connection.execute(renamed(PINNED[PINNED.index("DO") :]).encode())
    for workspace in ("acme", "rival"):
        with open_memory(urls["duramen_agents"], workspace=workspace) as dm:
            write_all_tables(dm)
    return urls.__getitem__


@pytest.mark.promise("G4")
def test_agents_can_work_in_their_own_workspace(address: Address) -> None:
    with open_memory(address("duramen_agents"), workspace="acme") as dm:
        assert contents(dm.memory.recall("sun", subject="ada")) == ["the sun is up"]
        assert dm.workspaces() == ["acme"]
        assert (dm.verify().ok, dm.verify().remarks) == (True, [])
        dm.erase("ada")
        assert dm.memory.consolidate() is not None


@pytest.mark.promise("G4")
def test_agents_cannot_bypass_row_security(address: Address) -> None:
    with psycopg.connect(address("duramen_agents"), autocommit=True) as connection:
        connection.execute("SET duramen.workspace = 'acme'")
        for table in tenant_tables(address("")):
            for statement in (
                "TRUNCATE {}",
                "ALTER TABLE {} DISABLE ROW LEVEL SECURITY",
                "DROP POLICY workspace ON {}",
            ):
                with pytest.raises(pg.InsufficientPrivilege):
                    connection.execute(statement.format(table).encode())
        assert connection.execute("SELECT name FROM duramen.meta").fetchall() == [("schema",)]
        assert connection.execute("UPDATE duramen.meta SET value = 99").rowcount == 0
        with pytest.raises(pg.InsufficientPrivilege):
            connection.execute("INSERT INTO duramen.meta VALUES ('x', 1)")


@pytest.mark.promise("G4")
def test_an_administrator_sees_every_workspace(address: Address) -> None:
    with duramen.open(address("duramen_admin"), workspace="acme") as dm:
        assert dm.workspaces() == ["acme", "rival"]
        assert "BYPASSRLS" in dm.verify().remarks[0]
        assert dm.verify().ok
    with psycopg.connect(address("duramen_admin"), autocommit=True) as connection:
        connection.execute("SET row_security = off")  # as pg_dump does
        assert connection.execute("SELECT DISTINCT workspace FROM duramen.events ORDER BY 1").fetchall() == [
            ("acme",),
            ("rival",),
        ]


@pytest.mark.promise("G4")
def test_a_pinned_role_cannot_reach_another_workspace(address: Address) -> None:
    with open_memory(address("tenant_acme"), workspace="acme") as dm:
        dm.session("talk").append("note", 1)
        assert dm.verify().ok
    with open_memory(address("tenant_acme"), workspace="rival", timeout=2) as dm:
        with pytest.raises(WorkspaceRefused):
            dm.session("talk").append("note", 1)
        assert list(dm.sessions()) == []
    with psycopg.connect(address("tenant_acme"), autocommit=True) as connection:
        assert connection.execute("SELECT DISTINCT workspace FROM duramen.events").fetchall() == [("acme",)]
        connection.execute("SET duramen.workspace = 'rival'")
        for table in tenant_tables(address("")):
            assert connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() == (0,), table
        owner = psycopg.conninfo.conninfo_to_dict(address("duramen_agents"))["user"]
        with pytest.raises(pg.InsufficientPrivilege):
            connection.execute(f"SET ROLE {owner}".encode())
