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
from programs.minds import contents, open_mind, vectors_of

import holdfast
from holdfast.errors import StoreBusy, UnknownMemory
from holdfast.memory.traces import pack_vectors, read_gist
from holdfast.testing.clock import FakeClock

PLANTED = "a-secret-to-forget"
LONG = " ".join(f"{PLANTED}-{number * 7919 % 1000}" for number in range(3_000))
KEY = bytes(range(32))
LATER = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def _no_key_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOLDFAST_KEY", raising=False)
    monkeypatch.delenv("HOLDFAST_FILE_KEY", raising=False)


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return str(request.getfixturevalue("postgres_url"))


@holdfast.step
def plants(text: str) -> None:
    holdfast.remember(text)


@holdfast.task
def planting() -> None:
    plants(f"{PLANTED} from a step {LONG[:30_000]}")
    holdfast.remember(f"{PLANTED} from a task")


def plant(hf: holdfast.Holdfast, subject: str | None = "ada") -> list[str]:
    """The secret in every way that a memory can hold it, with vectors; said again, replaced and recalled."""
    session = hf.session("s")
    told: Any = {"title": f"title {PLANTED}", "speaker": PLANTED, "metadata": {"a": PLANTED, "b": [PLANTED]}}
    session.remember(f"{PLANTED} in the text", subject=subject, **told)
    hf.memory.remember(f"{PLANTED} in the text", subject=subject, **told)
    for number in range(3):
        hf.memory.remember(f"{PLANTED} {number}", subject=subject, key="k", ttl=3600)
    session.remember(LONG, subject=subject, kind="reference")
    session.remember(f"{PLANTED} of this session", subject=subject, scope="session")
    hf.run(planting, subject=subject)
    hf.memory.catch_up()
    for query in (PLANTED, "text"):
        assert hf.memory.recall(query, everyone=True).hits
        assert PLANTED in session.recall(query, subject=subject, budget=50_000).text
    versions = {one.id for known in hf.memory.list(everyone=True) for one in hf.memory.history(known.id)}
    assert len(versions) == 8
    return sorted(versions)


def planted_in(address: str, folder: Path, planted: bytes = PLANTED.encode()) -> list[str]:
    """The files, or the tables, that hold the secret."""
    if not address.startswith("postgresql:"):
        return [path.name for path in sorted(folder.iterdir()) if path.is_file() and planted in path.read_bytes()]
    found = []
    with psycopg.connect(address, autocommit=True) as connection:
        tables = connection.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'holdfast'")
        for (table,) in tables.fetchall():
            rows = connection.execute(f"SELECT t::text FROM holdfast.{table} t".encode()).fetchall()
            text = "".join(row[0] for row in rows)
            found += [table] if planted.decode("latin-1") in text or planted.hex() in text else []
    return found


def leftovers(address: str) -> list[tuple[Any, ...]]:
    """What rows are left of memories that say something, of traces, of recalls."""
    query = """
        SELECT (SELECT count(*) FROM holdfast.memories WHERE id <> '' OR key IS NOT NULL OR successor IS NOT NULL),
               (SELECT count(*) FROM holdfast.traces), (SELECT count(*) FROM holdfast.recalls)
    """
    if address.startswith("postgresql:"):
        with psycopg.connect(address) as connection:
            return connection.execute(query.encode()).fetchall()
    with closing(apsw.Connection(address)) as sqlite:
        return list(sqlite.execute(query.replace("holdfast.", "holdfast_")))


def forget_each(hf: holdfast.Holdfast, ids: list[str]) -> None:
    for id in ids:
        assert hf.memory.forget(id).payloads >= 1
        with pytest.raises(UnknownMemory):
            hf.memory.get(id)


def forget_old(hf: holdfast.Holdfast, ids: list[str]) -> None:
    assert hf.memory.forget_before(LATER, everyone=True).memories == len(ids)


def erase_ada(hf: holdfast.Holdfast, ids: list[str]) -> None:
    report = hf.erase("ada")
    assert report.memories == len(ids) + 1, "one was said twice"
    assert 6 <= report.vectors <= 8, "the current ones, and what was current when vectors were made"
    assert report.payloads >= 9


