"""Forgotten and erased memories are in no row and no byte of the store. Sealed text is never in one."""

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

SECRET = "a-secret-to-forget"
LONG_SECRET = " ".join(f"{SECRET}-{number * 7919 % 1000}" for number in range(3_000))
KEY = bytes(range(32))
LATER = dt.datetime(2100, 1, 1, tzinfo=dt.UTC)


@pytest.fixture(autouse=True)
def _no_key_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DURAMEN_KEY", raising=False)
    monkeypatch.delenv("DURAMEN_FILE_KEY", raising=False)


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return str(request.getfixturevalue("postgres_url"))


@duramen.step
def remember_in_step(text: str) -> None:
    duramen.remember(text)


@duramen.task
def remember_in_run() -> None:
    remember_in_step(f"{SECRET} from a step {LONG_SECRET[:30_000]}")
    duramen.remember(f"{SECRET} from a task")


def store_secrets(dm: duramen.Duramen, subject: str | None = "ada") -> list[str]:
    """Store the secret in every part of a memory, with vectors; repeat, replace and recall it. Returns the ids."""
    session = dm.session("s")
    details: Any = {"title": f"title {SECRET}", "speaker": SECRET, "metadata": {"a": SECRET, "b": [SECRET]}}
    session.remember(f"{SECRET} in the text", subject=subject, **details)
    dm.memory.remember(f"{SECRET} in the text", subject=subject, **details)
    for number in range(3):
        dm.memory.remember(f"{SECRET} {number}", subject=subject, key="k", ttl=3600)
    session.remember(LONG_SECRET, subject=subject, kind="reference")
    session.remember(f"{SECRET} of this session", subject=subject, scope="session")
    dm.run(remember_in_run, subject=subject)
    dm.memory.catch_up()
    for query in (SECRET, "text"):
        assert dm.memory.recall(query, everyone=True).hits
        assert SECRET in session.recall(query, subject=subject, budget=50_000).text
    versions = {version.id for memory in dm.memory.list(everyone=True) for version in dm.memory.history(memory.id)}
    assert len(versions) == 8
    return sorted(versions)


def places_with(address: str, folder: Path, secret: bytes = SECRET.encode()) -> list[str]:
    """The files or tables that contain the secret."""
    if not address.startswith("postgresql:"):
        return [path.name for path in sorted(folder.iterdir()) if path.is_file() and secret in path.read_bytes()]
    places = []
    with psycopg.connect(address, autocommit=True) as connection:
        tables = connection.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = 'duramen'")
        for (table,) in tables.fetchall():
            rows = connection.execute(f"SELECT t::text FROM duramen.{table} t".encode()).fetchall()
            text = "".join(row[0] for row in rows)
            places += [table] if secret.decode("latin-1") in text or secret.hex() in text else []
    return places


def count_rows(address: str) -> list[tuple[Any, ...]]:
    """The number of rows of memories that have content, of index entries and of recalls."""
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


def forget_by_age(dm: duramen.Duramen, ids: list[str]) -> None:
    assert dm.memory.forget_before(LATER, everyone=True).memories == len(ids)


def erase_ada(dm: duramen.Duramen, ids: list[str]) -> None:
    report = dm.erase("ada")
    assert report.memories == len(ids) + 1, "one was stored twice"
    assert 6 <= report.vectors <= 8, "the current ones, and those that were current when vectors were made"
    assert report.payloads >= 9


@pytest.mark.promise("G3")
@pytest.mark.parametrize("key", [None, KEY], ids=["plain", "sealed"])
@pytest.mark.parametrize("forget", [forget_each, forget_by_age, erase_ada])
def test_no_trace_of_a_forgotten_memory_is_left(
    address: str, tmp_path: Path, key: bytes | None, forget: Callable[[duramen.Duramen, list[str]], None]
) -> None:
    with open_memory(address, key=key) as dm:
        ids = store_secrets(dm)
        if key is None:
            assert places_with(address, tmp_path), "the check finds stored text"
        forget(dm, ids)
        assert places_with(address, tmp_path) == []
        assert count_rows(address) == [(0, 0, 0)]
        assert list(dm.memory.list(everyone=True)) == []
        assert list(dm.memory.recall(SECRET, everyone=True)) == []
        assert list(dm.memory.as_of(LATER).recall(SECRET, everyone=True)) == []
        assert SECRET not in dm.session("s").recall(SECRET.replace("-", " "), subject="ada").text
        assert dm.verify().ok
        dm.memory.remember("life continues", subject="ada")
    with open_memory(address, key=key) as dm:
        assert contents(dm.memory.recall("life", subject="ada")) == ["life continues"]
        assert dm.verify().ok
    assert places_with(address, tmp_path) == []


