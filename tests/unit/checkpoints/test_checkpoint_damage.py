"""A damaged checkpoint is detected and reported, and the one before it is used. Nothing else is affected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from programs.checkpoint_writers import as_loaded, checkpoints_of, fields_of, list_checkpoints, texts

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
    """Checkpoints c0 to c3 at positions 2 to 5, between two unrelated events."""
    dm.session(session).append("note", "before")
    cp = checkpoints_of(dm)
    for number in range(4):
        save(cp, session, number)
    dm.session(session).append("note", "after")


def expect(cp: Checkpoints, session: str, number: int, how: str, **which: Any) -> tuple[CheckpointDamaged, ...]:
    """Check that the checkpoint, or the newest one, has this number. Returns the damaged ones that were skipped."""
    loaded = drive(cp.load(session, "main", **which))
    assert loaded is not None, how
    assert (loaded.id, loaded.note, loaded.fields) == (f"c{number}", {"n": number}, as_loaded(fields_of(number))), how
    return loaded.skipped


class Disk:
    """Changes single stored values, as a failing disk would."""

    def __init__(self, address: str) -> None:
        self._is_postgres = address.startswith("postgresql:")
        self._connection: Any
        if self._is_postgres:
            self._connection = psycopg.connect(address, autocommit=True)
        else:
            self._connection = apsw.Connection(address)

    def close(self) -> None:
        self._connection.close()

    def change(self, session: str, how: str) -> Callable[[], None]:
        """Damage the last checkpoint of a session. Returns a function that repairs it."""
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
        rows = self._connection.execute(sql, values).fetchall()
        assert len(rows) == 1, sql
        return rows[0]


@pytest.fixture
def disk(dm: duramen.Duramen, address: str) -> Iterator[Disk]:
    with closing(Disk(address)) as disk:
        yield disk


def flip(at: int, bit: int = 4) -> Callable[[bytes], bytes]:
    return lambda body: body[:at] + bytes([body[at] ^ 1 << bit]) + (body[at + 1 :] if at != -1 else b"")


LAST_CHUNK, LAST_BOOKMARK, LAST_EVENT = "start = LAST", "id = 'c3'", "position = 5"
DAMAGE: dict[str, tuple[str, str, str, Callable[[Any], Any]]] = {
    "a chunk's first byte": ("chunks", "body", LAST_CHUNK, flip(0, 0)),
    "a chunk's second bit": ("chunks", "body", LAST_CHUNK, flip(0, 1)),
    "a chunk's body": ("chunks", "body", LAST_CHUNK, flip(-3)),
    "a chunk's end": ("chunks", "body", LAST_CHUNK, lambda body: body[:-5]),
    "a chunk without a body": ("chunks", "body", LAST_CHUNK, lambda body: b""),
    "a chunk's start": ("chunks", "start", LAST_CHUNK, lambda start: start + 1),
    "a chunk's count": ("chunks", "count", LAST_CHUNK, lambda count: count + 1000),
    "a chunk's count of 0": ("chunks", "count", LAST_CHUNK, lambda count: 0),
    "a chunk's owner": ("chunks", "owner", LAST_CHUNK, lambda owner: b"?" * 16),
    "a chunk's checksum": ("chunks", "checksum", LAST_CHUNK, flip(-1)),
    "the manifest's first byte": ("bookmarks", "manifest", LAST_BOOKMARK, flip(0, 0)),
    "the manifest": ("bookmarks", "manifest", LAST_BOOKMARK, flip(-3)),
    "the manifest's end": ("bookmarks", "manifest", LAST_BOOKMARK, lambda manifest: manifest[:-2]),
    "no manifest": ("bookmarks", "manifest", LAST_BOOKMARK, lambda manifest: None),
    "the row's time": ("bookmarks", "time", LAST_BOOKMARK, lambda time: time ^ 1),
    "the row's position after the end": ("bookmarks", "position", LAST_BOOKMARK, lambda position: position + 64),
    "the row's position": ("bookmarks", "position", LAST_BOOKMARK, lambda position: 1),
    "the row's owner": ("bookmarks", "owner", LAST_BOOKMARK, lambda owner: b"?" * 16),
    "the row's checksum": ("bookmarks", "checksum", LAST_BOOKMARK, flip(2)),
    "the event's payload": ("events", "payload", LAST_EVENT, flip(-3)),
    "the event's first byte": ("events", "payload", LAST_EVENT, flip(0, 0)),
    "the event's type": ("events", "type", LAST_EVENT, lambda kind: "other"),
    "the event's hash": ("events", "hash", LAST_EVENT, flip(3)),
    "the event's time": ("events", "time", LAST_EVENT, lambda time: time ^ 1),
}


@pytest.mark.promise("J8", "C3")
def test_a_damaged_checkpoint_is_skipped_and_reported(dm: duramen.Duramen, disk: Disk) -> None:
    save_four(dm, "s")
    for how in DAMAGE:
        undo = disk.change("s", how)
        for cp in (checkpoints_of(dm), checkpoints_of(dm)):
            skipped = expect(cp, "s", 2, how)
            reported = [(damaged.session, damaged.name, damaged.id, bool(damaged.reason)) for damaged in skipped]
            # With a lower position, the row is no longer the newest. Only verify notices that.
            assert reported == ([("s", "main", "c3", True)] if how != "the row's position" else []), how
            with pytest.raises(CheckpointDamaged) as raised:
                drive(cp.load("s", "main", id="c3"))
            assert raised.value.id == "c3", how
            for number in range(3):
                assert expect(cp, "s", number, how, id=f"c{number}") == (), how
            assert [one.id for one in list_checkpoints(cp, "s", "main")][-3:] == ["c2", "c1", "c0"], how
        assert not dm.verify().ok, how
        undo()
        assert expect(checkpoints_of(dm), "s", 3, how) == (), how
        assert dm.verify().ok, how


@pytest.mark.promise("J8")
def test_saving_continues_from_the_checkpoint_before_the_damaged_one(dm: duramen.Duramen, disk: Disk) -> None:
    for index, how in enumerate(DAMAGE):
        save_four(dm, session := f"s{index}")
        disk.change(session, how)
        writer = checkpoints_of(dm)
        if index % 2:
            expect(writer, session, 2, how)
        for number in (4, 5):
            save(writer, session, number)
        for cp in (writer, checkpoints_of(dm)):
            assert expect(cp, session, 5, how) == () or how == "the row's position after the end", how
            expect(cp, session, 4, how, id="c4")


@pytest.mark.promise("J8", "C6")
def test_damaged_and_undamaged_checkpoints_can_be_dropped(dm: duramen.Duramen, disk: Disk) -> None:
    for index, how in enumerate(DAMAGE):
        save_four(dm, session := f"s{index}")
        disk.change(session, how)
        cp = checkpoints_of(dm)
        assert drive(cp.drop(session, "main", ["c0"], reason="test")) == 1, how
        expect(cp, session, 2, how)
        expect(cp, session, 1, how, id="c1")
        assert drive(cp.drop(session, "main", ["c3"], reason="test")) == 1, how
        assert expect(cp, session, 2, how) == (), how
        assert drive(cp.load(session, "main", id="c3")) is None, how
        first = next(iter(dm.session(session).events()))
        assert (first.data, first.erased) == ("before", False), how
        save(cp, session, 3)
        assert expect(checkpoints_of(dm), session, 3, how) == (), how


@pytest.mark.promise("J8")
def test_loading_raises_if_all_checkpoints_are_damaged(dm: duramen.Duramen, disk: Disk) -> None:
    cp = checkpoints_of(dm)
    drive(cp.save("s", "main", {"x": BytesField(b"word " * 50)}, {}, id="c3"))
    disk.change("s", "a chunk's body")
    with pytest.raises(CheckpointDamaged):
        drive(cp.load("s", "main"))
    assert drive(cp.load("s", "main", at=0)) is None


@pytest.mark.promise("J8")
def test_a_damaged_attachment_raises(dm: duramen.Duramen, disk: Disk) -> None:
    cp = checkpoints_of(dm)
    save(cp, "s", 0)
    drive(cp.attach("s", "main", "c0", {"n": 1}, type="writes", fields={"w": texts(["first " * 50])}))
    drive(cp.attach("s", "main", "c0", {"n": 2}, type="writes", fields={"w": texts(["second " * 50])}))
    disk.change("s", "a chunk's body")
    with pytest.raises(CheckpointDamaged):
        drive(cp.attachments("s", "main", "c0"))
    assert expect(cp, "s", 0, "attached") == ()


@pytest.mark.promise("J10", "J8")
def test_a_replaced_manifest_with_valid_checksums_is_detected(dm: duramen.Duramen) -> None:
    """The digest in the chain differs."""
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
def test_any_damaged_chunk_of_a_fragmented_list_falls_back_to_an_older_state(tmp_path: Path, everything: bool) -> None:
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
            every = 1 if everything else 5
            for number, body in chunks[1::every]:  # every state needs chunk 0
                change = "UPDATE duramen_chunks SET body = ? WHERE number = ?"
                db.execute(change, (flip(-9)(body), number))
                loaded = drive(checkpoints_of(dm).load("s", "main"))
                assert loaded is not None
                assert loaded.fields == {"talk": wanted[loaded.id]}
                assert len(loaded.skipped) == 89 - int(loaded.id[1:])
                skipped += bool(loaded.skipped)
                db.execute(change, (body, number))
    assert skipped > 40 // every
