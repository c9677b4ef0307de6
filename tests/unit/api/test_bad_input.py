"""Invalid input, files, disks and servers raise named errors with hints. Stored events stay intact."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from programs.seeds import seeded

import duramen
from duramen import Draft, Duramen, errors
from duramen.api._async.duramen import AsyncDuramen
from duramen.api.settings import open_journal
from duramen.errors import InvalidInput
from duramen.runtime import Blocking
from duramen.stores.common.sql_file import load_migrations
from duramen.stores.postgres import PostgresSettings
from duramen.stores.postgres import connection as postgres
from duramen.stores.sqlite import SqliteSettings, SqliteStore
from duramen.stores.sqlite import connection as sqlite
from duramen.testing.clock import FakeClock
from duramen.testing.postgres import PostgresServer
from duramen.testing.power_loss import PowerLossDisk


class TickingClock(FakeClock):
    """Advances by a millisecond each time it is read."""

    def now(self) -> int:
        self.advance(0.001)
        return super().now()


@contextlib.contextmanager
def intact_store(address: str) -> Iterator[Duramen]:
    """A store with one event. At the end of the block the event must still exist, and the store must accept another."""
    with duramen.open(address, clock=TickingClock()) as handle:
        handle.session("s").append("note", "before")
        yield handle
        handle.session("s").append("note", "after")
        assert [event.data for event in handle.session("s").events()] == ["before", "after"]
        assert handle.verify().ok


@pytest.fixture
def dm(any_address: str) -> Iterator[Duramen]:
    """For errors that may come from the store."""
    with intact_store(any_address) as handle:
        yield handle


@pytest.fixture
def in_memory() -> Iterator[Duramen]:
    """For arguments that are refused before a store gets them."""
    with intact_store("memory:") as handle:
        yield handle


def assert_refused(kind: type[errors.DuramenError], work: Callable[[], Any]) -> errors.DuramenError:
    with pytest.raises(errors.DuramenError) as raised:
        work()
    assert type(raised.value) is kind, repr(raised.value)
    assert raised.value.hint, "every error has a hint"
    assert raised.value.hint in str(raised.value)
    return raised.value


# -- arguments


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 513, 5, None, b"bytes", ["s"], "\ud800", "a\udfff"], ids=repr)
def test_invalid_names_are_refused(dm: Duramen, name: Any) -> None:
    session = dm.session("s")
    assert_refused(InvalidInput, lambda: dm.session(name))
    assert_refused(InvalidInput, lambda: session.fork(name))
    assert_refused(InvalidInput, lambda: session.append(name))
    assert_refused(InvalidInput, lambda: session.lease(name))
    assert_refused(InvalidInput, lambda: dm.erase(name))
    if name is not None:
        for option in ("actor", "key", "subject"):
            assert_refused(InvalidInput, lambda option=option: session.append("note", 1, **{option: name}))
    with pytest.raises(InvalidInput):
        duramen.open("memory:", workspace=name)


@pytest.mark.parametrize("name", ["x" * 512, " ", "../etc", "ä ü 🦀", "'; DROP TABLE", "%s", "a\nb"], ids=repr)
def test_unusual_names_are_accepted(dm: Duramen, name: str) -> None:
    event = dm.session(name).append(name, name, actor=name, key=name, subject=name, cause=f"{name[:500]}#1")
    assert list(dm.session(name).events()) == [event]
    assert name in [row.session for row in dm.sessions()]


@pytest.mark.parametrize(
    "cause", [0, -1, True, 1.5, "x", "#1", "a#", "a#x", b"a#1", [1], 2**63, 2**64, 2**200], ids=repr
)
def test_invalid_causes_are_refused(dm: Duramen, cause: Any) -> None:
    assert_refused(InvalidInput, lambda: dm.session("s").append("note", 1, cause=cause))


@pytest.mark.parametrize("position", [-1, True, 1.0, "1", b"1"], ids=repr)
def test_invalid_positions_are_refused(dm: Duramen, position: Any) -> None:
    session = dm.session("s")
    assert_refused(InvalidInput, lambda: session.append("note", 1, expected=position))
    assert_refused(InvalidInput, lambda: session.append("note", 1, fence=position))
    assert_refused(InvalidInput, lambda: session.fork("t", at=position))
    assert_refused(InvalidInput, lambda: list(session.events(start=position)))
    assert_refused(InvalidInput, lambda: list(session.events(stop=position)))
    assert_refused(InvalidInput, lambda: list(session.events(limit=position)))
    assert_refused(InvalidInput, lambda: list(session.follow(position, timeout=0.01)))


def test_positions_beyond_the_end_are_refused_or_empty(dm: Duramen) -> None:
    session = dm.session("s")
    assert_refused(errors.PositionConflict, lambda: session.append("note", 1, expected=2**70))
    assert_refused(errors.LeaseLost, lambda: session.append("note", 1, fence=2**70))
    assert_refused(InvalidInput, lambda: session.fork("t", at=2))
    assert list(session.events(start=2**70)) == []
    assert len(list(session.events(stop=2**70))) == 1


def test_an_unknown_option_of_append_is_named(dm: Duramen) -> None:
    session: Any = dm.session("s")
    for call in (
        lambda: session.append("note", 1, colour=2),
        lambda: session.append_all([Draft("note", 1)], colour=2),
        lambda: session.say("user", "hello", colour=2),
    ):
        error = assert_refused(InvalidInput, call)
        assert "unknown option 'colour'" in str(error)


@pytest.mark.parametrize("types", [5, [["note"]], [5], b"note"], ids=repr)
def test_invalid_event_types_are_refused(in_memory: Duramen, types: Any) -> None:
    assert_refused(InvalidInput, lambda: list(in_memory.session("s").events(types=types)))


@pytest.mark.parametrize("seconds", ["x", float("nan"), float("inf"), 1e300, None], ids=repr)
def test_invalid_lease_durations_are_refused(in_memory: Duramen, seconds: Any) -> None:
    assert_refused(InvalidInput, lambda: in_memory.session("s").lease("worker", seconds=seconds))


@pytest.mark.parametrize("drafts", [[], ["note"], [Draft("good"), None], "note", None], ids=repr)
def test_invalid_batches_are_refused(in_memory: Duramen, drafts: Any) -> None:
    assert_refused(InvalidInput, lambda: in_memory.session("s").append_all(drafts))


def test_misspelt_options_are_refused(in_memory: Duramen) -> None:
    for call in (
        lambda: list(in_memory.session("s").events(typs="other")),
        lambda: list(in_memory.session("s").pages(from_=3)),
        lambda: in_memory.session("s").append("note", 1, idempotency_key="k"),
    ):
        with pytest.raises((InvalidInput, TypeError)):
            call()


@pytest.mark.promise("J7")
def test_a_reused_key_returns_the_first_events_or_is_refused(dm: Duramen) -> None:
    session = dm.session("t")
    first = session.append_all([Draft("note", 1), Draft("note", 2)], key="k")
    for size in (1, 3):
        try:
            answer = session.append_all([Draft("other", size)] * size, key="k")
        except errors.DuramenError as error:
            assert error.hint  # noqa: PT017 - a refusal is as correct as the first answer
        else:
            assert answer == first[: len(answer)]
    session.append("note", "between")
    with contextlib.suppress(errors.DuramenError):
        answer = session.append_all([Draft("other", 3)] * 3, key="k")
        assert answer == first[: len(answer)]
    assert session.head().position == 3


@pytest.mark.promise("J7")
def test_a_batch_split_by_a_fork_is_not_reported_as_damage(dm: Duramen) -> None:
    parent = dm.session("parent")
    parent.append_all([Draft("note", n) for n in range(5)], key="batch")
    fork = parent.fork("fork", at=3)
    try:
        fork.append_all([Draft("note", n) for n in range(5)], key="batch")
    except errors.JournalDamaged:
        pytest.fail("nothing is damaged")
    except errors.DuramenError:
        pass
    assert [event.data for event in fork.events(stop=3)] == [0, 1, 2]


@pytest.mark.parametrize("outlet", ["", "a\0b", "\ud800", 5], ids=repr)
def test_an_outlet_needs_a_valid_name(in_memory: Duramen, outlet: Any) -> None:
    class Nameless:
        name = outlet

        def apply(self, events: Any) -> None:
            """Accepts everything."""

    assert_refused(InvalidInput, lambda: in_memory.deliver(Nameless()))


@pytest.mark.promise("J5")
def test_payloads_over_the_limit_are_refused(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "agent.db", max_payload=1_000) as dm:
        dm.session("s").append("note", "x" * 900)
        for data in ("x" * 1_001, b"x" * 20_000, ["x" * 100] * 11, {"a": "x" * 20_000, "b": "y" * 20_000}):
            too_large = assert_refused(errors.PayloadTooLarge, lambda data=data: dm.session("s").append("note", data))
            assert isinstance(too_large, errors.PayloadTooLarge)
            assert too_large.size > too_large.limit == 1_000
        with pytest.raises(errors.PayloadTooLarge):
            dm.session("s").append_all([Draft("note", 1), Draft("note", "x" * 2_000)])
        assert [event.data for event in dm.session("s").events()] == ["x" * 900]
        dm.session("s").append("note", "accepted")


# -- settings and addresses


def test_an_unknown_setting_is_refused_with_the_valid_ones() -> None:
    error = assert_refused(InvalidInput, lambda: duramen.open("memory:", keys=b"x"))
    assert "'keys'" in error.message
    assert "key," in error.hint


@pytest.mark.parametrize(
    "settings",
    [{"timeout": "soon"}, {"timeout": -1}, {"max_payload": "1"}, {"blob_above": None}, {"pool_size": "many"}],
    ids=repr,
)
def test_settings_of_the_wrong_type_are_refused(tmp_path: Path, settings: Any) -> None:
    with pytest.raises(InvalidInput):
        duramen.open(tmp_path / "agent.db", **settings)


@pytest.mark.parametrize(
    "address",
    [
        *("", 5, None, b"agent.db", "http://example.com", "redis://x", "mysql://a:b@c/d", "a\0b.db", "a\ud800.db"),
        *("sqlite://", "file://", "postgresql://[::1/db", "postgresql://u:hunter2@h/db?sslmode"),
        "postgresql://u:hunt%er2@localhost/db",
    ],
    ids=repr,
)
def test_invalid_addresses_are_refused_without_showing_passwords(
    address: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = assert_refused(InvalidInput, lambda: duramen.open(address, timeout=1))
    assert "hunt" not in str(error), "error messages must not show passwords"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.promise("B3")
def test_production_refuses_the_in_memory_store(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("memory:", ":memory:", "memory://"):
        assert_refused(errors.InMemoryRefused, lambda address=address: duramen.open(address, production=True))
    monkeypatch.setenv("DURAMEN_ENV", "production")
    assert_refused(errors.InMemoryRefused, lambda: duramen.open("memory:"))
    with duramen.open("memory:", production=False) as dm:
        dm.session("s").append("note", 1)
    monkeypatch.setenv("DURAMEN_ENV", "test")
    duramen.open("memory:").close()


# -- files


def digest(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def foreign_database(path: Path) -> None:
    with closing(apsw.Connection(str(path))) as db:
        db.execute("CREATE TABLE customers (name TEXT); INSERT INTO customers VALUES ('Ada')")


def foreign_with_our_table(path: Path) -> None:
    foreign_database(path)
    with closing(apsw.Connection(str(path))) as db:
        db.execute("CREATE TABLE duramen_sessions (a)")


@pytest.mark.parametrize("readonly", [False, True], ids=["writing", "readonly"])
@pytest.mark.parametrize(
    "make",
    [
        lambda path: path.mkdir(),
        lambda path: path.write_text("Dear diary,"),
        lambda path: path.write_bytes(seeded("noise").randbytes(10_000)),
        foreign_database,
        foreign_with_our_table,
    ],
    ids=["directory", "text", "noise", "other program", "name taken"],
)
def test_files_that_are_not_stores_are_refused_unchanged(
    tmp_path: Path, make: Callable[[Path], Any], readonly: bool
) -> None:
    path = tmp_path / "thing"
    make(path)
    before = digest(tmp_path) if path.is_file() else {}
    assert_refused(errors.NotAStore, lambda: duramen.open(path, readonly=readonly))
    assert (digest(tmp_path) if path.is_file() else {}) == before, "the file is unchanged"


def test_missing_folders_and_files_are_reported(tmp_path: Path) -> None:
    assert_refused(errors.StoreUnavailable, lambda: duramen.open(tmp_path / "no" / "such" / "agent.db"))
    assert_refused(errors.StoreUnavailable, lambda: duramen.open(tmp_path / "agent.db", readonly=True))
    assert list(tmp_path.iterdir()) == []


def test_a_readonly_handle_reads_and_refuses_writes(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with duramen.open(path) as dm:
        dm.session("s").append("note", "before")
        with duramen.open(path, readonly=True) as reader:
            assert [event.data for event in reader.session("s").events()] == ["before"]
            for work in (
                lambda: reader.session("s").append("note", 2),
                lambda: reader.session("s").fork("t"),
                lambda: reader.session("s").lease("me"),
                lambda: reader.session("s").append("note", 2, subject="ada"),
            ):
                assert_refused(errors.StoreReadOnly, work)
            assert reader.verify().ok
        dm.session("s").append("note", "after")
    with duramen.open(path, readonly=True) as reader:
        assert [event.data for event in reader.session("s").events()] == ["before", "after"]


READER = """
import os, sys, duramen
with duramen.open(sys.argv[2]) as dm:  # import everything before this process loses the permission to read it
    dm.session("s").append("note", 1)
