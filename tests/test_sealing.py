"""Encryption at rest: what is sealed is in no byte of the store, opens only in its place, and goes with its key."""

from __future__ import annotations

import base64
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

import holdfast
from holdfast.errors import InvalidInput, JournalDamaged, KeyMissing, NotAStore, StoreBusy, WrongKey
from holdfast.journal.chain import event_hash, payload_digest
from holdfast.journal.sealing import Form, payload_place, seal, unseal
from holdfast.testing.postgres import PostgresServer

PLANTED = "the-planted-secret"
OLD, NEW, OTHER = bytes(range(32)), bytes(range(32, 64)), bytes(32)


@holdfast.register(name="test_sealing.Diagnosis")
@dataclass
class Diagnosis:
    text: str


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(autouse=True)
def _no_key_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_KEY", raising=False)
    monkeypatch.delenv("HOLDFAST_FILE_KEY", raising=False)


def plant(hf: holdfast.Holdfast, *subjects: str | None) -> None:
    """The secret in every way that data can be stored, about a person and about nobody."""
    for subject in subjects or (None, "ada"):
        session = hf.session(f"s-{subject}")
        session.append("note", {"text": PLANTED}, subject=subject)
        session.append("diagnosis", Diagnosis(PLANTED), subject=subject)
        session.append("large", {"output": f"{PLANTED} " * 5_000, "raw": PLANTED.encode() * 2_000}, subject=subject)
        session.append("rows", [[PLANTED] * 50] * 1_000, subject=subject)
        session.append_all([holdfast.Draft("note", [PLANTED, n]) for n in range(3)], subject=subject)


def query(address: str, sql: str) -> list[tuple[Any, ...]]:
    if address.startswith("postgresql:"):
        with psycopg.connect(address, autocommit=True) as connection:
            return connection.execute(sql.encode()).fetchall()
    with closing(apsw.Connection(address)) as sqlite:
        return list(sqlite.execute(sql.replace("holdfast.", "holdfast_")))


def found_in(folder: Path, planted: str = PLANTED, without: Sequence[Path] = ()) -> list[str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.parent not in without)
    return [path.name for path in files if planted.encode() in path.read_bytes()]


# -- at rest


@pytest.mark.promise("G1")
def test_a_sealed_secret_is_in_no_byte_of_the_files(tmp_path: Path) -> None:
    with holdfast.open(tmp_path / "agent.db", key=OLD) as hf:
        plant(hf)
        assert {path.name for path in tmp_path.iterdir()} > {"agent.db", "agent.db-wal", "agent.db-shm"}
        assert found_in(tmp_path) == []
        assert hf.verify().ok
        assert next(hf.session("s-ada").events(types="diagnosis")).data == Diagnosis(PLANTED)
    assert found_in(tmp_path) == []
    with holdfast.open(tmp_path / "plain.db") as hf:
        plant(hf)
        assert "plain.db-wal" in found_in(tmp_path), "the search finds what is not sealed"