@pytest.mark.promise("G1", "G3")
@pytest.mark.parametrize("subject", [None, "ada"])
def test_a_sealed_store_never_contains_words_or_vectors(address: str, tmp_path: Path, subject: str | None) -> None:
    with open_memory(address, key=KEY) as dm:
        store_secrets(dm, subject)
        data = {"content": f"{SECRET} from a task"}
        vector = vectors_of([data["content"]])[0]
        packed = pack_vectors((vector / np.linalg.norm(vector)).astype(np.float32)[None])[0].body
        terms = read_term_stats(data, 0).terms
        for secret in (SECRET.encode(), packed, packed[4:], terms[:8], terms[-8:]):
            assert places_with(address, tmp_path, secret) == []
    plain = tmp_path / "plain"
    plain.mkdir()
    with open_memory(str(plain / "agent.db")) as dm:
        store_secrets(dm, subject)
        for secret in (SECRET.encode(), packed):
            assert places_with(str(plain / "agent.db"), plain, secret), "the check finds text that is not sealed"


@pytest.mark.promise("G3")
def test_ids_of_the_same_text_differ_between_sealed_stores() -> None:
    with open_memory("memory:", key=KEY) as one, open_memory("memory:", key=KEY) as two:
        for subject in (None, "ada"):
            assert one.memory.remember("yes", subject=subject).id != two.memory.remember("yes", subject=subject).id


@pytest.mark.promise("G3")
def test_the_report_counts_what_was_forgotten(any_address: str) -> None:
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
def test_forgetting_leaves_other_memories_unchanged(any_address: str) -> None:
    with open_memory(any_address) as dm:
        facts = [dm.memory.remember(f"fact {number}") for number in range(5)]
        old = dm.memory.remember("lives in Rome", key="home")
        new = dm.memory.remember("lives in Oslo", key="home")
        dm.memory.catch_up()
        dm.memory.recall("fact lives")
        assert dm.memory.forget(facts[2].id).payloads == 1
        assert dm.memory.forget(old.id).payloads == 1
        assert sorted(contents(dm.memory.recall("fact lives"))) == ["fact 0", "fact 1", "fact 3", "fact 4", new.content]
        assert contents(dm.memory.history(new.id)) == [new.content]
        assert dm.memory.forget(new.id).payloads == 1
        assert "lives" not in " ".join(contents(dm.memory.recall("lives in Rome"))), "the older one stays ended"
        again = dm.memory.remember("fact 2")
        assert (again.id, again.times) == (facts[2].id, 1)
        assert len(dm.memory.recall("fact")) == 5
        forgotten = [event.data["ids"] for event in dm.session("@memory").events(types="memory.forgotten")]
        assert forgotten == [[facts[2].id], [old.id], [new.id]]
        assert dm.verify().ok


@pytest.mark.promise("G3")
def test_all_versions_of_a_memory_are_forgotten(any_address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("duramen.memory.catalog.catalog._PAGE", 4)
    with open_memory(any_address, embedder="none") as dm:
        for number in range(11):
            made = dm.session(f"s{number % 2}").remember("repeated")
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
def test_forget_before_counts_from_the_last_confirmation(any_address: str, clock: FakeClock) -> None:
    def after(seconds: int) -> dt.datetime:
        return dt.datetime.fromtimestamp(1_700_000_000 + seconds, dt.UTC)

    with open_memory(any_address, clock=clock, embedder="none") as dm:
        for text in ("repeated", "old", "repeated", "about ada", "repeated"):
            dm.memory.remember(text, subject="ada" if "ada" in text else None, kind="fact" if text != "old" else "note")
            clock.advance(10)
        assert dm.memory.forget_before(after(35), kinds="preference").memories == 0
        assert dm.memory.forget_before(after(10)).memories == 0, "before, not at"
        assert dm.memory.forget_before(after(35)).memories == 1
        (memory,) = dm.memory.list()
        assert (memory.content, memory.times, len(dm.memory.history(memory.id))) == ("repeated", 3, 3)
        assert contents(dm.memory.list(subject="ada")) == ["repeated", "about ada"]
        assert dm.memory.forget_before(after(35), subject="ada").memories == 1
        assert dm.memory.forget_before(after(41)).memories == 1
        assert list(dm.memory.list(everyone=True)) == []
        assert dm.verify().ok


@pytest.mark.promise("G3")
def test_erase_includes_memories_of_the_subject_that_all_may_recall(any_address: str) -> None:
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


def test_forgetting_fails_while_a_reader_holds_the_log(tmp_path: Path) -> None:
    """The text is deleted at once, but stays in the log. Forgetting again after the reader closed removes it there."""
    path = tmp_path / "agent.db"
    with open_memory(str(path), timeout=0.3, embedder="none") as dm:
        made = dm.memory.remember(SECRET)
        with closing(apsw.Connection(str(path))) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM duramen_events").fetchall()
            with pytest.raises(StoreBusy):
                dm.memory.forget(made.id)
            assert list(dm.memory.list()) == []
        with pytest.raises(UnknownMemory):
            dm.memory.forget(made.id)
        assert places_with(str(path), tmp_path) == []