if os.getuid() == 0:
    os.setgid(65534); os.setuid(65534)
try:
    dm = duramen.open(sys.argv[1], timeout=1)
    dm.session("s").append("note", "not allowed")
except duramen.DuramenError as error:
    print(type(error).__name__, bool(error.hint))
with duramen.open(sys.argv[1], readonly=True) as dm:
    print([event.data for event in dm.session("s").events()], dm.verify().ok)
"""


@pytest.mark.parametrize("folder_mode", [0o777, 0o555], ids=["in a writable folder", "in a read-only folder"])
def test_a_file_without_write_permission_can_be_read(tmp_path: Path, folder_mode: int) -> None:
    folder = Path(tempfile.mkdtemp())  # tmp_path is not accessible to other users
    path = folder / "agent.db"
    try:
        with duramen.open(path) as dm:
            dm.session("s").append("note", "before")
        for file in folder.iterdir():
            file.chmod(0o444)
        folder.chmod(folder_mode)
        command = [sys.executable, "-c", READER, str(path), str(tmp_path / "own.db")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout.splitlines() == ["StoreReadOnly True", "['before'] True"], done.stderr
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


@pytest.fixture
def disk() -> Iterator[PowerLossDisk]:
    with PowerLossDisk(seed=1) as made:
        yield made


@pytest.mark.promise("J2", "J5")
@pytest.mark.parametrize("passing", [0, 1, 2])
@pytest.mark.parametrize(
    ("call", "fault", "kind"),
    [
        ("xWrite", "full", errors.StoreFull),
        ("xWrite", "ioerr", errors.StoreUnavailable),
        ("xSync", "ioerr", errors.StoreUnavailable),
    ],
)
def test_a_full_or_failing_disk_loses_no_stored_event(
    disk: PowerLossDisk, call: Any, fault: Any, kind: Any, passing: int
) -> None:
    settings = SqliteSettings("agent.db", timeout=1.0, vfs=disk.vfs_name)
    dm = Duramen(AsyncDuramen(open_journal(SqliteStore(settings, Blocking()), {}), Blocking()))
    session = dm.session("s")
    session.append("note", "before")
    large = ["x" * 3_000] * 5
    disk.fail(call, fault, after=passing if call == "xWrite" else 0)
    for data in (large, "small"):
        assert_refused(kind, lambda data=data: [session.append("note", data) for _ in range(3)])
    with pytest.raises(errors.StoreError):
        dm.session("new").append_all([Draft("note", large)] * 3)
    stored = [event.data for event in session.events()]
    assert stored[0] == "before"
    disk.heal()
    session.append("note", "after", expected=len(stored))
    assert [event.data for event in session.events()] == [*stored, "after"]
    assert dm.verify().ok
    dm.close()


def test_a_full_disk_while_opening_is_reported(disk: PowerLossDisk) -> None:
    settings = SqliteSettings("agent.db", timeout=1.0, vfs=disk.vfs_name)
    disk.fail("xWrite", "full", after=1)
    assert_refused(errors.StoreFull, lambda: SqliteStore(settings, Blocking()))
    disk.heal()
    dm = Duramen(AsyncDuramen(open_journal(SqliteStore(settings, Blocking()), {}), Blocking()))
    dm.session("s").append("note", 1)
    dm.close()


# -- servers


def test_an_unreachable_server_is_reported_without_the_password() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
    error = assert_refused(
        errors.StoreUnavailable, lambda: duramen.open(f"postgresql://ada:hunter2@127.0.0.1:{port}/x", timeout=1)
    )
    assert "hunter2" not in str(error)
    assert_refused(errors.StoreUnavailable, lambda: duramen.open("postgresql://ada@no-such-host.invalid/x", timeout=1))


def test_a_missing_database_is_reported(postgres_server: PostgresServer) -> None:
    url = postgres_server.url.rsplit("/", 1)[0]
    error = assert_refused(errors.StoreUnavailable, lambda: duramen.open(f"{url}/nowhere", timeout=1))
    assert '"nowhere" does not exist' in error.message
    assert "create" in error.hint


@pytest.fixture
def guarded_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A role that needs a password, on a server that trusts all other roles."""
    rules = postgres_server.data_directory / "pg_hba.conf"
    before = rules.read_text()
    url = postgres_server.create_database("guarded")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'right'")
        rules.write_text("host all guarded all scram-sha-256\n" + before)
        connection.execute("SELECT pg_reload_conf()")
        yield url.replace("postgres@", "guarded:{}@")
        rules.write_text(before)
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("DROP OWNED BY guarded")
        connection.execute("DROP ROLE guarded")