@pytest.mark.promise("G3")
@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
@pytest.mark.parametrize("forget", [forget_each, forget_old, erase_ada])
def test_nothing_of_it_stays(
    address: str, tmp_path: Path, key: bytes | None, forget: Callable[[holdfast.Holdfast, list[str]], None]
) -> None:
    with open_mind(address, key=key) as hf:
        ids = plant(hf)
        if key is None:
            assert planted_in(address, tmp_path), "the search finds what is there"
        forget(hf, ids)
        assert planted_in(address, tmp_path) == []
        assert leftovers(address) == [(0, 0, 0)]
        assert list(hf.memory.list(everyone=True)) == []
        assert list(hf.memory.recall(PLANTED, everyone=True)) == []
        assert list(hf.memory.as_of(LATER).recall(PLANTED, everyone=True)) == []
        assert PLANTED not in hf.session("s").recall(PLANTED.replace("-", " "), subject="ada").text
        assert hf.verify().ok
        hf.memory.remember("life goes on", subject="ada")
    with open_mind(address, key=key) as hf:
        assert contents(hf.memory.recall("life", subject="ada")) == ["life goes on"]
        assert hf.verify().ok
    assert planted_in(address, tmp_path) == []


@pytest.mark.promise("G1", "G3")
@pytest.mark.parametrize("subject", [None, "ada"])
def test_a_sealed_store_never_held_the_words_or_the_vectors(address: str, tmp_path: Path, subject: str | None) -> None:
    with open_mind(address, key=KEY) as hf:
        plant(hf, subject)
        data = {"content": f"{PLANTED} from a task"}
        vector = vectors_of([data["content"]])[0]
        packed = pack_vectors((vector / np.linalg.norm(vector)).astype(np.float32)[None])[0].body
        terms = read_gist(data, 0).terms
        for secret in (PLANTED.encode(), packed, packed[4:], terms[:8], terms[-8:]):
            assert planted_in(address, tmp_path, secret) == []
    plain = tmp_path / "plain"
    plain.mkdir()
    with open_mind(str(plain / "agent.db")) as hf:
        plant(hf, subject)
        for secret in (PLANTED.encode(), packed):
            assert planted_in(str(plain / "agent.db"), plain, secret), "the search finds what is not sealed"


@pytest.mark.promise("G3")
def test_an_id_tells_nothing_without_its_owners_salt(tmp_path: Path) -> None:
    with open_mind("memory:", key=KEY) as one, open_mind("memory:", key=KEY) as two:
        for subject in (None, "ada"):
            assert one.memory.remember("yes", subject=subject).id != two.memory.remember("yes", subject=subject).id


@pytest.mark.promise("G3")
def test_the_report_counts_what_went(any_address: str) -> None:
    with open_mind(any_address) as hf:
        one = hf.memory.remember("lives in Rome", key="home")
        hf.memory.remember("lives in Rome", key="home")
        for number in range(3):
            hf.memory.remember(f"fact {number}")
        hf.memory.catch_up()
        report = hf.memory.forget(one.id)
        assert report == holdfast.ForgetReport(memories=1, rows=2, payloads=2, words=1, vectors=1, decisions=0)
        hf.memory.remember("fact 3")
        report = hf.memory.forget_before(LATER, everyone=True)
        assert (report.memories, report.rows, report.payloads) == (4, 4, 4)
        assert 3 <= report.words == report.vectors <= 4
        assert hf.memory.forget_before(LATER, everyone=True) == holdfast.ForgetReport(0, 0, 0, 0, 0, 0)


@pytest.mark.promise("G3")
def test_forgetting_leaves_all_others_alone(any_address: str) -> None:
    with open_mind(any_address) as hf:
        kept = [hf.memory.remember(f"fact {number}") for number in range(5)]
        old = hf.memory.remember("lives in Rome", key="home")
        new = hf.memory.remember("lives in Oslo", key="home")
        hf.memory.catch_up()
        hf.memory.recall("fact lives")
        assert hf.memory.forget(kept[2].id).payloads == 1
        assert hf.memory.forget(old.id).payloads == 1
        assert sorted(contents(hf.memory.recall("fact lives"))) == ["fact 0", "fact 1", "fact 3", "fact 4", new.content]
        assert contents(hf.memory.history(new.id)) == [new.content]
        assert hf.memory.forget(new.id).payloads == 1
        assert "lives" not in " ".join(contents(hf.memory.recall("lives in Rome"))), "the older one does not come back"
        again = hf.memory.remember("fact 2")
        assert (again.id, again.times) == (kept[2].id, 1)
        assert len(hf.memory.recall("fact")) == 5
        noted = [event.data["ids"] for event in hf.session("@memory").events(types="memory.forgotten")]
        assert noted == [[kept[2].id], [old.id], [new.id]]
        assert hf.verify().ok


