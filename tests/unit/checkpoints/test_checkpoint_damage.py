"""A damaged checkpoint is found and named, the one before it is used, and everything else goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from programs.checkpoint_writers import checkpoints_of, fields_of, listed, plain, texts

import duramen
from duramen.checkpoints.checkpoints import Checkpoints
from duramen.checkpoints.chunks import Chunks
from duramen.checkpoints.manifest import BytesField, pack
from duramen.errors import CheckpointDamaged
from duramen.journal.envelope import disclose
from duramen.ports import BookmarkChanges, BookmarkQuery
from duramen.runtime import drive


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(params=["plain", "sealed"])
def dm(request: pytest.FixtureRequest, address: str) -> Iterator[duramen.Duramen]:
    key: Any = {"key": bytes(range(32))} if request.param == "sealed" else {}
    with duramen.open(address, **key) as opened:
        yield opened


def save(cp: Checkpoints, session: str, number: int) -> None:
    drive(cp.save(session, "main", fields_of(number), {"n": number}, id=f"c{number}"))


def save_four(dm: duramen.Duramen, session: str) -> None:
    """Checkpoints c0 to c3 at positions 2 to 5, between events that have nothing to do with them."""
    dm.session(session).append("note", "innocent")
    cp = checkpoints_of(dm)
    for number in range(4):
        save(cp, session, number)
    dm.session(session).append("note", "afterwards")


def expect(cp: Checkpoints, session: str, number: int, how: str, **which: Any) -> tuple[CheckpointDamaged, ...]:
    """That a checkpoint, or the newest, is the one of this number; gives what was skipped."""
    found = drive(cp.load(session, "main", **which))
    assert found is not None, how
    assert (found.id, found.note, found.fields) == (f"c{number}", {"n": number}, plain(fields_of(number))), how
    return found.skipped


class Disk:
    """Changes single values, as a failing disk would."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._is_postgres = address.startswith("postgresql:")

    def change(self, session: str, how: str) -> Callable[[], None]:
        """Damage the last checkpoint of a session; gives what undoes it."""
        table, column, place, change = DAMAGE[how]
        before = self._read(session, table, column, place)
        self._write(session, table, column, place, change(before))
        moved = column in ("position", "start", "chunk_log") and change(before)
        return lambda: self._write(session, table, column, (moved and f"{column} = {moved}") or place, before)

    def _where(self, session: str, place: str) -> str:
        if self._is_postgres:
            own = f"session = '{session}'"
            return f"{own} AND {place}".replace("LAST", f"(SELECT max(start) FROM duramen.chunks WHERE {own})")
        own = f"sid = (SELECT sid FROM duramen_sessions WHERE session = '{session}')"
        return f"{own} AND {place}".replace("LAST", f"(SELECT max(start) FROM duramen_chunks WHERE {own})")

    def _read(self, session: str, table: str, column: str, place: str) -> Any:
        return self._do(f"SELECT {column} FROM {self._named(table)} WHERE {self._where(session, place)}", ())[0]

    def _write(self, session: str, table: str, column: str, place: str, value: Any) -> None:
        mark, where = "%s" if self._is_postgres else "?", self._where(session, place)
        self._do(f"UPDATE {self._named(table)} SET {column} = {mark} WHERE {where} RETURNING 1", (value,))

    def _named(self, table: str) -> str:
        return f"duramen.{table}" if self._is_postgres else f"duramen_{table}"

    def _do(self, sql: str, values: tuple[Any, ...]) -> Any:
        if self._is_postgres:
            with psycopg.connect(self._address, autocommit=True) as connection:
                rows: Any = connection.execute(sql.encode(), values).fetchall()
        else:
            with closing(apsw.Connection(self._address)) as db:
                rows = db.execute(sql, values).fetchall()
        assert len(rows) == 1, sql
        return rows[0]


def flip(at: int, bit: int = 4) -> Callable[[bytes], bytes]:
    return lambda body: body[:at] + bytes([body[at] ^ 1 << bit]) + (body[at + 1 :] if at != -1 else b"")


