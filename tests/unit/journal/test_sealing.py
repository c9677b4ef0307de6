"""Encryption at rest: sealed data is unreadable in the store, opens only at its own position, and needs its key."""

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

import duramen
from duramen.errors import InvalidInput, JournalDamaged, KeyMissing, NotAStore, StoreBusy, WrongKey
from duramen.journal.chain import event_hash, payload_digest
from duramen.journal.sealing import EnvelopeFlags, payload_place, seal, unseal
from duramen.testing.postgres import PostgresServer

PLANTED = "the-planted-secret"
OLD, NEW, OTHER = bytes(range(32)), bytes(range(32, 64)), bytes(32)


@duramen.register(name="test_sealing.Diagnosis")
@dataclass
class Diagnosis:
    text: str


@pytest.fixture(autouse=True)
def _no_keys_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DURAMEN_KEY", raising=False)
    monkeypatch.delenv("DURAMEN_FILE_KEY", raising=False)


def plant(dm: duramen.Duramen, *subjects: str | None) -> None:
    """Store the secret in every form that data can have, with and without a subject."""
    for subject in subjects or (None, "ada"):
        session = dm.session(f"s-{subject}")
        session.append("note", {"text": PLANTED}, subject=subject)
        session.append("diagnosis", Diagnosis(PLANTED), subject=subject)
        session.append("large", {"output": f"{PLANTED} " * 5_000, "raw": PLANTED.encode() * 2_000}, subject=subject)
        session.append("rows", [[PLANTED] * 50] * 1_000, subject=subject)
        session.append_all([duramen.Draft("note", [PLANTED, n]) for n in range(3)], subject=subject)


def query(address: str, sql: str) -> list[tuple[Any, ...]]:
    if address.startswith("postgresql:"):
        with psycopg.connect(address, autocommit=True) as connection:
            return connection.execute(sql.encode()).fetchall()
    with closing(apsw.Connection(address)) as sqlite:
        return list(sqlite.execute(sql.replace("duramen.", "duramen_")))


def files_with(folder: Path, planted: str = PLANTED, without: Sequence[Path] = ()) -> list[str]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.parent not in without)
    return [path.name for path in files if planted.encode() in path.read_bytes()]


# -- at rest


@pytest.mark.promise("G1")
def test_a_sealed_secret_is_in_no_file(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "agent.db", key=OLD) as dm:
        plant(dm)
        assert {path.name for path in tmp_path.iterdir()} > {"agent.db", "agent.db-wal", "agent.db-shm"}
        assert files_with(tmp_path) == []
        assert dm.verify().ok
        assert next(dm.session("s-ada").events(types="diagnosis")).data == Diagnosis(PLANTED)
    assert files_with(tmp_path) == []
    with duramen.open(tmp_path / "plain.db") as dm:
        plant(dm)
        assert "plain.db-wal" in files_with(tmp_path), "the search finds unsealed data"