@pytest.mark.promise("G1")
def test_a_sealed_secret_is_in_no_byte_of_the_cluster(postgres_server: PostgresServer) -> None:
    def search(database: str, **settings: Any) -> list[str]:
        url = postgres_server.create_database(database)
        with holdfast.open(url, **settings) as hf:
            plant(hf)
            assert hf.verify().ok
        tables = query(url, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'holdfast'")
        assert len(tables) >= 6
        found = []
        for (table,) in tables:
            rows = query(url, f"SELECT t::text FROM holdfast.{table} t")
            text = "".join(row[0] for row in rows)
            found += [table] if PLANTED in text or PLANTED.encode().hex() in text else []
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
            (own,) = connection.execute("SELECT oid FROM pg_database WHERE datname = %s", (database,)).fetchone() or ()
        folder = postgres_server.data_directory
        others = [path for path in (folder / "base").iterdir() if path.name.isdigit() and path.name != str(own)]
        return found + found_in(folder, without=others)

    assert search("sealed", key=OLD) == []
    assert "events" in search("plain"), "the search finds what is not sealed"


@pytest.mark.promise("G1")
def test_a_file_key_hides_names_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "agent.db"

    def write(hf: holdfast.Holdfast) -> None:
        hf.session(f"session {PLANTED}").append("x", PLANTED, subject=f"person {PLANTED}", actor=f"actor {PLANTED}")
        hf.session("s").append(f"type {PLANTED}", "x" * 50_000 + PLANTED, key=f"key {PLANTED}")

    with holdfast.open(path, file_key=OLD, workspace=f"space {PLANTED}") as hf:
        write(hf)
        assert found_in(tmp_path) == []
        hf.erase(f"person {PLANTED}")
        assert hf.verify().ok
    assert not any(file.read_bytes().startswith(b"SQLite format 3") for file in tmp_path.iterdir())
    assert found_in(tmp_path) == []
    for wrong in ({"file_key": NEW}, {}):
        with pytest.raises(NotAStore, match="encrypted with another key"):
            holdfast.open(path, **wrong)
    monkeypatch.setenv("HOLDFAST_FILE_KEY", OLD.hex())
    with holdfast.open(path, workspace=f"space {PLANTED}", key=NEW) as hf:
        assert [row.session for row in hf.sessions()] == ["s", f"session {PLANTED}"]
        write(hf)
    with holdfast.open(tmp_path / "plain.db") as hf:
        pass
    assert not (tmp_path / "plain.db").read_bytes().startswith(b"SQLite format 3"), "the environment's key counts"


# -- in its place


@pytest.mark.promise("G1")
def test_an_envelope_opens_only_where_it_was_sealed() -> None:
    place = payload_place("w", "s", 1)
    envelope = seal(b"body", Form.PLAIN, OLD, bytes(12), place)
    assert unseal(envelope, OLD, place) == (Form.SEALED, b"body")
    for elsewhere in (payload_place("w", "s", 2), payload_place("w", "t", 1), payload_place("v", "s", 1)):
        with pytest.raises(ValueError, match="does not open"):
            unseal(envelope, OLD, elsewhere)
    for broken in (envelope[:-1], envelope[:5], bytes((envelope[0] | Form.APART,)) + envelope[1:], b""):
        with pytest.raises(ValueError):
            unseal(broken, OLD, place)
    with pytest.raises(KeyMissing):
        unseal(envelope, None, place)


def forge(path: Path, row: tuple[str, str, int], payload: bytes) -> None:
    """What somebody could do who can write the file and knows how hashes are made, but has no key."""
    workspace, session, position = row
    with closing(apsw.Connection(str(path))) as db:
        where = "(SELECT sid FROM holdfast_sessions WHERE workspace = ? AND session = ?)"
        event = f"FROM holdfast_events WHERE sid = {where} AND position = ?"
        header: Any = (*row, *db.execute(f"SELECT type, time, actor, cause, key, subject {event}", row).get)
        salt: Any = db.execute("SELECT salt FROM holdfast_subjects WHERE ref = ?", (header[-1],)).get
        previous: Any = db.execute(f"SELECT hash {event}", (workspace, session, position - 1)).get or bytes(32)
        made = event_hash(previous, payload_digest(payload, salt), header)
        write = f"UPDATE holdfast_events SET payload = ?, hash = ? WHERE sid = {where} AND position = ?"
        db.execute(write, (payload, made, *row))


@pytest.mark.promise("G1", "J10")
@pytest.mark.parametrize("target", [("one", "s", 2), ("one", "t", 2), ("two", "s", 2)], ids=repr)
def test_a_sealed_row_moved_elsewhere_does_not_open(tmp_path: Path, target: tuple[str, str, int]) -> None:
    path = tmp_path / "agent.db"
    for workspace in ("one", "two"):
        with holdfast.open(path, key=OLD, workspace=workspace) as hf:
            for name in ("s", "t"):
                hf.session(name).append_all([holdfast.Draft("note", f"{workspace} {name} {n}") for n in (1, 2)])
    first = "SELECT payload FROM holdfast_events JOIN holdfast_sessions USING (sid) WHERE workspace = 'one'"
    forge(path, target, query(str(path), f"{first} AND position = 1")[0][0])
    with holdfast.open(path, key=OLD, workspace=target[0]) as hf:
        with pytest.raises(JournalDamaged, match="does not open in this place") as damaged:
            list(hf.session(target[1]).events())
        assert damaged.value.position == 2
        assert [(problem.session, problem.position) for problem in hf.verify().problems] == [(target[1], 2)]


@pytest.mark.promise("G1")
def test_a_data_key_moved_to_another_workspace_does_not_open(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    for workspace in ("one", "two"):
        with holdfast.open(path, key=OLD, workspace=workspace) as hf:
            hf.session("s").append("note", workspace)
    with holdfast.open(path, key=OLD, workspace="two") as hf:
        from holdfast.stores.rowcheck import checksum

        with closing(apsw.Connection(str(path))) as db:
            read = "SELECT ref, name, salt, wrapped, master FROM holdfast_subjects WHERE workspace = 'one'"
            ref, name, salt, wrapped, master = db.execute(read).get
            db.execute("DELETE FROM holdfast_subjects WHERE workspace = 'two'")
            fields = ("two", ref, name, salt, wrapped, master)
            db.execute("INSERT INTO holdfast_subjects VALUES (?, ?, ?, ?, ?, ?, ?)", (*fields, checksum(*fields)))
    with pytest.raises(WrongKey):
        holdfast.open(path, key=OLD, workspace="two")


# -- keys


@pytest.mark.promise("G1")
@pytest.mark.parametrize("subject", [None, "ada"])
def test_a_wrong_or_missing_key_is_named_at_opening(address: str, subject: str | None) -> None:
    with holdfast.open(address, key=OLD) as hf:
        hf.session("s").append("note", PLANTED, subject=subject)
    with pytest.raises(WrongKey) as wrong:
        holdfast.open(address, key=NEW)
    assert "rotating" in wrong.value.hint
    with pytest.raises(KeyMissing) as missing:
        holdfast.open(address)
    assert "HOLDFAST_KEY" in missing.value.hint
    with holdfast.open(address, key=[NEW, OLD]) as hf:
        assert [event.data for event in hf.session("s").events()] == [PLANTED]


@pytest.mark.promise("G1")
def test_a_key_may_come_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path, key=OLD) as hf:
        hf.session("s").append("note", 1)
    text = base64.urlsafe_b64encode(OLD).decode()
    for key in (OLD, OLD.hex(), text, f" {text}\n", [OLD], (NEW.hex(), text), f"{NEW.hex()},{text}", lambda: text):
        with holdfast.open(path, key=key) as hf:
            assert [event.data for event in hf.session("s").events()] == [1]
    for value in (OLD.hex(), text, f"{NEW.hex()},{text}"):
        monkeypatch.setenv("HOLDFAST_KEY", value)
        with holdfast.open(path) as hf:
            assert [event.data for event in hf.session("s").events()] == [1]
    assert holdfast.new_key() != holdfast.new_key()
    assert len(base64.urlsafe_b64decode(holdfast.new_key())) == 32


@pytest.mark.promise("G1")
@pytest.mark.parametrize("from_function", [False, True], ids=["given", "function"])
@pytest.mark.parametrize("key", ["", "  ", ",", b"", [], "short", b"short", "é" * 32, [OLD, "short"], 7, [7]], ids=repr)
def test_a_key_that_is_none_does_not_leave_data_unsealed(key: Any, from_function: bool) -> None:
    with pytest.raises(InvalidInput) as refused:
        holdfast.open("memory:", key=(lambda: key) if from_function else key)
    assert "new_key" in refused.value.hint


@pytest.mark.promise("G1")
@pytest.mark.parametrize("value", ["  ", ","])
def test_a_blank_key_in_the_environment_is_refused_too(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("HOLDFAST_KEY", value)
    with pytest.raises(InvalidInput):
        holdfast.open("memory:")


@pytest.mark.promise("G1")
def test_a_store_may_become_sealed_later(address: str) -> None:
    with holdfast.open(address) as hf:
        hf.session("s").append("note", "open")
        hf.session("s").append("note", "open", subject="ada")
    with holdfast.open(address, key=OLD) as hf:
        hf.session("s").append("note", "shut")
        hf.session("s").append("note", "shut", subject="ada")
        assert [event.data for event in hf.session("s").events()] == ["open", "open", "shut", "shut"]
        assert hf.verify().ok
    with pytest.raises(KeyMissing):
        holdfast.open(address)


PAYLOADS = "SELECT payload FROM holdfast.events ORDER BY hash"


@pytest.mark.promise("G2")
def test_keys_rotate_under_way_without_touching_payloads(address: str) -> None:
    with holdfast.open(address, key=OLD) as old, holdfast.open(address, key=[NEW, OLD]) as both:
        for subject in (None, "ada", "bob"):
            old.session("s").append("note", PLANTED, subject=subject)
        list(both.session("s").events())
        before = query(address, PAYLOADS)
        assert old.rotate_key(NEW) == 3
        assert query(address, PAYLOADS) == before
        assert old.rotate_key(NEW) == 0, "called again, it finds nothing to move"
        for handle in (old, both):
            handle.session("s").append("note", PLANTED, subject="ada")
            handle.session("s").append("note", PLANTED, subject=f"new with {id(handle)}")
            assert {event.data for event in handle.session("s").events()} == {PLANTED}
            assert handle.verify().ok
    with pytest.raises(WrongKey):
        holdfast.open(address, key=OLD)
    with holdfast.open(address, key=NEW) as hf:
        assert [event.data for event in hf.session("s").events()] == [PLANTED] * 7
        with pytest.raises(InvalidInput):
            hf.rotate_key("")


# -- erasing


@pytest.fixture(params=[{}, {"key": OLD}, {"key": OLD, "file_key": NEW}], ids=["plain", "sealed", "encrypted"])
def sealing(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)


@pytest.mark.promise("G3")
def test_what_was_erased_is_in_no_byte_of_the_files(tmp_path: Path, sealing: dict[str, Any]) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path, **sealing) as hf, holdfast.open(path, **sealing) as other:
        for number in range(60):  # many, so that pages split and move
            hf.session(f"s{number % 7}").append("note", f"{number} {PLANTED}" * 9, subject=f"{PLANTED} {number}")
            hf.session("s").append("note", f"neighbour {number}")
        hf.session("s").append("large", [PLANTED] * 20_000, subject=f"{PLANTED} 0")
        hf.session("s").append("large", f"{PLANTED} " * 5_000, subject=f"{PLANTED} 1")
        hf.session("s").fork("fork")
        list(other.session("s").events())
        for number in range(60):
            assert hf.erase(f"{PLANTED} {number}").payloads >= 1
        assert found_in(tmp_path) == []
        for handle in (hf, other):
            assert handle.verify().ok
            assert [e.data for e in handle.session("s").events(stop=60)] == [f"neighbour {n}" for n in range(60)]
            assert [e.data for e in handle.session("fork").events(start=61)] == [None, None]


ERASER = """
import sys, holdfast
from holdfast.testing.crash import die_at
hf = holdfast.open(sys.argv[1])
for number in range(20):
    hf.session("s").append("note", "the-planted-secret" * 40, subject="ada")
die_at(sys.argv[2])
hf.erase("ada")
"""


@pytest.mark.promise("G3")
@pytest.mark.parametrize("point", ["erase.begun", "erase.removed", "erase.committed"])
def test_an_erasure_survives_a_kill_whole_or_not_at_all(tmp_path: Path, point: str) -> None:
    path = tmp_path / "agent.db"
    ended = subprocess.run([sys.executable, "-c", ERASER, str(path), point], check=False)
    assert ended.returncode == -signal.SIGKILL
    with holdfast.open(path) as hf:
        events = list(hf.session("s").events())
        erased = point == "erase.committed"
        assert [event.erased for event in events] == [erased] * 20 + [False] * erased
        assert hf.verify().ok
        hf.erase("ada")
        assert found_in(tmp_path) == [], "erasing again finishes the work, log included"
        assert hf.verify().ok


@pytest.mark.promise("G3")
def test_an_erasure_that_a_reader_held_up_is_finished_by_the_next(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with holdfast.open(path, timeout=0.2) as hf:
        hf.session("s").append("note", PLANTED, subject="ada")
        with closing(apsw.Connection(str(path))) as reader:
            reader.execute("BEGIN; SELECT count(*) FROM holdfast_events").fetchall()
            with pytest.raises(StoreBusy) as busy:
                hf.erase("ada")
            assert "erase again" in busy.value.hint
        hf.erase("ada")
        assert found_in(tmp_path) == []


@pytest.mark.promise("G3")
def test_a_guess_cannot_be_checked_against_what_an_erasure_leaves(address: str) -> None:
    with holdfast.open(address) as hf:
        hf.session("s").append("note", "yes", subject="ada")
        ((payload, salt),) = query(address, "SELECT payload, salt FROM holdfast.events, holdfast.subjects")
        hf.erase("ada")
        ((left,),) = query(address, "SELECT payload_hash FROM holdfast.events WHERE position = 1")
        assert left == payload_digest(payload, salt), "with the salt a guess could be checked"
        assert left != payload_digest(payload)
        assert query(address, "SELECT * FROM holdfast.subjects") == []
        if not address.startswith("postgresql:"):
            assert all(salt not in file.read_bytes() for file in Path(address).parent.iterdir())
        assert hf.verify().ok


@pytest.mark.promise("G3")
def test_an_erased_person_is_in_no_row(address: str) -> None:
    with holdfast.open(address) as hf:
        plant(hf, "ada", PLANTED)
        report = hf.erase("ada")
        assert (report.payloads, report.blobs) == (7, 3)
        hf.erase(PLANTED)
        assert [event.erased for event in hf.session("s-ada").events()] == [True] * 7 + [False]
        for table in ("events", "blobs", "subjects", "cursors", "leases"):
            cells = [cell for row in query(address, f"SELECT * FROM holdfast.{table}") for cell in row]
            assert all(PLANTED.encode() not in cell for cell in cells if isinstance(cell, bytes))
            assert table == "events" or PLANTED not in repr(cells), "the session's id is not data about its subject"


@pytest.mark.promise("G2", "G3")
def test_a_backup_from_before_an_erasure_is_shut_by_the_next_rotation(tmp_path: Path) -> None:
    """A whole copy carries its data keys, wrapped: the master key opens it as long as that key lives. After an
    erasure, rotating the master key and destroying the old one is what makes older copies unreadable."""
    path, backup = tmp_path / "agent.db", tmp_path / "backup" / "agent.db"
    backup.parent.mkdir()
    with holdfast.open(path, key=OLD) as hf:
        hf.session("s").append("note", PLANTED, subject="ada")
    shutil.copy(path, backup)
    with holdfast.open(path, key=OLD) as hf:
        hf.erase("ada")
        hf.rotate_key(NEW)
    assert PLANTED.encode() not in backup.read_bytes()
    with holdfast.open(backup, key=OLD) as hf:
        assert [event.data for event in hf.session("s").events()] == [PLANTED], "the old key still lives here"
    with pytest.raises(WrongKey):
        holdfast.open(backup, key=NEW)
    with holdfast.open(path, key=NEW) as hf:
        assert [event.data for event in hf.session("s").events(types="note")] == [None]
        assert hf.verify().ok
