"""Fixtures: stores, one PostgreSQL per worker with a new database for each test, and child processes.

`make test` uses fixed seeds, runs logic above the store port on SQLite, and repeats less. With `--everything`
(`make test-all`) seeds are random, every test runs on every store, and crash and soak tests run much longer.
"""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# Set before NumPy is imported: its threads slow down tests that run in parallel.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Tests start thousands of processes. They share compiled bytecode, also if PYTHONDONTWRITEBYTECODE is set.
os.environ["PYTHONDONTWRITEBYTECODE"] = ""
os.environ["PYTHONPYCACHEPREFIX"] = str(Path(__file__).parents[1] / ".pytest_cache" / "bytecode")

import hypothesis
import pytest
from programs.child_processes import ChildProcesses
from programs.seeds import VARIABLE, choose_seed
from programs.side_effects import Open, SideEffects, close_all

import duramen
from duramen.embedders import InstalledModel, find_model
from duramen.testing.clock import FakeClock
from duramen.testing.postgres import PostgresServer

hypothesis.settings.register_profile("fixed", derandomize=True, database=None)
hypothesis.settings.register_profile("random", print_blob=True)

ONE_STORE = Path(__file__).parent / "unit"
"""Logic above the store port. `make test` runs it on SQLite only, except tests that show a promise."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--everything",
        action="store_true",
        help="random seeds, every store for every test, the whole crash matrix, long soak tests",
    )


def pytest_configure(config: pytest.Config) -> None:
    everything = config.getoption("--everything")
    hypothesis.settings.load_profile("random" if everything else "fixed")
    if everything:
        choose_seed()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a background job; tests interrupt child processes
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    return f"{VARIABLE}={os.environ.get(VARIABLE, '0')}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--everything"):
        return
    deselected = [item for item in items if _only_in_everything(item)]
    config.hook.pytest_deselected(items=deselected)
    items[:] = [item for item in items if item not in set(deselected)]


def _only_in_everything(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    stores = {call.params.get(fixture) for fixture in ("any_address", "address")} if call else set()
    shows_a_promise = item.get_closest_marker("promise") is not None
    return bool({"memory", "postgres"} & stores) and ONE_STORE in item.path.parents and not shows_a_promise


@pytest.fixture
def everything(request: pytest.FixtureRequest) -> bool:
    """Whether this is `make test-all`."""
    return bool(request.config.getoption("--everything"))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    # No test cuts the power of this server, and syncing each test's database would be slow.
    with PostgresServer.start(settings={"fsync": "off", "full_page_writes": "off", "max_wal_size": "64MB"}) as server:
        yield server


class Databases:
    """Databases on one server. Each is dropped when its block ends."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._template = ""

    @contextmanager
    def create(self) -> Iterator[str]:
        """The URL of a new database, copied from a template that has our tables already."""
        if not self._template:
            self._template = self._create("template1")
            duramen.open(self._address(self._template)).close()
        with self._dropped(self._create(self._template)) as url:
            yield url

    @contextmanager
    def create_empty(self) -> Iterator[str]:
        """The URL of a new database without our tables."""
        with self._dropped(self._create("template1")) as url:
            yield url

    @contextmanager
    def create_bound(self) -> Iterator[tuple[str, str]]:
        """The URLs of an empty database, for its owner and for a superuser. Row level security restricts the owner to
        the workspace of the connection. The superuser bypasses it."""
        name = self._create("template1")
        role = name.replace("test", "owner")
        self._execute(f"CREATE ROLE {role} LOGIN PASSWORD '{role}'", f"ALTER DATABASE {name} OWNER TO {role}")
        scheme, _, place = self._address(name).partition("://")
        with self._dropped(name) as url:
            yield f"{scheme}://{role}:{role}@{place.rpartition('@')[2]}", url
        self._execute(f"DROP ROLE {role}")

    def _create(self, template: str) -> str:
        name = f"duramen_test_{uuid.uuid4().hex}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name

    @contextmanager
    def _dropped(self, name: str) -> Iterator[str]:
        yield self._address(name)
        self._execute(f"DROP DATABASE {name} WITH (FORCE)")

    def _execute(self, *statements: str) -> None:
        import psycopg

        with psycopg.connect(self._url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def _address(self, name: str) -> str:
        return f"{self._url.rpartition('/')[0]}/{name}"


@pytest.fixture(scope="session")
def databases(request: pytest.FixtureRequest) -> Databases:
    url = os.environ.get("DURAMEN_TEST_POSTGRES")
    return Databases(url or request.getfixturevalue("postgres_server").url)


@pytest.fixture
def postgres_url(databases: Databases) -> Iterator[str]:
    with databases.create() as url:
        yield url


@pytest.fixture
def empty_postgres_url(databases: Databases) -> Iterator[str]:
    """A database without our tables."""
    with databases.create_empty() as url:
        yield url


@pytest.fixture(scope="module")
def module_url(databases: Databases) -> Iterator[str]:
    """One database for all tests of a module."""
    with databases.create() as url:
        yield url


@pytest.fixture(scope="module")
def module_bound_urls(databases: Databases) -> Iterator[tuple[str, str]]:
    """One database for all tests of a module: the URLs for its restricted owner and for a superuser."""
    with databases.create_bound() as urls:
        yield urls


@pytest.fixture
def bound_url(databases: Databases) -> Iterator[str]:
    """A database whose role is restricted to the workspace of its connection."""
    with databases.create_bound() as (url, _):
        yield url


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def any_address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of each store in turn."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return "memory:" if request.param == "memory" else str(tmp_path / "agent.db")


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of each store in turn that several handles and processes can open."""
    if request.param == "postgres":
        return str(request.getfixturevalue("postgres_url"))
    return str(tmp_path / "agent.db")


@pytest.fixture
def dm(any_address: str) -> Iterator[duramen.Duramen]:
    """A handle on each store in turn. Waiting runs park at once."""
    with duramen.open(any_address) as opened:
        opened._core._engine.patience = 0
        yield opened


@pytest.fixture
def effects() -> SideEffects:
    """Records the side effects of steps and can simulate a kill."""
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
    """The real files of the default embedder, which `make test` puts into the user's cache."""
    model = find_model()
    if model is None:
        missing = "the embedding model is not installed: run `duramen model install`"
        if os.environ.get("DURAMEN_OFFLINE", "0") not in ("", "0"):
            pytest.skip(f"{missing} (DURAMEN_OFFLINE is set)")
        pytest.fail(missing, pytrace=False)
    return model


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def open_one(any_address: str, clock: FakeClock) -> Iterator[Open]:
    """Opens handles, as new processes would. The in-memory store has only one handle."""
    opened: list[duramen.Duramen] = []

    def open_one() -> duramen.Duramen:
        if not opened or any_address != "memory:":
            opened.append(duramen.open(any_address, clock=clock))
            opened[-1]._core._engine.patience = 0
        return opened[-1]

    yield open_one
    close_all(opened)