PART, ROW, EVENT = "start = LAST", "id = 'c3'", "position = 5"
DAMAGE: dict[str, tuple[str, str, str, Callable[[Any], Any]]] = {
    "a chunk's first byte": ("chunks", "body", PART, flip(0, 0)),
    "a chunk's second bit": ("chunks", "body", PART, flip(0, 1)),
    "a chunk's body": ("chunks", "body", PART, flip(-3)),
    "a chunk's end": ("chunks", "body", PART, lambda body: body[:-5]),
    "a chunk without a body": ("chunks", "body", PART, lambda body: b""),
    "a chunk's place": ("chunks", "start", PART, lambda start: start + 1),
    "a chunk's length": ("chunks", "count", PART, lambda count: count + 1000),
    "a chunk's lost length": ("chunks", "count", PART, lambda count: 0),
    "a chunk's owner": ("chunks", "owner", PART, lambda owner: b"?" * 16),
    "a chunk's checksum": ("chunks", "checksum", PART, flip(-1)),
    "the manifest's first byte": ("bookmarks", "manifest", ROW, flip(0, 0)),
    "the manifest": ("bookmarks", "manifest", ROW, flip(-3)),
    "the manifest's end": ("bookmarks", "manifest", ROW, lambda manifest: manifest[:-2]),
    "no manifest": ("bookmarks", "manifest", ROW, lambda manifest: None),
    "the row's time": ("bookmarks", "time", ROW, lambda time: time ^ 1),
    "the row's place far away": ("bookmarks", "position", ROW, lambda position: position + 64),
    "the row's place": ("bookmarks", "position", ROW, lambda position: 1),
    "the row's owner": ("bookmarks", "owner", ROW, lambda owner: b"?" * 16),
    "the row's checksum": ("bookmarks", "checksum", ROW, flip(2)),
    "the event's payload": ("events", "payload", EVENT, flip(-3)),
    "the event's first byte": ("events", "payload", EVENT, flip(0, 0)),
    "the event's type": ("events", "type", EVENT, lambda kind: "other"),
    "the event's hash": ("events", "hash", EVENT, flip(3)),
    "the event's time": ("events", "time", EVENT, lambda time: time ^ 1),
}


@pytest.mark.promise("J8", "C3")
def test_the_one_before_is_used_and_the_damage_is_told(dm: duramen.Duramen, address: str) -> None:
    save_four(dm, "s")
    for how in DAMAGE:
        undo = Disk(address).change("s", how)
        for cp in (checkpoints_of(dm), checkpoints_of(dm)):
            skipped = expect(cp, "s", 2, how)
            told = [(damaged.session, damaged.name, damaged.id, bool(damaged.reason)) for damaged in skipped]
            # A row that has slipped behind the others is not the newest any more: only verify knows.
            assert told == ([("s", "main", "c3", True)] if how != "the row's place" else []), how
            with pytest.raises(CheckpointDamaged) as raised:
                drive(cp.load("s", "main", id="c3"))
            assert raised.value.id == "c3", how
            for number in range(3):
                assert expect(cp, "s", number, how, id=f"c{number}") == (), how
            assert [one.id for one in listed(cp, "s", "main")][-3:] == ["c2", "c1", "c0"], how
        assert not dm.verify().ok, how
        undo()
        assert expect(checkpoints_of(dm), "s", 3, how) == (), how
        assert dm.verify().ok, how


@pytest.mark.promise("J8")
def test_a_process_that_finds_damage_goes_on_from_the_one_before(dm: duramen.Duramen, address: str) -> None:
    for index, how in enumerate(DAMAGE):
        save_four(dm, session := f"s{index}")
        Disk(address).change(session, how)
        writer = checkpoints_of(dm)
        if index % 2:
            expect(writer, session, 2, how)
        for number in (4, 5):
            save(writer, session, number)
        for cp in (writer, checkpoints_of(dm)):
            assert expect(cp, session, 5, how) == () or how == "the row's place far away", how
            expect(cp, session, 4, how, id="c4")