@pytest.mark.promise("G1")
def test_a_sealed_secret_is_in_no_file_of_the_postgres_cluster(postgres_server: PostgresServer) -> None:
    def search(database: str, **settings: Any) -> list[str]:
        url = postgres_server.create_database(database)
        with duramen.open(url, **settings) as dm:
            plant(dm)
            assert dm.verify().ok
        tables = query(url, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'duramen'")
        assert len(tables) >= 6
        leaks = []
        for (table,) in tables:
            rows = query(url, f"SELECT t::text FROM duramen.{table} t")
            text = "".join(row[0] for row in rows)
            leaks += [table] if PLANTED in text or PLANTED.encode().hex() in text else []
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
            (own,) = connection.execute("SELECT oid FROM pg_database WHERE datname = %s", (database,)).fetchone() or ()
        folder = postgres_server.data_directory
        others = [path for path in (folder / "base").iterdir() if path.name.isdigit() and path.name != str(own)]
        return leaks + files_with(folder, without=others)

    assert search("sealed", key=OLD) == []
    assert "events" in search("plain"), "the search finds unsealed data"


@pytest.mark.promise("G1")
def test_a_file_key_encrypts_names_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "agent.db"

    def write(dm: duramen.Duramen) -> None:
        dm.session(f"session {PLANTED}").append("x", PLANTED, subject=f"person {PLANTED}", actor=f"actor {PLANTED}")
        dm.session("s").append(f"type {PLANTED}", "x" * 50_000 + PLANTED, key=f"key {PLANTED}")

    with duramen.open(path, file_key=OLD, workspace=f"space {PLANTED}") as dm:
        write(dm)
        assert files_with(tmp_path) == []
        dm.erase(f"person {PLANTED}")
        assert dm.verify().ok
    assert not any(file.read_bytes().startswith(b"SQLite format 3") for file in tmp_path.iterdir())
    assert files_with(tmp_path) == []
    for wrong in ({"file_key": NEW}, {}):
        with pytest.raises(NotAStore, match="encrypted with another key"):
            duramen.open(path, **wrong)
    monkeypatch.setenv("DURAMEN_FILE_KEY", OLD.hex())
    with duramen.open(path, workspace=f"space {PLANTED}", key=NEW) as dm:
        assert [row.session for row in dm.sessions()] == ["s", f"session {PLANTED}"]
        write(dm)
    with duramen.open(tmp_path / "plain.db") as dm:
        pass
    assert not (tmp_path / "plain.db").read_bytes().startswith(b"SQLite format 3"), "the key of the environment is used"


# -- at its own position


@pytest.mark.promise("G1")
def test_an_envelope_opens_only_at_its_own_position() -> None:
    place = payload_place("w", "s", 1)
    envelope = seal(b"body", EnvelopeFlags.PLAIN, OLD, bytes(12), place)
    assert unseal(envelope, OLD, place) == (EnvelopeFlags.SEALED, b"body")
    for elsewhere in (payload_place("w", "s", 2), payload_place("w", "t", 1), payload_place("v", "s", 1)):
        with pytest.raises(ValueError, match="cannot be decrypted"):
            unseal(envelope, OLD, elsewhere)
    for broken in (envelope[:-1], envelope[:5], bytes((envelope[0] | EnvelopeFlags.APART,)) + envelope[1:], b""):
        with pytest.raises(ValueError):
            unseal(broken, OLD, place)
    with pytest.raises(KeyMissing):
        unseal(envelope, None, place)


def forge(path: Path, row: tuple[str, str, int], payload: bytes) -> None:
    """Change a row as an attacker could who can write the file and compute hashes, but has no key."""
    workspace, session, position = row
    with closing(apsw.Connection(str(path))) as db:
        where = "(SELECT sid FROM duramen_sessions WHERE workspace = ? AND session = ?)"
        event = f"FROM duramen_events WHERE sid = {where} AND position = ?"
        header: Any = (*row, *db.execute(f"SELECT type, time, actor, cause, key, subject {event}", row).get)
        salt: Any = db.execute("SELECT salt FROM duramen_subjects WHERE ref = ?", (header[-1],)).get
        previous: Any = db.execute(f"SELECT hash {event}", (workspace, session, position - 1)).get or bytes(32)
        made = event_hash(previous, payload_digest(payload, salt), header)
        write = f"UPDATE duramen_events SET payload = ?, hash = ? WHERE sid = {where} AND position = ?"
        db.execute(write, (payload, made, *row))


@pytest.mark.promise("G1", "J10")
@pytest.mark.parametrize("target", [("one", "s", 2), ("one", "t", 2), ("two", "s", 2)], ids=repr)
def test_a_sealed_row_moved_to_another_position_does_not_open(tmp_path: Path, target: tuple[str, str, int]) -> None:
    path = tmp_path / "agent.db"
    for workspace in ("one", "two"):
        with duramen.open(path, key=OLD, workspace=workspace) as dm:
            for name in ("s", "t"):
                dm.session(name).append_all([duramen.Draft("note", f"{workspace} {name} {n}") for n in (1, 2)])
    first = "SELECT payload FROM duramen_events JOIN duramen_sessions USING (sid) WHERE workspace = 'one'"
    forge(path, target, query(str(path), f"{first} AND position = 1")[0][0])
    with duramen.open(path, key=OLD, workspace=target[0]) as dm:
        with pytest.raises(JournalDamaged, match="cannot be decrypted") as damaged:
            list(dm.session(target[1]).events())
        assert damaged.value.position == 2
        assert [(problem.session, problem.position) for problem in dm.verify().problems] == [(target[1], 2)]


@pytest.mark.promise("G1")
def test_a_data_key_moved_to_another_workspace_does_not_open(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    for workspace in ("one", "two"):
        with duramen.open(path, key=OLD, workspace=workspace) as dm:
            dm.session("s").append("note", workspace)
    with duramen.open(path, key=OLD, workspace="two") as dm:
        from duramen.stores.common.row_checksum import checksum

        with closing(apsw.Connection(str(path))) as db:
            read = "SELECT ref, name, salt, wrapped, master FROM duramen_subjects WHERE workspace = 'one'"
            ref, name, salt, wrapped, master = db.execute(read).get
            db.execute("DELETE FROM duramen_subjects WHERE workspace = 'two'")
            fields = ("two", ref, name, salt, wrapped, master)
            db.execute("INSERT INTO duramen_subjects VALUES (?, ?, ?, ?, ?, ?, ?)", (*fields, checksum(*fields)))
    with pytest.raises(WrongKey):
        duramen.open(path, key=OLD, workspace="two")


# -- keys


@pytest.mark.promise("G1")
@pytest.mark.parametrize("subject", [None, "ada"])
def test_a_wrong_or_missing_key_is_reported_at_open(address: str, subject: str | None) -> None:
    with duramen.open(address, key=OLD) as dm:
        dm.session("s").append("note", PLANTED, subject=subject)
    with pytest.raises(WrongKey) as wrong:
        duramen.open(address, key=NEW)
    assert "rotating" in wrong.value.hint
    with pytest.raises(KeyMissing) as missing:
        duramen.open(address)
    assert "DURAMEN_KEY" in missing.value.hint
    with duramen.open(address, key=[NEW, OLD]) as dm:
        assert [event.data for event in dm.session("s").events()] == [PLANTED]


@pytest.mark.promise("G1")
def test_a_key_can_be_given_in_every_supported_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "agent.db"
    with duramen.open(path, key=OLD) as dm:
        dm.session("s").append("note", 1)
    text = base64.urlsafe_b64encode(OLD).decode()
    for key in (OLD, OLD.hex(), text, f" {text}\n", [OLD], (NEW.hex(), text), f"{NEW.hex()},{text}", lambda: text):
        with duramen.open(path, key=key) as dm:
            assert [event.data for event in dm.session("s").events()] == [1]
    for value in (OLD.hex(), text, f"{NEW.hex()},{text}"):
        monkeypatch.setenv("DURAMEN_KEY", value)
        with duramen.open(path) as dm:
            assert [event.data for event in dm.session("s").events()] == [1]
    assert duramen.new_key() != duramen.new_key()
    assert len(base64.urlsafe_b64decode(duramen.new_key())) == 32


@pytest.mark.promise("G1")
@pytest.mark.parametrize("from_function", [False, True], ids=["given", "function"])
@pytest.mark.parametrize("key", ["", "  ", ",", b"", [], "short", b"short", "é" * 32, [OLD, "short"], 7, [7]], ids=repr)
def test_an_empty_or_invalid_key_is_refused(key: Any, from_function: bool) -> None:
    with pytest.raises(InvalidInput) as refused:
        duramen.open("memory:", key=(lambda: key) if from_function else key)
    assert "new_key" in refused.value.hint


@pytest.mark.promise("G1")
@pytest.mark.parametrize("value", ["  ", ","])
def test_a_blank_key_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("DURAMEN_KEY", value)
    with pytest.raises(InvalidInput):
        duramen.open("memory:")


@pytest.mark.promise("G1")
def test_an_unsealed_store_can_be_sealed_later(address: str) -> None:
    with duramen.open(address) as dm:
        dm.session("s").append("note", "open")
        dm.session("s").append("note", "open", subject="ada")
    with duramen.open(address, key=OLD) as dm:
        dm.session("s").append("note", "shut")
        dm.session("s").append("note", "shut", subject="ada")
        assert [event.data for event in dm.session("s").events()] == ["open", "open", "shut", "shut"]
        assert dm.verify().ok
    with pytest.raises(KeyMissing):
        duramen.open(address)


PAYLOADS = "SELECT payload FROM duramen.events ORDER BY hash"


@pytest.mark.promise("G2")
def test_keys_rotate_while_handles_are_open_without_rewriting_payloads(address: str) -> None:
    with duramen.open(address, key=OLD) as old, duramen.open(address, key=[NEW, OLD]) as both:
        for subject in (None, "ada", "bob"):
            old.session("s").append("note", PLANTED, subject=subject)
        list(both.session("s").events())
        before = query(address, PAYLOADS)
        assert old.rotate_key(NEW) == 3
        assert query(address, PAYLOADS) == before
        assert old.rotate_key(NEW) == 0, "a second call has nothing to rotate"
        for handle in (old, both):
            handle.session("s").append("note", PLANTED, subject="ada")
            handle.session("s").append("note", PLANTED, subject=f"new with {id(handle)}")
            assert {event.data for event in handle.session("s").events()} == {PLANTED}
            assert handle.verify().ok
    with pytest.raises(WrongKey):
        duramen.open(address, key=OLD)
    with duramen.open(address, key=NEW) as dm:
        assert [event.data for event in dm.session("s").events()] == [PLANTED] * 7
        with pytest.raises(InvalidInput):
            dm.rotate_key("")


# -- erasing


@pytest.fixture(params=[{}, {"key": OLD}, {"key": OLD, "file_key": NEW}], ids=["plain", "sealed", "encrypted"])
def sealing(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)


@pytest.mark.promise("G3")
def test_erased_data_is_in_no_file(tmp_path: Path, sealing: dict[str, Any]) -> None:
    path = tmp_path / "agent.db"
    with duramen.open(path, **sealing) as dm, duramen.open(path, **sealing) as other:
        for number in range(60):  # enough rows to split pages
            dm.session(f"s{number % 7}").append("note", f"{number} {PLANTED}" * 9, subject=f"{PLANTED} {number}")
            dm.session("s").append("note", f"neighbour {number}")
        dm.session("s").append("large", [PLANTED] * 20_000, subject=f"{PLANTED} 0")
        dm.session("s").append("large", f"{PLANTED} " * 5_000, subject=f"{PLANTED} 1")
        dm.session("s").fork("fork")
        list(other.session("s").events())
        for number in range(60):
            assert dm.erase(f"{PLANTED} {number}").payloads >= 1
        assert files_with(tmp_path) == []
        for handle in (dm, other):
            assert handle.verify().ok
            assert [e.data for e in handle.session("s").events(stop=60)] == [f"neighbour {n}" for n in range(60)]
            assert [e.data for e in handle.session("fork").events(start=61)] == [None, None]


ERASER = """
import sys, duramen
from duramen.testing.crash import die_at
dm = duramen.open(sys.argv[1])
for number in range(20):
    dm.session("s").append("note", "the-planted-secret" * 40, subject="ada")
die_at(sys.argv[2])
dm.erase("ada")
"""


@pytest.mark.promise("G3")
@pytest.mark.parametrize("point", ["erase.begun", "erase.removed", "erase.committed"])
def test_a_killed_erasure_happened_completely_or_not_at_all(tmp_path: Path, point: str) -> None:
    path = tmp_path / "agent.db"
    ended = subprocess.run([sys.executable, "-c", ERASER, str(path), point], check=False)
    assert ended.returncode == -signal.SIGKILL
    with duramen.open(path) as dm:
        events = list(dm.session("s").events())
        erased = point == "erase.committed"
        assert [event.erased for event in events] == [erased] * 20 + [False] * erased
        assert dm.verify().ok
        dm.erase("ada")
        assert files_with(tmp_path) == [], "erasing again completes the erasure, including the log"
        assert dm.verify().ok


@pytest.mark.promise("G3")
def test_an_erasure_blocked_by_a_reader_is_completed_by_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with duramen.open(path, timeout=0.2) as dm:
        dm.session("s").append("note", PLANTED, subject="ada")
        with closing(apsw.Connection(str(path))) as reader:
            reader.execute("BEGIN; SELECT count(*) FROM duramen_events").fetchall()
            with pytest.raises(StoreBusy) as busy:
                dm.erase("ada")
            assert "erase again" in busy.value.hint
        dm.erase("ada")
        assert files_with(tmp_path) == []


@pytest.mark.promise("G3")
def test_the_hash_left_by_an_erasure_cannot_confirm_a_guess(address: str) -> None:
    with duramen.open(address) as dm:
        dm.session("s").append("note", "yes", subject="ada")
        ((payload, salt),) = query(address, "SELECT payload, salt FROM duramen.events, duramen.subjects")
        dm.erase("ada")
        ((left,),) = query(address, "SELECT payload_hash FROM duramen.events WHERE position = 1")
        assert left == payload_digest(payload, salt), "with the salt, a guess could be confirmed"
        assert left != payload_digest(payload)
        assert query(address, "SELECT * FROM duramen.subjects") == []
        if not address.startswith("postgresql:"):
            assert all(salt not in file.read_bytes() for file in Path(address).parent.iterdir())
        assert dm.verify().ok


@pytest.mark.promise("G3")
def test_an_erased_subject_is_in_no_row(address: str) -> None:
    with duramen.open(address) as dm:
        plant(dm, "ada", PLANTED)
        report = dm.erase("ada")
        assert (report.payloads, report.blobs) == (7, 3)
        dm.erase(PLANTED)
        assert [event.erased for event in dm.session("s-ada").events()] == [True] * 7 + [False]
        for table in ("events", "blobs", "subjects", "cursors", "leases"):
            cells = [cell for row in query(address, f"SELECT * FROM duramen.{table}") for cell in row]
            assert all(PLANTED.encode() not in cell for cell in cells if isinstance(cell, bytes))
            assert table == "events" or PLANTED not in repr(cells), "the id of a session may contain the secret"


@pytest.mark.promise("G2", "G3")
def test_a_backup_from_before_an_erasure_is_unreadable_after_key_rotation(tmp_path: Path) -> None:
    """A copy of the file contains its wrapped data keys, so the master key opens it. To make older copies unreadable
    after an erasure, rotate the master key and destroy the old one."""
    path, backup = tmp_path / "agent.db", tmp_path / "backup" / "agent.db"
    backup.parent.mkdir()
    with duramen.open(path, key=OLD) as dm:
        dm.session("s").append("note", PLANTED, subject="ada")
    shutil.copy(path, backup)
    with duramen.open(path, key=OLD) as dm:
        dm.erase("ada")
        dm.rotate_key(NEW)
    assert PLANTED.encode() not in backup.read_bytes()
    with duramen.open(backup, key=OLD) as dm:
        assert [event.data for event in dm.session("s").events()] == [PLANTED], "the old key still opens the backup"
    with pytest.raises(WrongKey):
        duramen.open(backup, key=NEW)
    with duramen.open(path, key=NEW) as dm:
        assert [event.data for event in dm.session("s").events(types="note")] == [None]
        assert dm.verify().ok
