"""Forgetting: what is forgotten or erased is in no row and no byte; what is sealed never was."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import psycopg
import pytest
from programs.memory_handles import contents, open_memory, vectors_of

import duramen
from duramen.errors import StoreBusy, UnknownMemory
from duramen.memory.index.index_entry import pack_vectors, read_term_stats
from duramen.testing.clock import FakeClock

PLANTED = "a-secret-to-forget"
LONG = " ".join(f"{PLANTED}-{number * 7919 % 1000}" for number in range(3_000))
KEY = bytes(range(32))
LATER = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def _no_key_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DURAMEN_KEY", raising=False)
    monkeypatch.delenv("DURAMEN_FILE_KEY", raising=False)


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return str(request.getfixturevalue("postgres_url"))


@duramen.step
def plants(text: str) -> None:
    duramen.remember(text)


@duramen.task
def planting() -> None:
    plants(f"{PLANTED} from a step {LONG[:30_000]}")
    duramen.remember(f"{PLANTED} from a task")


def plant(dm: duramen.Duramen, subject: str | None = "ada") -> list[str]:
    """The secret in every way that a memory can hold it, with vectors; said again, replaced and recalled."""
    session = dm.session("s")
    told: Any = {"title": f"title {PLANTED}", "speaker": PLANTED, "metadata": {"a": PLANTED, "b": [PLANTED]}}
    session.remember(f"{PLANTED} in the text", subject=subject, **told)
    dm.memory.remember(f"{PLANTED} in the text", subject=subject, **told)
    for number in range(3):
        dm.memory.remember(f"{PLANTED} {number}", subject=subject, key="k", ttl=3600)
    session.remember(LONG, subject=subject, kind="reference")
    session.remember(f"{PLANTED} of this session", subject=subject, scope="session")
    dm.run(planting, subject=subject)
    dm.memory.catch_up()
    for query in (PLANTED, "text"):
        assert dm.memory.recall(query, everyone=True).hits
        assert PLANTED in session.recall(query, subject=subject, budget=50_000).text
    versions = {one.id for known in dm.memory.list(everyone=True) for one in dm.memory.history(known.id)}
    assert len(versions) == 8
    return sorted(versions)


def planted_in(address: str, folder: Path, planted: bytes = PLANTED.encode()) -> list[str]:
    """The files, or the tables, that hold the secret."""
    if not address.startswith("postgresql:"):
        return [path.name for path in sorted(folder.iterdir()) if path.is_file() and planted in path.read_bytes()]
    found = []
    with psycopg.connect(address, autocommit=True) as connection:
        tables = connection.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'duramen'")
        for (table,) in tables.fetchall():
            rows = connection.execute(f"SELECT t::text FROM duramen.{table} t".encode()).fetchall()
            text = "".join(row[0] for row in rows)
            found += [table] if planted.decode("latin-1") in text or planted.hex() in text else []
    return found


def leftovers(address: str) -> list[tuple[Any, ...]]:
    """What rows are left of memories that say something, of index entries, of recalls."""
    query = """
        SELECT (SELECT count(*) FROM duramen.memories WHERE id <> '' OR key IS NOT NULL OR successor IS NOT NULL),
               (SELECT count(*) FROM duramen.index_entries), (SELECT count(*) FROM duramen.recalls)
    """
    if address.startswith("postgresql:"):
        with psycopg.connect(address) as connection:
            return connection.execute(query.encode()).fetchall()
    with closing(apsw.Connection(address)) as sqlite:
        return list(sqlite.execute(query.replace("duramen.", "duramen_")))


def forget_each(dm: duramen.Duramen, ids: list[str]) -> None:
    for id in ids:
        assert dm.memory.forget(id).payloads >= 1
        with pytest.raises(UnknownMemory):
            dm.memory.get(id)


def forget_old(dm: duramen.Duramen, ids: list[str]) -> None:
    assert dm.memory.forget_before(LATER, everyone=True).memories == len(ids)


def erase_ada(dm: duramen.Duramen, ids: list[str]) -> None:
    report = dm.erase("ada")
    assert report.memories == len(ids) + 1, "one was said twice"
    assert 6 <= report.vectors <= 8, "the current ones, and what was current when vectors were made"
    assert report.payloads >= 9


@pytest.mark.promise("G3")
@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
@pytest.mark.parametrize("forget", [forget_each, forget_old, erase_ada])
def test_nothing_of_it_stays(
    address: str, tmp_path: Path, key: bytes | None, forget: Callable[[duramen.Duramen, list[str]], None]
) -> None:
    with open_memory(address, key=key) as dm:
        ids = plant(dm)
        if key is None:
            assert planted_in(address, tmp_path), "the search finds what is there"
        forget(dm, ids)
        assert planted_in(address, tmp_path) == []
        assert leftovers(address) == [(0, 0, 0)]
        assert list(dm.memory.list(everyone=True)) == []
        assert list(dm.memory.recall(PLANTED, everyone=True)) == []
        assert list(dm.memory.as_of(LATER).recall(PLANTED, everyone=True)) == []
        assert PLANTED not in dm.session("s").recall(PLANTED.replace("-", " "), subject="ada").text
        assert dm.verify().ok
        dm.memory.remember("life goes on", subject="ada")
    with open_memory(address, key=key) as dm:
        assert contents(dm.memory.recall("life", subject="ada")) == ["life goes on"]
        assert dm.verify().ok
    assert planted_in(address, tmp_path) == []


@pytest.mark.promise("G1", "G3")
@pytest.mark.parametrize("subject", [None, "ada"])
def test_a_sealed_store_never_held_the_words_or_the_vectors(address: str, tmp_path: Path, subject: str | None) -> None:
    with open_memory(address, key=KEY) as dm:
        plant(dm, subject)
        data = {"content": f"{PLANTED} from a task"}
        vector = vectors_of([data["content"]])[0]
        packed = pack_vectors((vector / np.linalg.norm(vector)).astype(np.float32)[None])[0].body
        terms = read_term_stats(data, 0).terms
        for secret in (PLANTED.encode(), packed, packed[4:], terms[:8], terms[-8:]):
            assert planted_in(address, tmp_path, secret) == []
    plain = tmp_path / "plain"
    plain.mkdir()
    with open_memory(str(plain / "agent.db")) as dm:
        plant(dm, subject)
        for secret in (PLANTED.encode(), packed):
            assert planted_in(str(plain / "agent.db"), plain, secret), "the search finds what is not sealed"


@pytest.mark.promise("G3")
def test_an_id_tells_nothing_without_its_owners_salt(tmp_path: Path) -> None:
    with open_memory("memory:", key=KEY) as one, open_memory("memory:", key=KEY) as two:
        for subject in (None, "ada"):
            assert one.memory.remember("yes", subject=subject).id != two.memory.remember("yes", subject=subject).id


@pytest.mark.promise("G3")
def test_the_report_counts_what_went(any_address: str) -> None:
    with open_memory(any_address) as dm:
        one = dm.memory.remember("lives in Rome", key="home")
        dm.memory.remember("lives in Rome", key="home")
        for number in range(3):
            dm.memory.remember(f"fact {number}")
        dm.memory.catch_up()
        report = dm.memory.forget(one.id)
        assert report == duramen.ForgetReport(memories=1, rows=2, payloads=2, words=1, vectors=1, decisions=0)
        dm.memory.remember("fact 3")
        report = dm.memory.forget_before(LATER, everyone=True)
        assert (report.memories, report.rows, report.payloads) == (4, 4, 4)
        assert 3 <= report.words == report.vectors <= 4
        assert dm.memory.forget_before(LATER, everyone=True) == duramen.ForgetReport(0, 0, 0, 0, 0, 0)


@pytest.mark.promise("G3")
def test_forgetting_leaves_all_others_alone(any_address: str) -> None:
    with open_memory(any_address) as dm:
        kept = [dm.memory.remember(f"fact {number}") for number in range(5)]
        old = dm.memory.remember("lives in Rome", key="home")
        new = dm.memory.remember("lives in Oslo", key="home")
        dm.memory.catch_up()
        dm.memory.recall("fact lives")
        assert dm.memory.forget(kept[2].id).payloads == 1
        assert dm.memory.forget(old.id).payloads == 1
        assert sorted(contents(dm.memory.recall("fact lives"))) == ["fact 0", "fact 1", "fact 3", "fact 4", new.content]
        assert contents(dm.memory.history(new.id)) == [new.content]
        assert dm.memory.forget(new.id).payloads == 1
        assert "lives" not in " ".join(contents(dm.memory.recall("lives in Rome"))), "the older one does not come back"
        again = dm.memory.remember("fact 2")
        assert (again.id, again.times) == (kept[2].id, 1)
        assert len(dm.memory.recall("fact")) == 5
        noted = [event.data["ids"] for event in dm.session("@memory").events(types="memory.forgotten")]
        assert noted == [[kept[2].id], [old.id], [new.id]]
        assert dm.verify().ok


@pytest.mark.promise("G3")
def test_a_memory_said_very_often_is_forgotten_whole(any_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duramen.memory.catalog.catalog._PAGE", 4)
    with open_memory(any_address, embedder="none") as dm:
        for number in range(11):
            made = dm.session(f"s{number % 2}").remember("planted")
        for number in range(9):
            keyed = dm.memory.remember(f"version {number % 2}", key="k")
        assert len(dm.memory.history(made.id)) == 11
        assert len(dm.memory.history(keyed.id)) == 9
        assert dm.memory.get(keyed.id).current
        assert dm.memory.forget(made.id).payloads == 11
        assert dm.memory.history(made.id) == []
        assert dm.memory.forget_before(LATER).memories == 2
        assert list(dm.memory.list()) == []
        assert dm.verify().ok


@pytest.mark.promise("G3")
def test_before_a_time_is_when_it_was_last_said(any_address: str, clock: FakeClock) -> None:
    def after(seconds: int) -> dt.datetime:
        return dt.datetime.fromtimestamp(1_700_000_000 + seconds, dt.UTC)

    with open_memory(any_address, clock=clock, embedder="none") as dm:
        for text in ("said again", "old", "said again", "about ada", "said again"):
            dm.memory.remember(text, subject="ada" if "ada" in text else None, kind="fact" if text != "old" else "note")
            clock.advance(10)
        assert dm.memory.forget_before(after(35), kinds="preference").memories == 0
        assert dm.memory.forget_before(after(10)).memories == 0, "before, not at"
        assert dm.memory.forget_before(after(35)).memories == 1
        (known,) = dm.memory.list()
        assert (known.content, known.times, len(dm.memory.history(known.id))) == ("said again", 3, 3)
        assert contents(dm.memory.list(subject="ada")) == ["said again", "about ada"]
        assert dm.memory.forget_before(after(35), subject="ada").memories == 1
        assert dm.memory.forget_before(after(41)).memories == 1
        assert list(dm.memory.list(everyone=True)) == []
        assert dm.verify().ok


@pytest.mark.promise("G3")
def test_who_erases_takes_what_was_told_to_everybody_too(any_address: str) -> None:
    with open_memory(any_address) as dm:
        dm.memory.remember("about ada", subject="ada", scope="workspace")
        dm.session("s").remember("ada here", subject="ada", scope="session")
        dm.memory.remember("about bob", subject="bob")
        dm.memory.catch_up()
        assert len(dm.memory.recall("about ada here", session="s")) == 2
        report = dm.erase("ada")
        assert (report.memories, report.vectors) == (2, 2)
        assert contents(dm.memory.recall("about ada here", everyone=True)) == ["about bob"]
        assert contents(dm.memory.as_of(LATER).list(everyone=True)) == ["about bob"]
        assert dm.erase("ada").memories == 0
        dm.memory.remember("about ada", subject="ada")
        assert contents(dm.memory.recall("ada", subject="ada")) == ["about ada"]


def test_a_reader_that_keeps_the_log_is_told(tmp_path: Path) -> None:
    """The text is gone at once, but not from the log; forgetting again, when the reader is gone, finishes that."""
    path = tmp_path / "agent.db"
    with open_memory(str(path), timeout=0.3, embedder="none") as dm:
        made = dm.memory.remember(PLANTED)
        with closing(apsw.Connection(str(path))) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM duramen_events").fetchall()
            with pytest.raises(StoreBusy):
                dm.memory.forget(made.id)
            assert list(dm.memory.list()) == []
        with pytest.raises(UnknownMemory):
            dm.memory.forget(made.id)
        assert planted_in(str(path), tmp_path) == []