def test_a_wrong_password_and_missing_privileges_are_reported(guarded_url: str) -> None:
    error = assert_refused(errors.StoreUnavailable, lambda: duramen.open(guarded_url.format("hunter2"), timeout=1))
    assert "password" in error.hint
    assert "hunter2" not in str(error)
    assert_refused(errors.StoreReadOnly, lambda: duramen.open(guarded_url.format("right"), timeout=1))


def test_a_readonly_postgres_handle_refuses_writes(empty_postgres_url: str) -> None:
    assert_refused(errors.NotAStore, lambda: duramen.open(empty_postgres_url, readonly=True))
    with duramen.open(empty_postgres_url) as dm:
        dm.session("s").append("note", 1)
    with duramen.open(empty_postgres_url, readonly=True) as reader:
        assert [event.data for event in reader.session("s").events()] == [1]
        assert_refused(errors.StoreReadOnly, lambda: reader.session("s").append("note", 2))


# -- versions


def set_version(address: str, version: int) -> None:
    if address.startswith("postgresql:"):
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("UPDATE duramen.meta SET value = %s WHERE name = 'schema'", (version,))
    else:
        with closing(apsw.Connection(address)) as db:
            db.execute("UPDATE duramen_meta SET value = ? WHERE name = 'schema'", (version,))


