"""Fixtures: stores, one PostgreSQL for the whole run with a fresh database for each test, and child processes."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

# Before NumPy is imported: its threads slow each other down while tests run.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Tests start some thousand processes: only the first compiles, also if PYTHONDONTWRITEBYTECODE is set.
os.environ["PYTHONDONTWRITEBYTECODE"] = ""
os.environ["PYTHONPYCACHEPREFIX"] = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")

import pytest
from programs.child_processes import ChildProcesses
from programs.side_effects import Open, SideEffects

import duramen
from duramen.embedders import InstalledModel, find_model
from duramen.testing.clock import FakeClock
from duramen.testing.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    # No test cuts its power, and syncing a database for each test takes long.
    with PostgresServer.start(settings={"fsync": "off", "full_page_writes": "off"}) as server:
        yield server


@pytest.fixture(scope="session")
def _new_database(request: pytest.FixtureRequest) -> Callable[[], str]:
    url = os.environ.get("DURAMEN_TEST_POSTGRES")
    if url is None:
        server = request.getfixturevalue("postgres_server")
        return lambda: server.create_database(f"t{uuid.uuid4().hex}")
    return lambda: _database_at(url)


def _database_at(url: str) -> str:
    import psycopg

    name = f"duramen_test_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        info = connection.info
        return f"postgresql://{info.user}:{info.password}@{info.host}:{info.port}/{name}"


@pytest.fixture(scope="session")
def _new_bound_database(_new_database: Callable[[], str]) -> Callable[[], tuple[str, str]]:
    return lambda: _owned_by_new_role(_new_database())


def _owned_by_new_role(url: str) -> tuple[str, str]:
    """Give a database to an ordinary role. Returns its URL for that role and for the superuser, who bypasses row level
    security."""
    import psycopg

    role = f"tenants_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        info = connection.info
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'")
        connection.execute(f'ALTER DATABASE "{info.dbname}" OWNER TO {role}')
        return f"postgresql://{role}:{role}@{info.host}:{info.port}/{info.dbname}", url


@pytest.fixture
def bound_url(_new_bound_database: Callable[[], tuple[str, str]]) -> str:
    """A database whose role is restricted to the workspace of its connection."""
    return _new_bound_database()[0]


@pytest.fixture
def postgres_url(_new_database: Callable[[], str]) -> str:
    return _new_database()


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def any_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of each store in turn."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return "memory:" if request.param == "memory" else str(tmp_path / "agent.db")


@pytest.fixture
def dm(any_address: str) -> Iterator[duramen.Duramen]:
    """A handle on each store in turn. Waiting runs are unwound at once."""
    with duramen.open(any_address) as opened:
        opened._core._engine.patience = 0
        yield opened


@pytest.fixture
def effects() -> SideEffects:
    return SideEffects()


@pytest.fixture(scope="module")
def _processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChildProcesses]:
    with ChildProcesses(tmp_path_factory.mktemp("children")) as processes:
        yield processes


@pytest.fixture
def processes(_processes: ChildProcesses) -> Iterator[ChildProcesses]:
    yield _processes
    _processes.kill_all()


@pytest.fixture(scope="session")
def installed() -> InstalledModel:
    """The default embedder's real files, which `make test` puts into the user's cache."""
    found = find_model()
    if found is None:
        missing = "the embedding model is not installed: run `duramen model install`"
        if os.environ.get("DURAMEN_OFFLINE", "0") not in ("", "0"):
            pytest.skip(f"{missing} (DURAMEN_OFFLINE is set)")
        pytest.fail(missing, pytrace=False)
    return found


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def open_one(any_address: str, clock: FakeClock) -> Iterator[Open]:
    """Opens handles, as new processes would; the in-memory store has only one."""
    opened: list[duramen.Duramen] = []

    def open_one() -> duramen.Duramen:
        if not opened or any_address != "memory:":
            opened.append(duramen.open(any_address, clock=clock))
            opened[-1]._core._engine.patience = 0
        return opened[-1]

    yield open_one
    for dm in opened:
        dm.close()
