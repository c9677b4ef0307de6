"""Connections to a SQLite file: flags, encryption, pragmas, migrations and the translation of errors."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw

from ...errors import (
    DuramenError,
    NotAStore,
    StoreBusy,
    StoreClosed,
    StoreDamaged,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
)
from ...private_files import create_file
from ..common.sql_file import Migrations, load_migrations, refuse_outdated

APPLICATION_ID = 0x48464A4C  # marks the files of duramen
MIGRATIONS = load_migrations(Path(__file__).parent / "migrations")
SCHEMA_VERSION = MIGRATIONS[-1][0]
_STATEMENTS = 200
"""The size of the cache of prepared statements."""


@dataclass(frozen=True, slots=True)
class SqliteSettings:
    """How to open a file. `path` is the name for messages. `place` is the absolute path, because the process may change
    its working directory later. Tests give a `vfs` to replace the file layer of SQLite."""

    path: str
    timeout: float = 30.0
    readonly: bool = False
    file_key: bytes | None = None
    vfs: str | None = None
    place: str | None = None

    @property
    def file(self) -> str:
        """The file to open."""
        return self.place or self.path


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Translate errors of the driver into `StoreError`s."""
    try:
        yield
    except (apsw.Error, UnicodeDecodeError) as error:
        raise explain(error, path) from error


def explain(error: BaseException, path: str) -> BaseException:
    """The `StoreError` for an error of the driver. Other errors are returned unchanged."""
    if isinstance(error, UnicodeDecodeError):
        return StoreDamaged(
            f"{path} contains text that is not valid UTF-8: {error.reason}",
            hint="run `duramen verify`, or restore a backup",
        )
    if isinstance(error, DuramenError) or not isinstance(error, apsw.Error):
        return error
    for kind, made in _MEANING:
        if isinstance(error, kind):
            return made(path, str(error))
    return StoreError(f"SQLite failed on {path}: {error}")


_MEANING: list[tuple[type[apsw.Error] | tuple[type[apsw.Error], ...], Callable[[str, str], StoreError]]] = [
    (
        (apsw.ConnectionClosedError, apsw.CursorClosedError),
        lambda path, why: StoreClosed(f"{path} was closed", hint="open it again"),
    ),
    (
        apsw.FullError,
        lambda path, why: StoreFull(
            f"the disk of {path} is full", hint="free some space, then try again: nothing was stored"
        ),
    ),
    (
        apsw.ReadOnlyError,
        lambda path, why: StoreReadOnly(f"{path} cannot be written", hint="check the file's permissions"),
    ),
    (
        apsw.BusyError,
        lambda path, why: StoreBusy(
            f"{path} is locked by another program", hint="close that program, or pass a longer timeout to open()"
        ),
    ),
    (
        apsw.CantOpenError,
        lambda path, why: StoreUnavailable(
            f"{path} cannot be opened: {why}", hint="check that its folder exists and is writable"
        ),
    ),
    (
        apsw.NotADBError,
        lambda path, why: NotAStore(
            f"{path} is not a database, or it is encrypted with another key",
            hint="check the path, and pass file_key=… for an encrypted file",
        ),
    ),
    (
        apsw.CorruptError,
        lambda path, why: StoreDamaged(f"{path} is damaged: {why}", hint="restore a backup"),
    ),
    (
        apsw.IOError,
        lambda path, why: StoreUnavailable(
            f"reading or writing {path} failed: {why}",
            hint="check the disk, then repeat the last write with the same key: its outcome is unknown",
        ),
    ),
    (
        apsw.PermissionsError,
        lambda path, why: StoreReadOnly(f"access to {path} was denied: {why}", hint="check the file's permissions"),
    ),
]


def connect(settings: SqliteSettings) -> apsw.Connection:
    """A connection with our pragmas. Raises a `StoreError` if the file cannot be used."""
    path = settings.path
    if os.path.isdir(settings.file):
        raise NotAStore(f"{path} is a directory", hint="give the path of a file, such as agent.db")
    with translated(path):
        connection = _open_readonly(settings) if settings.readonly else _open_writable(settings)
        try:
            _configure(connection, settings)
        except BaseException:
            with suppress(apsw.Error):
                connection.close()
            raise
        return connection


def _open_writable(settings: SqliteSettings) -> apsw.Connection:
    flags = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    if settings.vfs is None:
        create_file(settings.file)  # SQLite gives its log the mode of the database
    return apsw.Connection(settings.file, flags, settings.vfs, _STATEMENTS)