@pytest.mark.promise("G3")
def test_a_memory_said_very_often_is_forgotten_whole(any_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.memory.catalog._PAGE", 4)
    with open_mind(any_address, embedder="none") as hf:
        for number in range(11):
            made = hf.session(f"s{number % 2}").remember("planted")
        for number in range(9):
            keyed = hf.memory.remember(f"version {number % 2}", key="k")
        assert len(hf.memory.history(made.id)) == 11
        assert len(hf.memory.history(keyed.id)) == 9
        assert hf.memory.get(keyed.id).current
        assert hf.memory.forget(made.id).payloads == 11
        assert hf.memory.history(made.id) == []
        assert hf.memory.forget_before(LATER).memories == 2
        assert list(hf.memory.list()) == []
        assert hf.verify().ok


@pytest.mark.promise("G3")
def test_before_a_time_is_when_it_was_last_said(any_address: str, clock: FakeClock) -> None:
    def after(seconds: int) -> dt.datetime:
        return dt.datetime.fromtimestamp(1_700_000_000 + seconds, dt.UTC)

    with open_mind(any_address, clock=clock, embedder="none") as hf:
        for text in ("said again", "old", "said again", "about ada", "said again"):
            hf.memory.remember(text, subject="ada" if "ada" in text else None, kind="fact" if text != "old" else "note")
            clock.advance(10)
        assert hf.memory.forget_before(after(35), kinds="preference").memories == 0
        assert hf.memory.forget_before(after(10)).memories == 0, "before, not at"
        assert hf.memory.forget_before(after(35)).memories == 1
        (known,) = hf.memory.list()
        assert (known.content, known.times, len(hf.memory.history(known.id))) == ("said again", 3, 3)
        assert contents(hf.memory.list(subject="ada")) == ["said again", "about ada"]
        assert hf.memory.forget_before(after(35), subject="ada").memories == 1
        assert hf.memory.forget_before(after(41)).memories == 1
        assert list(hf.memory.list(everyone=True)) == []
        assert hf.verify().ok


@pytest.mark.promise("G3")
def test_who_erases_takes_what_was_told_to_everybody_too(any_address: str) -> None:
    with open_mind(any_address) as hf:
        hf.memory.remember("about ada", subject="ada", scope="workspace")
        hf.session("s").remember("ada here", subject="ada", scope="session")
        hf.memory.remember("about bob", subject="bob")
        hf.memory.catch_up()
        assert len(hf.memory.recall("about ada here", session="s")) == 2
        report = hf.erase("ada")
        assert (report.memories, report.vectors) == (2, 2)
        assert contents(hf.memory.recall("about ada here", everyone=True)) == ["about bob"]
        assert contents(hf.memory.as_of(LATER).list(everyone=True)) == ["about bob"]
        assert hf.erase("ada").memories == 0
        hf.memory.remember("about ada", subject="ada")
        assert contents(hf.memory.recall("ada", subject="ada")) == ["about ada"]


def test_a_reader_that_keeps_the_log_is_told(tmp_path: Path) -> None:
    """The text is gone at once, but not from the log; forgetting again, when the reader is gone, finishes that."""
    path = tmp_path / "agent.db"
    with open_mind(str(path), timeout=0.3, embedder="none") as hf:
        made = hf.memory.remember(PLANTED)
        with closing(apsw.Connection(str(path))) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM holdfast_events").fetchall()
            with pytest.raises(StoreBusy):
                hf.memory.forget(made.id)
            assert list(hf.memory.list()) == []
        with pytest.raises(UnknownMemory):
            hf.memory.forget(made.id)
        assert planted_in(str(path), tmp_path) == []
