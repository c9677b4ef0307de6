"""A flipped bit is detected or harmless. It never causes a wrong answer that `verify` misses, or an unnamed error."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import psycopg
import pytest
from programs.checkpoint_writers import texts
from programs.seeds import seeded

import duramen
from duramen import Draft, Duramen
from duramen.api._async.duramen import AsyncDuramen
from duramen.api.settings import open_journal, open_store
from duramen.checkpoints.checkpoints import Checkpoints
from duramen.checkpoints.kv_items import KvItems
from duramen.checkpoints.manifest import BytesField
from duramen.errors import DuramenError, JournalDamaged, StoreDamaged
from duramen.journal.journal import Journal
from duramen.ports import FeedItem, IndexEntry, MemoryChanges, MemoryQuery, Record, Store
from duramen.runtime import Blocking, drive
from duramen.testing.chunk_contract import store_changes
from duramen.testing.clock import FakeClock, FakeIds
from duramen.testing.index_contract import enter, known, memory

KEY = bytes(range(32))
WORKSPACES = ("main", "other")
MEMORY_TABLES = ("audiences", "memories", "index_entries", "recalls", "generations")
TABLES = ("sessions", "events", "blobs", "subjects", "leases", "cursors", "runs", "bookmarks", "chunks", *MEMORY_TABLES)


class Outlet:
    name = "search"

    def apply(self, events: Any) -> None:
        """Accepts all events."""


@duramen.task(version="1")
def errand(count: int) -> int:
    return count


def populate(address: str) -> None:
    """A store with rows in every table: sealed and plain events, an erased subject, forks, blobs, leases, cursors."""
    clock, ids = FakeClock(), FakeIds()
    with duramen.open(address, workspace="main", clock=clock, ids=ids) as dm:
        a, b = dm.session("a"), dm.session("b")
        a.append("asked", {"n": 1}, actor="user", key="k1")
        b.append("note", "b one")
        a.append_all(
            [Draft("thought", [1, 2.5, None], "agent", 1), Draft("answered", "hello", "agent", "b#1")], key="k2"
        )
        a.append("about", "ada lives in Hamburg", subject="ada")
        a.append("about", "eve lives in Paris", subject="eve")
        b.append("output", {"out": "shared " * 4_000})
        a.fork("branch", at=3).append("note", "on the branch")
        a.fork("bare", at=2)
        write_checkpoints(dm)
        write_memories(dm)
        dm.erase("eve")
    with duramen.open(address, workspace="main", clock=clock, ids=ids, key=KEY) as dm:
        dm.session("a").append("sealed", {"n": 7}, key="k3")
        dm.session("b").append("sealed", {"out": "hidden " * 4_000}, subject="ada")
        drive(Checkpoints(dm._core._journal).save("c", "main", {"all": texts(["one " * 40, "two " * 40])}, {}, id="3"))
        assert dm.session("a").lease("worker", seconds=60)
        dm.start(errand, 3, id="errand-1", queue="errands", queue_key="ada", priority=2)
        dm.run(errand, 4, id="errand-2")
        dm.deliver(Outlet())
        dm.session("b").append("note", "not delivered yet")
        dm.session("a").append("note", "the last of a")
    with duramen.open(address, workspace="other", clock=clock, ids=ids) as dm:
        dm.session("x").append("note", 1, subject="bob")
        dm.session("x").append("note", 2)


def write_checkpoints(dm: Duramen) -> None:
    """Checkpoints of a growing list, an attachment, and a key-value item."""
    checkpoints, items = Checkpoints(dm._core._journal), KvItems(dm._core._journal)
    drive(checkpoints.save("c", "main", {"all": texts(["one " * 40]), "n": BytesField(b"1")}, {"step": 1}, id="1"))
    drive(checkpoints.save("c", "main", {"all": texts(["one " * 40, "two " * 40])}, {}, id="2", subject="ada"))
    drive(checkpoints.attach("c", "main", "1", {"task": 7}, type="writes", fields={"w": texts(["word " * 40])}))
    drive(items.put(("notes", "ä"), "key", {"v": 1}, ttl_us=10**15))


def write_memories(dm: Duramen) -> None:
    """Memories with index entries in two audiences: current, replaced, repeated, forgotten, of an erased subject."""
    core, store = dm._core, dm._core._journal.store
    eve = drive(core._journal.owner("eve")).ref
    made = drive(store.add_generation("main", b"model", active=True))
    drive(enter(core, memory("old", key="k"), memory("gone", audience=b"p"), memory("twice", expires=9), session="m"))
    drive(enter(core, memory("new", key="k"), memory("twice"), session="m"))
    drive(enter(core, memory("of eve", audience=b"p", owner=eve), session="m", subject=eve))
    rows = {row.id: row for row in drive(known(core))}
    index_entries = [IndexEntry(b"", rows[id].number, id.encode(), b"\0\1") for id in ("new", "gone", "of eve")]
    drive(store.put_index_entries("main", made.number, index_entries))
    drive(store.note_recalls("main", [(row.number, 2, 7) for row in rows.values()]))
    drive(store_changes(core, "m", (MemoryChanges(forgotten=[rows["gone"].number]),)))
    drive(store.add_generation("main", b"next", active=False))


def read_memories(store: Store, workspace: str) -> Any:
    """All memories. Returns an error if a row reports that it is damaged."""
    audiences = drive(store.audience_changes(workspace, None))
    rows = [drive(store.memories(workspace, MemoryQuery(**asked))) for asked in ({}, {"history": True}, {"key": "k"})]
    rows += [drive(store.unindexed(workspace, generation, 99)) for generation in (1, 2)]
    bad = [row for results in rows for row in results if not row.intact]
    changes = [drive(store.changes(workspace, audience, 1, 0, 99)) for audience in sorted(audiences)]
    return (
        StoreDamaged("a row is not intact") if bad else [audiences, rows, changes, drive(store.generations(workspace))]
    )


def read_checkpoints(journal: Journal) -> Any:
    """The newest checkpoints and the key-value items. Returns the damage if a checkpoint was skipped."""
    checkpoints = Checkpoints(journal)
    newest = [drive(checkpoints.load("c", "main", at=at)) for at in (None, 2, 1)]
    skipped = [damage for saved in newest if saved is not None for damage in saved.skipped]
    attached = drive(checkpoints.attachments("c", "main", "1"))
    return (
        skipped[0] if skipped else [newest, attached, drive(checkpoints.names("c")), drive(KvItems(journal).find(()))]
    )


def read_all(store: Store) -> dict[str, Any]:
    """The result of each read that a new process can do, or the `DuramenError` that it raises."""
    results: dict[str, Any] = {}
    for workspace in WORKSPACES:
        journal = open_journal(store, {"workspace": workspace, "key": KEY, "clock": FakeClock()})
        dm = Duramen(AsyncDuramen(journal, Blocking()))
        results[f"{workspace} sessions"] = result_or_error(lambda dm=dm: list(dm.sessions()))
        for session in ("a", "b", "branch", "bare", "x"):
            results[f"{workspace}/{session}"] = result_or_error(lambda dm=dm, session=session: read(dm, session))
            results[f"{workspace}/{session} lease"] = result_or_error(
                lambda workspace=workspace, session=session: drive(store.lease(workspace, session))
            )
        items = result_or_error(lambda workspace=workspace: drive(store.feed(workspace, 0, 500)))
        if not isinstance(items, DuramenError):
            items = result_or_error(lambda journal=journal, items=items: drive(journal.reader.opened_feed(items)))
        results[f"{workspace} feed"] = items
        results[f"{workspace} undelivered"] = result_or_error(lambda workspace=workspace: undelivered(store, workspace))
        results[f"{workspace} checkpoints"] = result_or_error(lambda journal=journal: read_checkpoints(journal))
        results[f"{workspace} memories"] = result_or_error(lambda workspace=workspace: read_memories(store, workspace))
        results[f"{workspace} runs"] = result_or_error(
            lambda dm=dm: [dm.runs(), dm.runs(status="queued", queue="errands")]
        )
        results[f"{workspace} due"] = result_or_error(lambda workspace=workspace: drive(store.due(workspace, 2**60, 9)))
        results[f"{workspace} verify"] = result_or_error(dm.verify)
    results["workspaces"] = result_or_error(lambda: drive(store.workspaces()))
    return results


def result_or_error(work: Any) -> Any:
    try:
        return work()
    except DuramenError as error:
        return error


def read(dm: Duramen, session: str) -> Any:
    return list(dm.session(session).events()), dm.session(session).head(), dm.session(session).status()


def undelivered(store: Store, workspace: str) -> list[Any]:
    items = drive(store.feed(workspace, drive(store.cursor(workspace, "search")), 500))
    return [(item.session, item.record.position) for item in items]


def verdict(before: dict[str, Any], after: dict[str, Any]) -> str:
    if any(isinstance(answer, DuramenError) for answer in after.values()):
        return "detected"
    if not all(after[f"{workspace} verify"].ok for workspace in WORKSPACES):
        return "detected"
    wrong = [read for read in before if after[read] != before[read]]
    return f"WRONG {', '.join(wrong)}" if wrong else "harmless"


def flipped(value: Any, turn: int) -> Iterator[Any]:
    """Values that differ from this value by one bit."""
    if isinstance(value, int):
        yield value ^ (1 << (0, 1, 3, 40)[turn % 4])
    elif isinstance(value, str):
        at = turn % len(value) if value else 0
        yield value[:at] + chr(ord(value[at]) ^ (1, 2, 4)[turn % 3]) + value[at + 1 :] if value else "x"
    elif isinstance(value, bytes):
        at = (0, len(value) // 2, len(value) - 1)[turn % 3]
        yield value[:at] + bytes((value[at] ^ (1 << turn % 8),)) + value[at + 1 :] if value else b"x"
    else:
        yield from (b"\1", "x", 1)


def invalid_utf8(value: Any, turn: int) -> Iterator[bytes]:
    """The bytes of a text with one high bit flipped, so that they are not UTF-8."""
    if isinstance(value, str) and value:
        body = value.encode()
        yield body[: turn % len(body)] + bytes((body[turn % len(body)] ^ 0x80,)) + body[turn % len(body) + 1 :]


class Mutation(NamedTuple):
    table: str
    column: str
    row: Any
    value: Any
    replacement: Any

    def __str__(self) -> str:
        return f"{self.table}.{self.column} {str(self.value)[:40]!r} -> {str(self.replacement)[:40]!r}"


def some_of(mutations: Iterable[Mutation], count: int) -> list[Mutation]:
    """At most so many of the mutations."""
    chosen = list(mutations)
    return seeded("mutations").sample(chosen, min(count, len(chosen)))


# -- SQLite: each mutation on a new copy of the file


@pytest.fixture(scope="module")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corruption") / "agent.db"
    populate(str(path))
    assert not path.with_name("agent.db-wal").exists()
    return path


@pytest.fixture(scope="module")
def sqlite_before(sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    copy = tmp_path_factory.mktemp("intact") / "agent.db"
    shutil.copy(sqlite_template, copy)
    return read_sqlite(copy)


def read_sqlite(path: Path) -> dict[str, Any]:
    store = open_store(str(path), {"timeout": 1.0}, Blocking())
    try:
        return read_all(store)
    finally:
        drive(store.close())


def verdict_on_file(path: Path, before: dict[str, Any]) -> str:
    try:
        return verdict(before, read_sqlite(path))
    except DuramenError:
        return "detected"
    except Exception as error:  # noqa: BLE001 - the failure that this test looks for
        return f"UNNAMED {type(error).__name__}: {error}"


def sqlite_mutations(path: Path, table: str, flips: Any = flipped) -> Iterator[Mutation]:
    turn = 0
    with closing(apsw.Connection(str(path))) as db:
        columns = [row[1] for row in db.execute(f"PRAGMA table_info(duramen_{table})")]
        for row in db.execute(f"SELECT * FROM duramen_{table}").fetchall():
            for column, value in zip(columns, row, strict=True):
                turn += 1
                for replacement in flips(value, turn):
                    yield Mutation(table, column, dict(zip(columns, row, strict=True)), value, replacement)


def mutate_sqlite(path: Path, mutation: Mutation) -> bool:
    """Whether the database accepted the change."""
    given = "CAST(? AS TEXT)" if isinstance(mutation.value, str) else "?"
    where = " AND ".join(f"{column} IS ?" for column in mutation.row)
    with closing(apsw.Connection(str(path))) as db:
        sql = f"UPDATE duramen_{mutation.table} SET {mutation.column} = {given} WHERE {where}"
        try:
            db.execute(sql, (mutation.replacement, *mutation.row.values()))
        except apsw.ConstraintError:
            return False
        return db.changes() == 1


def test_an_intact_store_answers_every_read(sqlite_before: dict[str, Any]) -> None:
    assert verdict(sqlite_before, sqlite_before) == "harmless"
    assert len(sqlite_before["main/a"][0]) == 8
    assert [event.data for event in sqlite_before["main/branch"][0]][-1] == "on the branch"
    assert sqlite_before["main undelivered"] == [("b", 4), ("a", 8)]
    newest, attached, names, items = sqlite_before["main checkpoints"]
    assert [saved.id for saved in newest] == ["3", "2", "1"]
    assert (len(attached), names, len(items)) == (1, ["main"], 1)
    audiences, rows, changes, generations = sqlite_before["main memories"]
    assert [len(results) for results in (audiences, *rows, *changes, generations)] == [2, 2, 4, 1, 1, 2, 4, 2, 2]


def assert_none_wrong(verdicts: list[tuple[Any, str]], min_detected: int) -> None:
    """Assert that each mutation was detected or harmless, and that at least `min_detected` were detected."""
    bad = [f"{mutation}: {outcome}" for mutation, outcome in verdicts if outcome not in ("detected", "harmless")]
    assert not bad, f"{len(bad)} of {len(verdicts)}:\n" + "\n".join(bad[:40])
    assert sum(outcome == "detected" for _, outcome in verdicts) >= min_detected


def verdicts_on_copies(
    template: Path, folder: Path, mutations: Iterable[Mutation], before: Any
) -> list[tuple[Any, str]]:
    copy, verdicts = folder / "agent.db", []
    for mutation in mutations:
        for leftover in folder.iterdir():
            leftover.unlink()
        shutil.copy(template, copy)
        if mutate_sqlite(copy, mutation):
            verdicts.append((mutation, verdict_on_file(copy, before)))
    return verdicts


@pytest.mark.promise("J8")
@pytest.mark.parametrize("table", [*TABLES, "meta"])
def test_no_flip_in_sqlite_gives_a_wrong_answer(
    table: str, sqlite_template: Path, sqlite_before: dict[str, Any], tmp_path: Path, everything: bool
) -> None:
    mutations = sqlite_mutations(sqlite_template, table)
    if not everything:
        mutations = some_of(mutations, 60)
    verdicts = verdicts_on_copies(sqlite_template, tmp_path, mutations, sqlite_before)
    assert_none_wrong(verdicts, (100 if everything else 15) if table == "events" else 2)


@pytest.mark.promise("J8")
@pytest.mark.parametrize(
    "table", ["sessions", "events", "subjects", "leases", "cursors", "bookmarks", "audiences", "memories"]
)
def test_text_that_is_not_valid_utf8_is_detected(
    table: str, sqlite_template: Path, sqlite_before: dict[str, Any], tmp_path: Path
) -> None:
    mutations = sqlite_mutations(sqlite_template, table, invalid_utf8)
    assert_none_wrong(verdicts_on_copies(sqlite_template, tmp_path, mutations, sqlite_before), 1)


@pytest.mark.promise("J8")
def test_no_flip_in_the_file_gives_a_wrong_answer(
    sqlite_template: Path, sqlite_before: dict[str, Any], tmp_path: Path, everything: bool
) -> None:
    flips = 200 if everything else 60
    copy, verdicts, choices = tmp_path / "agent.db", [], seeded("flipped bits in a file")
    image = sqlite_template.read_bytes()
    used = [offset for offset, byte in enumerate(image) if byte]  # most bytes of a small file are zero
    for _ in range(flips):
        offset, bit = choices.choice(used), choices.randrange(8)
        for leftover in tmp_path.iterdir():
            leftover.unlink()
        copy.write_bytes(image[:offset] + bytes((image[offset] ^ 1 << bit,)) + image[offset + 1 :])
        verdicts.append((f"byte {offset} bit {bit}", verdict_on_file(copy, sqlite_before)))
    assert_none_wrong(verdicts, flips // 2)


@pytest.mark.promise("J8")
@pytest.mark.parametrize("page", [0, 1, 5, 12])
def test_a_lost_page_is_detected(
    page: int, sqlite_template: Path, sqlite_before: dict[str, Any], tmp_path: Path
) -> None:
    image = sqlite_template.read_bytes()
    for name, content in {
        "zeroed": image[: page * 4096] + bytes(4096) + image[(page + 1) * 4096 :],
        "cut": image[: page * 4096 + 100],
    }.items():
        if content:
            path = tmp_path / f"{name}.db"
            path.write_bytes(content)
            assert verdict_on_file(path, sqlite_before) == "detected", name


# -- PostgreSQL: each mutation is undone


@pytest.fixture
def populated_postgres(postgres_url: str) -> str:
    populate(postgres_url)
    return postgres_url


def postgres_mutations(connection: Any, table: str) -> Iterator[Mutation]:
    turn = 0
    cursor = connection.execute(f"SELECT ctid::text, * FROM duramen.{table}")
    columns = [column.name for column in cursor.description]
    for row in cursor.fetchall():
        for column, value in zip(columns[1:], row[1:], strict=True):
            turn += 1
            for replacement in flipped(value, turn):
                yield Mutation(table, column, dict(zip(columns, row, strict=True)), value, replacement)


@pytest.mark.promise("J8", "B2")
def test_no_flip_in_postgres_gives_a_wrong_answer(populated_postgres: str, everything: bool) -> None:
    store = open_store(populated_postgres, {"timeout": 2.0}, Blocking())
    before, verdicts = read_all(store), []
    with psycopg.connect(populated_postgres, autocommit=True) as connection:
        for table in TABLES:
            places: dict[str, str] = {}
            mutations: Iterable[Mutation] = postgres_mutations(connection, table)
            if not everything:
                mutations = some_of(mutations, 6)
            for mutation in mutations:
                first = mutation.row["ctid"]
                change = f"UPDATE duramen.{table} SET {mutation.column} = %s WHERE ctid = %s::tid RETURNING ctid::text"
                try:
                    (moved,) = connection.execute(change, (mutation.replacement, places.get(first, first))).fetchone()
                except psycopg.Error:  # the column rejects the value, or the key exists already
                    continue
                try:
                    outcome = verdict(before, read_all(store))
                except Exception as error:  # noqa: BLE001 - the failure that this test looks for
                    outcome = f"UNNAMED {type(error).__name__}: {error}"
                verdicts.append((mutation, outcome))
                (places[first],) = connection.execute(change, (mutation.value, moved)).fetchone()
    assert verdict(before, read_all(store)) == "harmless", "a change was not undone"
    drive(store.close())
    assert_none_wrong(verdicts, 100 if everything else 20)


# -- damage is reported, and the other events stay readable


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return str(request.getfixturevalue("postgres_url"))


def tamper(address: str, sql: str) -> None:
    if address.startswith("postgresql:"):
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute(sql.replace("events", "duramen.events").encode())
    else:
        with closing(apsw.Connection(address)) as db:
            db.execute(sql.replace("events", "duramen_events").replace("'\\x00'::bytea", "x'00'"))


@pytest.fixture
def ten(address: str) -> Iterator[Duramen]:
    with duramen.open(address) as dm:
        dm.session("s").append_all([Draft("note", n, "agent") for n in range(1, 11)])
        yield dm


TAMPERINGS = {
    "type": "UPDATE events SET type = 'other' WHERE position = {}",
    "time": "UPDATE events SET time = time + 1 WHERE position = {}",
    "actor": "UPDATE events SET actor = NULL WHERE position = {}",
    "cause": "UPDATE events SET cause = '1' WHERE position = {}",
    "key": "UPDATE events SET key = 'k' WHERE position = {}",
    "subject": "UPDATE events SET subject = '\\x00'::bytea WHERE position = {}",
    "payload": "UPDATE events SET payload = '\\x00'::bytea WHERE position = {}",
    "no payload": "UPDATE events SET payload = NULL WHERE position = {}",
    "erased": "UPDATE events SET payload = NULL, payload_hash = '\\x00'::bytea WHERE position = {}",
    "hash": "UPDATE events SET hash = '\\x00'::bytea WHERE position = {}",
    "position": "UPDATE events SET position = 77 WHERE position = {}",
    "deleted": "DELETE FROM events WHERE position = {}",
}


@pytest.mark.promise("J8", "J10")
@pytest.mark.parametrize("how", TAMPERINGS)
def test_verify_names_the_first_bad_event(ten: Duramen, address: str, how: str) -> None:
    tamper(address, TAMPERINGS[how].format(4))
    assert [problem[:2] for problem in ten.session("s").verify().problems] == [("s", 4)]
    assert [problem[:2] for problem in ten.verify().problems if problem.session] == [("s", 4)]


@pytest.mark.promise("J8")
@pytest.mark.parametrize("position", [1, 4, 10])
@pytest.mark.parametrize("how", ["payload", "hash", "position", "deleted"])
def test_reading_returns_the_good_events_before_a_bad_one(ten: Duramen, address: str, how: str, position: int) -> None:
    tamper(address, TAMPERINGS[how].format(position))
    if (how, position) != ("deleted", 10):  # the chain does not record that there was a tenth
        seen, damaged = read_until_damage(ten.session("s"))
        assert seen == list(range(1, position))
        assert damaged.position == position


@pytest.mark.promise("J8")
@pytest.mark.parametrize("position", [1, 4, 10])
@pytest.mark.parametrize("how", ["payload", "hash", "position", "deleted"])
def test_a_damaged_session_can_be_forked_at_its_last_good_event(
    ten: Duramen, address: str, how: str, position: int
) -> None:
    tamper(address, TAMPERINGS[how].format(position))
    rescued = ten.session("s").fork("rescued", at=position - 1)
    rescued.append("note", "continued")
    assert [event.data for event in rescued.events()] == [*range(1, position), "continued"]
    assert rescued.verify().ok


@pytest.mark.promise("J8")
def test_a_missing_last_event_is_detected(ten: Duramen, address: str) -> None:
    ten.session("later").append("note", "an event of another session")
    tamper(address, "DELETE FROM events WHERE position = 10")
    assert not ten.verify().ok


def read_until_damage(session: duramen.Session) -> tuple[list[Any], JournalDamaged]:
    seen: list[Any] = []
    events = session.events()

    def read_all_events() -> None:
        seen.extend(event.data for event in events)

    with pytest.raises(JournalDamaged) as damaged:
        read_all_events()
    return seen, damaged.value


@pytest.mark.promise("J8")
def test_good_events_before_damage_on_a_later_page_are_returned(address: str) -> None:
    with duramen.open(address) as dm:
        session = dm.session("s")
        session.append_all([Draft("note", n) for n in range(1, 1201)])
        tamper(address, "UPDATE events SET type = 'other' WHERE position = 777")
        assert len(list(session.events(stop=776))) == 776
        assert [problem[:2] for problem in dm.verify().problems] == [("s", 777)]
        assert [event.data for event in session.events(start=779, limit=2)] == [779, 780]
        seen, damaged = read_until_damage(session)
        assert (damaged.position, seen) == (777, list(range(1, 777)))


@pytest.mark.promise("J8")
@pytest.mark.parametrize("field", [field for field in Record._fields if field != "payload_hash"])
def test_a_field_of_the_wrong_type_is_damage(field: str) -> None:
    """A flipped bit in the header of a SQLite row can change the type of a value."""
    with duramen.open("memory:") as dm:
        dm.session("s").append_all([Draft("note", n, "agent", 1) for n in (1, 2, 3)], key="k")
        store: Any = dm._core._journal.store
        records = store._spaces["default"].sessions["s"].records
        intact = records[1]
        for wrong in (None, "text", b"bytes", 7, 1.5, 2**63 - 1):
            if getattr(intact, field) != wrong:
                records[1] = intact._replace(**{field: wrong})
                with pytest.raises(JournalDamaged) as damaged:
                    list(dm.session("s").events())
                assert damaged.value.position == 2
                with pytest.raises(DuramenError):
                    drive(open_journal(store, {}).reader.opened_feed([FeedItem(2, "s", records[0].hash, records[1])]))


@pytest.mark.promise("J8")
def test_verify_reports_the_damage_of_every_session(address: str) -> None:
    with duramen.open(address) as dm:
        for name in ("a", "b", "c"):
            dm.session(name).append_all([Draft("note", name), Draft("mark", name)])
        tamper(address, "UPDATE events SET time = 5 WHERE type = 'mark'")
        verification = dm.verify()
        assert [problem[:2] for problem in verification.problems] == [("a", 2), ("b", 2), ("c", 2)]
        assert verification.sessions == 3


WRITER_PROGRAM = """
import dataclasses, sys, duramen
@duramen.register(name="test_corruption.Point")
@dataclasses.dataclass
class Point:
    x: int
with duramen.open(sys.argv[1]) as dm:
    dm.session("s").append("note", Point(1))
    dm.session("s").append("note", "plain")
"""


@pytest.mark.promise("J10")
def test_verify_needs_no_registered_classes(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    subprocess.run([sys.executable, "-c", WRITER_PROGRAM, str(path)], check=True)
    with duramen.open(path) as dm:
        assert dm.verify().ok
        tamper(str(path), "UPDATE events SET time = 5 WHERE position = 2")
        assert [problem[:2] for problem in dm.verify().problems] == [("s", 2)]