def _open_readonly(settings: SqliteSettings) -> apsw.Connection:
    path = settings.file
    if not os.path.exists(path):
        raise StoreUnavailable(f"there is no {settings.path}", hint="check the path")
    if os.access(os.path.dirname(os.path.abspath(path)), os.W_OK) or os.path.exists(path + "-wal"):
        return apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY, vfs=settings.vfs)
    # SQLite cannot create its shared-memory file on a read-only medium. The file cannot change there: it is immutable.
    uri = Path(path).absolute().as_uri() + "?immutable=1"
    return apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)


def _configure(connection: apsw.Connection, settings: SqliteSettings) -> None:
    connection.set_busy_timeout(int(settings.timeout * 1000))
    if settings.file_key is not None:
        connection.pragma("cipher", "aegis")
        connection.pragma("hexkey", settings.file_key.hex())
    tables: Any = connection.execute("SELECT name FROM sqlite_schema").fetchall()
    if tables and ("duramen_meta",) not in tables:  # check this before a pragma could change the file
        raise NotAStore(f"{settings.path} is the database of another program", hint="choose another file")
    if not settings.readonly:
        if _use_wal(connection, settings.timeout) != "wal":
            raise StoreUnavailable(
                f"{settings.path} is on a file system without shared memory or file locks",
                hint="move the file to a local disk",
            )
        connection.pragma("synchronous", "full")
        connection.pragma("secure_delete", "on")
        connection.pragma("wal_autocheckpoint", 2000)
    connection.pragma("temp_store", "memory")
    connection.pragma("trusted_schema", "off")


def _use_wal(connection: apsw.Connection, timeout: float) -> Any:
    """Switch to a write-ahead log. If several processes open a new file at the same time, SQLite refuses without
    waiting, so this function waits."""
    until = time.monotonic() + timeout
    while True:
        try:
            return connection.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if time.monotonic() > until:
                raise
            time.sleep(0.002)


def schema_version(connection: apsw.Connection) -> int:
    """The version of the file's schema. 0 if it is not a store yet."""
    found = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'duramen_meta'").fetchall()
    if not found:
        return 0
    row: Any = connection.execute("SELECT value FROM duramen_meta WHERE name = 'schema'").fetchone()
    if row is None or not isinstance(row[0], int):
        raise StoreDamaged("the schema version of the store is missing", hint="restore it from a backup")
    return int(row[0])


def migrate(connection: apsw.Connection, path: str, migrations: Migrations = MIGRATIONS) -> None:
    """Migrate the schema to the newest version, in one transaction. The caller holds the write lock. Raises
    `StoreTooNew`, `NotAStore` or `StoreDamaged` and changes nothing if that is not possible."""
    with translated(path):
        newest = migrations[-1][0]
        if check_version(connection, path, newest) == newest:
            return
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = check_version(connection, path, newest)
            if version == 0:
                _claim(connection, path)
            for number, script in migrations:
                if number > version:
                    connection.execute(script)
                    connection.execute("UPDATE duramen_meta SET value = ? WHERE name = 'schema'", (number,))
            connection.execute("COMMIT")
        except BaseException as error:
            with suppress(apsw.Error):
                connection.execute("ROLLBACK")
            if isinstance(error, apsw.SQLError):
                raise StoreDamaged(f"{path} cannot be migrated: {error}", hint="restore a backup") from error
            raise
    _sync_folder(path)


def check_version(connection: apsw.Connection, path: str, newest: int = SCHEMA_VERSION) -> int:
    """The schema version. Raises `StoreTooNew` if it is above `newest`."""
    version = schema_version(connection)
    if version > newest:
        raise StoreTooNew(path, version, newest)
    return version


def check_readable(connection: apsw.Connection, path: str) -> None:
    """Raise if a read-only handle cannot read the store, because it would have to migrate it first."""
    refuse_outdated(check_version(connection, path), SCHEMA_VERSION, path)


def _claim(connection: apsw.Connection, path: str) -> None:
    """Mark an empty database as a store. Raises `NotAStore` if it belongs to another program."""
    tables: Any = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if tables[0] or connection.pragma("application_id") not in (0, APPLICATION_ID):
        raise NotAStore(f"{path} is the database of another program", hint="choose another file")
    connection.pragma("application_id", APPLICATION_ID)
    connection.execute("CREATE TABLE duramen_meta (name TEXT PRIMARY KEY, value ANY) STRICT, WITHOUT ROWID")
    connection.execute("INSERT INTO duramen_meta VALUES ('schema', 0)")


def _sync_folder(path: str) -> None:
    """Sync the directory entry of a new file. SQLite syncs the file, but not its name."""
    if os.name != "posix" or not os.path.exists(path):
        return
    folder = os.open(os.path.dirname(os.path.abspath(path)), os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
