"""One PostgreSQL for the whole run, a fresh database for each test that asks; and child processes that end with it."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator

import pytest
from programs.children import Nursery

from holdfast.testing.postgres import PostgresServer


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with PostgresServer.start() as server:
        yield server


@pytest.fixture(scope="session")
def _new_database(request: pytest.FixtureRequest) -> Callable[[], str]:
    url = os.environ.get("HOLDFAST_TEST_POSTGRES")
    if url is None:
        server = request.getfixturevalue("postgres_server")
        return lambda: server.create_database(f"t{uuid.uuid4().hex}")
    return lambda: _database_at(url)


def _database_at(url: str) -> str:
    import psycopg

    name = f"holdfast_test_{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
        info = connection.info
    return f"postgresql://{info.user}:{info.password}@{info.host}:{info.port}/{name}"


@pytest.fixture
def postgres_url(_new_database: Callable[[], str]) -> str:
    return _new_database()


@pytest.fixture(scope="module")
def _nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    with Nursery(tmp_path_factory.mktemp("children")) as nursery:
        yield nursery


@pytest.fixture
def nursery(_nursery: Nursery) -> Iterator[Nursery]:
    yield _nursery
    _nursery.kill_all()
