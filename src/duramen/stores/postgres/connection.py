"""Connections to PostgreSQL: settings, migrations and the translation of errors."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit
from weakref import WeakSet

import psycopg
from psycopg import errors as pg
from psycopg_pool import PoolClosed, PoolTimeout

from ...errors import (
    DuramenError,
    InvalidInput,
    NotAStore,
    StoreBusy,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
    WorkspaceRefused,
    clipped,
)
from ..common.sql_file import Migrations, load_migrations, refuse_outdated

MIGRATIONS = load_migrations(Path(__file__).parent / "migrations")
SCHEMA_VERSION = MIGRATIONS[-1][0]
MIGRATION_LOCK = 0x48464A4C
Connection = psycopg.Connection[tuple[Any, ...]]
T = TypeVar("T")
_open: WeakSet[Connection] = WeakSet()
LOST = (psycopg.OperationalError, psycopg.InterfaceError)
"""Errors after which the connection is lost and the outcome of the last statement is unknown."""


class Work(Protocol):
    """Runs a function on a connection of the store. It runs again if the connection is lost."""

    async def __call__(self, work: Callable[[Connection], T], /) -> T:
        """The result of the function."""
        ...


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """How to reach a server."""

    url: str
    pool_size: int = 10
    timeout: float = 30.0
    readonly: bool = False
    workspace: str | None = None
    """The workspace whose rows the connections may see. With None they see no rows, unless their role bypasses row
    level security."""

    @property
    def shown(self) -> str:
        """The address without its password."""
        try:
            parts = urlsplit(self.url)
            host = parts.hostname or "the local socket"
            return f"{host}:{parts.port or 5432}{parts.path}"
        except ValueError:
            return "the given URL"


@contextmanager
def translated(shown: str) -> Iterator[None]:
    """Translate errors of the driver into `StoreError`s."""
    try:
        yield
    except (psycopg.Error, PoolTimeout, PoolClosed) as error:
        raise explain(error, shown) from error


def explain(error: BaseException, shown: str) -> BaseException:
    """The `StoreError` for an error of the driver. Other errors are returned unchanged."""
    if isinstance(error, DuramenError):
        return error
    if _is_other_workspace(error):
        return WorkspaceRefused(
            f"PostgreSQL at {shown} does not let this connection use the rows of the handle's workspace",
            hint="open the handle with `workspace`; give each workspace its own role if a pooler shares connections",
        )
    reason = clipped(str(error).strip().split("\n")[0])
    for kind, made in _MEANING:
        if isinstance(error, kind):
            return made(shown, reason)
    if isinstance(error, psycopg.Error):
        return StoreError(f"PostgreSQL at {shown} failed: {reason}")
    return error


def _is_other_workspace(error: BaseException) -> bool:
    """Whether a policy refused a row, or the connection has not set its workspace. The message of the server may be in
    any language, so this checks its source function and the name of the setting."""
    if isinstance(error, pg.InsufficientPrivilege):
        return error.diag.source_function == "ExecWithCheckOptions"
    return isinstance(error, pg.UndefinedObject) and '"duramen.workspace"' in str(error)


_REACH = "check host, port, user and password"
_MEANING: list[tuple[type[BaseException] | tuple[type[BaseException], ...], Callable[[str, str], StoreError]]] = [
    (PoolClosed, lambda at, why: StoreClosed(f"the store at {at} was closed", hint="open it again")),
    (
        PoolTimeout,
        lambda at, why: StoreUnavailable(
            f"no connection to PostgreSQL at {at} became free before the timeout",
            hint="check that the server is running and that pool_size is large enough",
        ),
    ),
    (pg.DiskFull, lambda at, why: StoreFull(f"the disk of PostgreSQL at {at} is full", hint="free some space")),
    (
        pg.ReadOnlySqlTransaction,
        lambda at, why: StoreReadOnly(f"PostgreSQL at {at} is read-only", hint="connect to the primary"),
    ),
    (
        pg.InsufficientPrivilege,
        lambda at, why: StoreReadOnly(
            f"PostgreSQL at {at} denied access to this user: {why}", hint="grant the user rights on schema duramen"
        ),
    ),
    (
        (pg.LockNotAvailable, pg.DeadlockDetected, pg.SerializationFailure, pg.QueryCanceled),
        lambda at, why: StoreBusy(f"PostgreSQL at {at} is too busy: {why}", hint="try again"),
    ),
    (
        (pg.DataCorrupted, pg.IndexCorrupted),
        lambda at, why: StoreDamaged(f"PostgreSQL at {at} is damaged: {why}", hint="restore a backup"),
    ),
    (
        pg.InvalidCatalogName,
        lambda at, why: StoreUnavailable(f"PostgreSQL at {at}: {why}", hint="create the database first"),
    ),
    (
        LOST,
        lambda at, why: StoreUnavailable(
            f"PostgreSQL at {at} cannot be reached: {why}",
            hint="create the database first" if "database" in why and "does not exist" in why else _REACH,
        ),
    ),
    (
        pg.IntegrityError,
        lambda at, why: StoreDamaged(
            f"rows in PostgreSQL at {at} contradict each other: {why}", hint="run `duramen verify`"
        ),
    ),
]


def connect(settings: PostgresSettings) -> Connection:
    """One connection outside the pool, with our settings."""
    try:
        connection = psycopg.connect(
            settings.url,
            autocommit=True,
            connect_timeout=max(1, int(settings.timeout)),
            application_name="duramen",
        )
    except psycopg.ProgrammingError:
        # The driver's message may contain the password, so it is neither shown nor chained.
        raise InvalidInput(
            "the given address is not a PostgreSQL URL",
            hint="write it as postgresql://user:password@host:5432/database, with %XX for special characters",
        ) from None
    configure(connection, settings)
    return connection


def configure(connection: Connection, settings: PostgresSettings) -> None:
    """Set what durability and isolation depend on, whatever the defaults of the server are."""
    _open.add(connection)
    connection.execute(
        "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
    )
    connection.execute("SET default_transaction_isolation = 'read committed'")
    connection.execute("SET plan_cache_mode = force_generic_plan")  # queries select by key, so one plan fits all values
    own = {"lock_timeout": f"{int(settings.timeout * 1000)}"}
    if settings.workspace is not None:
        own["duramen.workspace"] = settings.workspace
    connection.execute(
        "SELECT set_config(name, value, false) FROM unnest(%s::text[], %s::text[]) AS s(name, value)",
        (list(own), list(own.values())),
    )
    if settings.readonly:
        connection.execute("SET default_transaction_read_only = on")


def execute_planned(connection: Connection, query: str, values: Mapping[str, Any]) -> psycopg.Cursor[tuple[Any, ...]]:
    """Execute a query with a plan for these values. The best plan depends, for example, on the size of the audience,
    and on how many memories have an index entry."""
    with psycopg.ClientCursor(connection) as cursor:
        planned = cursor.mogrify(query.encode(), values)
    return connection.execute(planned.encode(), binary=True)


def hang_up() -> None:
    """In a forked child, close the sockets of the parent's connections without a message to the server."""
    for connection in list(_open):
        with suppress(OSError, psycopg.Error):
            os.close(connection.pgconn.socket)
    _open.clear()