FORMAT_2 = {
    "sqlite": "ALTER TABLE duramen_sessions ADD COLUMN color TEXT NOT NULL DEFAULT 'blue';",
    "postgres": "ALTER TABLE duramen.sessions ADD COLUMN color text NOT NULL DEFAULT 'blue';",
}
"""A fictitious next format of each store."""


def migrate(address: str, folder: Path) -> list[str]:
    """Migrate a store to the fictitious format. Returns the new column of its sessions."""
    module, name = (postgres, "postgres") if address.startswith("postgresql:") else (sqlite, "sqlite")
    shutil.copytree(Path(module.__file__).parent / "migrations", folder)
    (folder / "0002_fictitious.sql").write_text(FORMAT_2[name])
    migrations = load_migrations(folder)
    assert [number for number, _ in migrations] == [1, 2]
    if module is postgres:
        settings = PostgresSettings(address)
        with postgres.connect(settings) as connection:
            postgres.migrate(connection, settings, migrations)
            return [row[0] for row in connection.execute("SELECT color FROM duramen.sessions")]
    with closing(sqlite.connect(SqliteSettings(address))) as db:
        sqlite.migrate(db, address, migrations)
        return [row[0] for row in db.execute("SELECT color FROM duramen_sessions")]


@pytest.mark.promise("J16")
def test_a_store_of_the_first_format_is_migrated(address: str, tmp_path: Path) -> None:
    with duramen.open(address) as dm:
        dm.session("s").append_all([Draft("note", 1), Draft("note", "x" * 50_000)], subject="ada")
        dm.session("s").fork("t", at=1).append("note", 3)
    assert migrate(address, tmp_path / "once") == ["blue", "blue"]
    assert migrate(address, tmp_path / "again") == ["blue", "blue"]
    error = assert_refused(errors.StoreTooNew, lambda: duramen.open(address))
    assert isinstance(error, errors.StoreTooNew)
    assert (error.found, error.supported) == (2, 1)
    set_version(address, 1)
    with duramen.open(address) as dm:
        assert [event.position for event in dm.session("s").events()] == [1, 2]
        assert [event.data for event in dm.session("t").events()] == [1, 3]
        dm.session("s").append("note", 4)
        assert dm.verify().ok