@pytest.mark.promise("J8", "C6")
def test_damaged_ones_and_others_beside_them_can_be_dropped(dm: duramen.Duramen, address: str) -> None:
    for index, how in enumerate(DAMAGE):
        save_four(dm, session := f"s{index}")
        Disk(address).change(session, how)
        cp = checkpoints_of(dm)
        assert drive(cp.drop(session, "main", ["c0"], reason="test")) == 1, how
        expect(cp, session, 2, how)
        expect(cp, session, 1, how, id="c1")
        assert drive(cp.drop(session, "main", ["c3"], reason="test")) == 1, how
        assert expect(cp, session, 2, how) == (), how
        assert drive(cp.load(session, "main", id="c3")) is None, how
        first = next(iter(dm.session(session).events()))
        assert (first.data, first.erased) == ("innocent", False), how
        save(cp, session, 3)
        assert expect(checkpoints_of(dm), session, 3, how) == (), how


@pytest.mark.promise("J8")
def test_when_all_are_damaged_it_is_said(dm: duramen.Duramen, address: str) -> None:
    cp = checkpoints_of(dm)
    drive(cp.save("s", "main", {"x": BytesField(b"word " * 50)}, {}, id="c3"))
    Disk(address).change("s", "a chunk's body")
    with pytest.raises(CheckpointDamaged):
        drive(cp.load("s", "main"))
    assert drive(cp.load("s", "main", at=0)) is None


@pytest.mark.promise("J8")
def test_damage_in_what_is_attached_is_said(dm: duramen.Duramen, address: str) -> None:
    cp = checkpoints_of(dm)
    save(cp, "s", 0)
    drive(cp.attach("s", "main", "c0", {"n": 1}, type="writes", fields={"w": texts(["first " * 50])}))
    drive(cp.attach("s", "main", "c0", {"n": 2}, type="writes", fields={"w": texts(["second " * 50])}))
    Disk(address).change("s", "a chunk's body")
    with pytest.raises(CheckpointDamaged):
        drive(cp.attachments("s", "main", "c0"))
    assert expect(cp, "s", 0, "attached") == ()


@pytest.mark.promise("J10", "J8")
def test_a_state_put_in_place_of_another_is_noticed(dm: duramen.Duramen) -> None:
    """By somebody who knows about checksums: the digest in the chain is another."""
    save_four(dm, "s")
    journal = dm._core._journal

    async def forge() -> None:
        store, place = journal.store, (journal.workspace, "s")
        (old,), (new,) = [await store.bookmarks(*place, BookmarkQuery("main", id)) for id in ("c1", "c3")]
        owner = await journal.owner(None)
        manifest = disclose(old.manifest or b"", owner, pack((*place, "main", "c1")))
        forged = new._replace(manifest=Chunks(journal).seal_manifest("s", "main", "c3", manifest, owner))
        prepared = [journal.prepare(duramen.Draft("note", "forged"), owner)]
        await journal.append_prepared("s", prepared, owner, changes=(BookmarkChanges(rewritten=[forged]),))

    drive(forge())
    (damaged,) = expect(checkpoints_of(dm), "s", 2, "forged")
    assert "digest" in damaged.reason


@pytest.mark.promise("J8")
def test_whatever_chunk_of_a_list_in_many_pieces_is_damaged_one_before_is_used(tmp_path: Path) -> None:
    path, wanted = str(tmp_path / "agent.db"), dict[str, list[bytes]]()
    with duramen.open(path) as dm:
        cp = checkpoints_of(dm)
        talk = [f"{turn} " + "word " * 20 for turn in range(60)]
        for turn in range(90):
            talk[turn * 23 % 60] = f"edited at {turn} " + "again " * 20
            drive(cp.save("s", "main", {"talk": texts(list(talk))}, {}, id=f"c{turn}"))
            wanted[f"c{turn}"] = [one.encode() for one in talk]
        with closing(apsw.Connection(path)) as db:
            chunks: Any = db.execute("SELECT number, body FROM duramen_chunks").fetchall()
            skipped = 0
            for number, body in chunks[1:]:  # all are made of the first
                change = "UPDATE duramen_chunks SET body = ? WHERE number = ?"
                db.execute(change, (flip(-9)(body), number))
                found = drive(checkpoints_of(dm).load("s", "main"))
                assert found is not None
                assert found.fields == {"talk": wanted[found.id]}
                assert len(found.skipped) == 89 - int(found.id[1:])
                skipped += bool(found.skipped)
                db.execute(change, (body, number))
    assert skipped > 40