def migrate(connection: Connection, settings: PostgresSettings, migrations: Migrations = MIGRATIONS) -> None:
    """Migrate the schema to the newest version, under an advisory lock and in one transaction. Raises `StoreTooNew`,
    `NotAStore`, `StoreReadOnly` or `StoreDamaged` and changes nothing if that is not possible."""
    encoding: Any = connection.execute("SHOW server_encoding").fetchone()
    if encoding[0] != "UTF8":
        raise NotAStore(
            f"the database at {settings.shown} has the encoding {encoding[0]}, but UTF8 is needed",
            hint="create a database with ENCODING 'UTF8'",
        )
    newest = migrations[-1][0]
    version = check_version(connection, settings.shown, newest)
    if settings.readonly:
        refuse_outdated(version, newest, f"the database at {settings.shown}")
    if settings.readonly or version == newest:
        return
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
        # A migration must fail if row level security would hide rows from it.
        connection.execute("SET LOCAL row_security = off")
        # IF NOT EXISTS, and no look-up first: what this connection has cached of the catalog may predate the lock.
        connection.execute("CREATE SCHEMA IF NOT EXISTS duramen")
        connection.execute("CREATE TABLE IF NOT EXISTS duramen.meta (name text PRIMARY KEY, value bigint NOT NULL)")
        connection.execute("INSERT INTO duramen.meta VALUES ('schema', 0) ON CONFLICT DO NOTHING")
        version = _stored_version(connection, settings.shown, newest)
        for number, script in migrations:
            if number > version:
                connection.execute(script.encode())
                connection.execute("UPDATE duramen.meta SET value = %s WHERE name = 'schema'", (number,))


def check_version(connection: Connection, shown: str, newest: int = SCHEMA_VERSION) -> int:
    """The schema version, or 0 if it is not a store yet. Raises `StoreTooNew` if it is above `newest`."""
    there: Any = connection.execute("SELECT to_regclass('duramen.meta')").fetchone()
    if there[0] is None:
        return 0
    return _stored_version(connection, shown, newest)


def _stored_version(connection: Connection, shown: str, newest: int) -> int:
    row = connection.execute("SELECT value FROM duramen.meta WHERE name = 'schema'").fetchone()
    if row is None:
        raise StoreDamaged(f"the schema version at {shown} is missing", hint="restore it from a backup")
    if row[0] > newest:
        raise StoreTooNew(f"the store at {shown}", row[0], newest)
    return int(row[0])