@pytest.mark.promise("J16")
def test_a_new_store_gets_all_migrations(address: str, tmp_path: Path) -> None:
    assert migrate(address, tmp_path / "migrations") == []
    set_version(address, 1)
    with duramen.open(address) as dm:
        dm.session("s").append("note", 1)
        assert dm.verify().ok


@pytest.mark.promise("J16")
def test_a_failed_migration_changes_nothing(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with duramen.open(address) as dm:
        dm.session("s").append("note", 1)
    with monkeypatch.context() as patched:
        for name, script in FORMAT_2.items():
            patched.setitem(FORMAT_2, name, f"{script} INSERT INTO nothing VALUES (1);")
        with pytest.raises((psycopg.Error, errors.StoreError)):
            migrate(address, tmp_path / "broken")
    with duramen.open(address) as dm:
        assert [event.data for event in dm.session("s").events()] == [1]
    assert migrate(address, tmp_path / "valid") == ["blue"]


@pytest.mark.promise("J16")
@pytest.mark.parametrize("readonly", [False, True], ids=["writing", "readonly"])
def test_a_newer_store_is_refused_with_both_versions(address: str, readonly: bool) -> None:
    with duramen.open(address) as dm:
        dm.session("s").append("note", 1)
    known = postgres.SCHEMA_VERSION if address.startswith("postgresql:") else sqlite.SCHEMA_VERSION
    set_version(address, known + 1)
    error = assert_refused(errors.StoreTooNew, lambda: duramen.open(address, readonly=readonly))
    assert isinstance(error, errors.StoreTooNew)
    assert (error.found, error.supported) == (known + 1, known)
    set_version(address, known)
    with duramen.open(address) as dm:
        assert [event.data for event in dm.session("s").events()] == [1]
