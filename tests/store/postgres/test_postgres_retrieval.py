"""Search inside PostgreSQL: candidates by words and meaning in one statement, filters inside, and nothing that is
gone, sealed or somebody else's."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from programs.child_processes import ChildProcesses, until
from programs.retrieval_corpus import ThemeEmbedder, fill, sentence

import duramen
from duramen.errors import StoreUnavailable, UnknownMemory
from duramen.memory.index.index_entry import code_bits, day_of
from duramen.memory.ranking import retrieval
from duramen.memory.ranking.rank import Question, Weights
from duramen.memory.ranking.retrieval import Retrieval
from duramen.memory.ranking.selection import ActiveSearch, SearchRequest
from duramen.runtime import drive, run_alongside
from duramen.stores.postgres import retrieval as inside
from duramen.stores.postgres import vector_index as tending
from duramen.testing.clock import FakeClock

SECOND = 1_000_000


@pytest.fixture
def dm(postgres_url: str, clock: FakeClock) -> Iterator[duramen.Duramen]:
    with opened(postgres_url, clock=clock) as made:
        yield made


def opened(address: str, **settings: Any) -> duramen.Duramen:
    """A handle that asks for candidates wherever there are some memories."""
    made = duramen.open(address, **{"embedder": ThemeEmbedder(), **settings})
    source(made, 20)
    return made


def source(dm: duramen.Duramen, exact: int | None) -> Retrieval:
    """Above so many memories candidates are asked for; None: never."""
    found: Any = dm.memory._core._service.search._sources[0]
    assert isinstance(found, Retrieval)
    found.exact_limit = 10**9 if exact is None else exact
    return found


class Watched:
    """Counts how often a source gave candidates."""

    def __init__(self, dm: duramen.Duramen, monkeypatch: pytest.MonkeyPatch) -> None:
        self.selections: list[Any] = []
        given = source(dm, 20)
        candidates = given.candidates

        async def watching(asked: Any) -> Any:
            self.selections.append(await candidates(asked))
            return self.selections[-1]

        monkeypatch.setattr(given, "candidates", watching)

    @property
    def numbers(self) -> set[int]:
        """Of the memories that the last search ranked."""
        last = self.selections[-1]
        assert last is not None, "nothing was asked of the store"
        return {number for audience in last.audiences for number in audience.column("number").tolist()}


@pytest.fixture
def watched(dm: duramen.Duramen, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(dm, monkeypatch)


def told(found: Any) -> list[str]:
    return [hit.memory.content for hit in found.hits]


def search(dm: duramen.Duramen, question: str, exact: int | None, **options: Any) -> dict[str, float]:
    """What is found and its score, whatever was recalled before."""
    source(dm, exact)
    service: Any = dm.memory._core._service
    audiences = options.pop("audiences", (b"",))
    found = drive(service.search.find(SearchRequest(question, audiences, weights=Weights(access=0), **options)))
    return {hit.memory.content: hit.score for hit in found.hits}


def sql(address: str, query: str) -> list[Any]:
    with psycopg.connect(address, autocommit=True) as connection:
        answer = connection.execute(query.encode())
        return answer.fetchall() if answer.description else []


# -- what is found


@pytest.mark.promise("B2")
@pytest.mark.parametrize("kind", ["fact", "episode"])
def test_candidates_give_the_same_answers_as_ranking_everything(dm: duramen.Duramen, kind: str) -> None:
    fill(dm, 2_000, kind=kind)
    chance, right, all_ = random.Random(5), 0, 0
    for _ in range(20):
        question = sentence(chance, 4)
        exact = search(dm, question, None, limit=40)
        least = sorted(exact.values())[-10] - 0.02  # of equals either is right
        found = search(dm, question, 100)
        right, all_ = right + sum(exact.get(one, 0) >= least for one in found), all_ + len(found)
    assert all_ == 200
    assert right >= 0.95 * all_


@pytest.mark.promise("B2", "S3")
def test_filters_hold_inside_the_search(dm: duramen.Duramen, clock: FakeClock, watched: Watched) -> None:
    early = fill(dm, 60, seed=1)
    clock.advance(1_000)
    middle = clock.now()
    clock.advance(1_000)
    late = fill(dm, 60, seed=2, kind="preference")
    fill(dm, 60, seed=3, subject="Ada")
    question, every = early[0], 200
    assert set(told(dm.memory.recall(question, limit=every))) == {*early, *late}
    assert set(told(dm.memory.recall(question, limit=every, kinds="preference"))) == set(late)
    assert set(told(dm.memory.recall(question, limit=every, until=moment(middle)))) == set(early)
    assert set(told(dm.memory.recall(question, limit=every, since=moment(middle)))) == set(late)
    odd = {"parity": 1}
    assert set(told(dm.memory.recall(question, limit=every, metadata=odd))) == {*early[1::2], *late[1::2]}
    assert set(told(dm.memory.recall(question, limit=every, metadata={"parity": True}))) == {*early[1::2], *late[1::2]}
    assert told(dm.memory.recall(question, limit=every, metadata={"parity": "1"})) == []
    assert told(dm.memory.recall("zzz", limit=every, kinds="fact", threshold=0.99)) == []
    assert len(dm.memory.recall(question, subject="Ada", limit=every).hits) == 180
    assert len(dm.memory.recall(question, everyone=True, limit=every).hits) == 180
    best = dm.memory.recall(question, limit=5).hits
    assert (best[0].memory.content, len(best)) == (question, 5)
    assert [hit.score for hit in best] == sorted((hit.score for hit in best), reverse=True)
    assert sum(best[0].parts.values()) == pytest.approx(best[0].score, abs=1e-4)
    assert len(watched.selections) == 11
    assert all(selection is not None for selection in watched.selections)


def test_what_a_filter_asks_for_and_json_cannot_say_is_ranked_whole(dm: duramen.Duramen, watched: Watched) -> None:
    said = fill(dm, 60)
    assert told(dm.memory.recall(said[0], metadata={"parity": b"1"})) == []
    assert told(dm.memory.recall(said[0], metadata={"parity\0": 1})) == []
    assert watched.selections == [None, None]
    assert len(dm.memory.recall(" ".join(sentence(random.Random(number)) for number in range(9))).hits) == 10


@pytest.mark.promise("S3")
def test_a_common_word_does_not_rank_every_memory_that_has_it(
    dm: duramen.Duramen, watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval, "_SCAN_LIMIT", 40)
    said = fill(dm, 300)
    common, rare = said[7].split()[0], said[7].split()[-1]
    found = dm.memory.recall(f"{common} {rare}")
    assert told(found)[0] == said[7]
    assert len(watched.numbers) < 250
    assert told(dm.memory.recall(common))


def test_what_has_no_vector_yet_is_found_by_its_words(dm: duramen.Duramen, watched: Watched) -> None:
    fill(dm, 60)
    dm.memory._core._service.index_worker.stop()
    dm.memory.remember("the heron stands in the reeds")
    found = dm.memory.recall("where is the heron?", limit=1)
    assert (told(found), found.waiting) == (["the heron stands in the reeds"], 1)
    assert watched.selections[-1] is not None


class Patient(ThemeEmbedder):
    """Gives the vector of a question when something has happened, or too late."""

    def __init__(self, happened: threading.Event) -> None:
        super().__init__()
        self._happened, self.waited = happened, list[bool]()

    def embed(self, texts: Any) -> Any:
        if self._happened is not None and len(texts) == 1:
            self.waited.append(self._happened.wait(20))
        return super().embed(texts)


@pytest.mark.promise("B2")
def test_an_audience_is_looked_over_while_the_question_is_embedded(
    dm: duramen.Duramen, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = fill(dm, 60)
    surveyed = threading.Event()
    patient = Patient(surveyed)
    with opened(postgres_url, embedder=patient) as other:
        given: Any = source(other, 20)._retriever
        sample_corpus, corpus_samples = given.sample_corpus, list[Any]()

        async def watching(*asked: Any) -> Any:
            corpus_samples.append(await sample_corpus(*asked))
            surveyed.set()
            return corpus_samples[-1]

        monkeypatch.setattr(given, "sample_corpus", watching)
        assert told(other.memory.recall(said[3], limit=1)) == [said[3]]
        assert patient.waited == [True]
        assert told(other.memory.recall(said[4], limit=1)) == [said[4]]
        assert len(corpus_samples) == 1, "what is known is not looked at again"


@pytest.mark.promise("B2")
@pytest.mark.parametrize("known", [True, False])
def test_what_is_near_is_sought_while_words_still_are(
    dm: duramen.Duramen, postgres_url: str, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    said = fill(dm, 60)
    words, near = threading.Event(), threading.Event()
    patient = Patient(words)
    with opened(postgres_url, embedder=patient) as other:
        given: Any = source(other, 20)._retriever
        if known:
            words.set()
            other.memory.recall(said[2])
            words.clear()
        retrieve, waited, asked = given.retrieve, list[bool](), list[Any]()

        async def watching(workspace: str, wanted: Any) -> Any:
            asked.append(wanted)
            (words if wanted.code is None else near).set()
            if wanted.code is None:
                waited.append(near.wait(20))
            return await retrieve(workspace, wanted)

        monkeypatch.setattr(given, "retrieve", watching)
        assert told(other.memory.recall(said[3], limit=1)) == [said[3]]
        assert waited == [True]
        assert [one.code is None for one in asked] == [True, False], "neither is asked for again"
        assert {one.unindexed_limit for one in asked} == {0}, "all have a vector"


@pytest.mark.promise("B2")
@pytest.mark.parametrize("kind", ["fact", "episode"])
def test_the_best_by_words_are_read_while_what_is_near_is_sought(
    dm: duramen.Duramen, postgres_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    said = fill(dm, 600, kind=kind)
    words, read = threading.Event(), threading.Event()
    whole = search(dm, said[3], 20)
    with opened(postgres_url, embedder=Patient(words), clock=clock) as other:
        given: Any = source(other, 20)._retriever
        retrieve, beside, waited, numbers = given.retrieve, given.with_adjacent, list[bool](), list[set[int]]()

        async def searching_by_vector(workspace: str, wanted: Any) -> Any:
            words.set()
            if wanted.code is not None:
                waited.append(read.wait(20))
            return await retrieve(workspace, wanted)

        async def reading(workspace: str, generation: int, some: Any) -> Any:
            numbers.append(set(some))
            read.set()
            return await beside(workspace, generation, some)

        monkeypatch.setattr(given, "retrieve", searching_by_vector)
        monkeypatch.setattr(given, "with_adjacent", reading)
        assert search(other, said[3], 20) == whole
        assert waited == [True]
        early, later = numbers
        assert early
        assert later
        assert not early & later


def corpus_stats(dm: duramen.Duramen) -> Any:
    """How things stand in the one audience that was searched."""
    ((_, stats),) = source(dm, 20)._cached.values()
    assert stats is not None
    return stats


def test_what_cannot_be_read_does_not_count_for_how_things_stand(dm: duramen.Duramen, postgres_url: str) -> None:
    said = fill(dm, 200)
    sql(postgres_url, "UPDATE duramen.index_entries SET words = '\\x00c1' WHERE number % 3 = 0")
    sql(postgres_url, "UPDATE duramen.index_entries SET vector = '\\x0000' WHERE number % 3 = 1")
    drawn = [one for (one,) in sql(postgres_url, "SELECT number FROM duramen.searchable WHERE draw < 128")]
    assert {number % 3 for number in drawn} == {0, 1, 2}
    with opened(postgres_url) as other:
        assert told(other.memory.recall(said[3], limit=1)) == [said[3]]
        held = corpus_stats(other).sample
    assert set(held.column("number").tolist()) == {number for number in drawn if number % 3}
    assert set(held.column("number")[held.column("has_vector")].tolist()) == {
        number for number in drawn if number % 3 == 2
    }


@pytest.mark.promise("S3")
def test_what_was_drawn_says_which_part_filters_leave(dm: duramen.Duramen, clock: FakeClock, postgres_url: str) -> None:
    fill(dm, 100)
    begins, ends = clock.now() + 100 * SECOND, clock.now() + 200 * SECOND
    for number in range(100):
        dm.memory.remember(f"heron {number}", valid_from=moment(begins), valid_to=moment(ends))
    fill(dm, 100, seed=2, kind="episode")
    dm.memory.recall("heron")
    query = "SELECT count(*), count(opens), count(session) FROM duramen.searchable WHERE draw < 128"
    ((drawn, coming, told_in),) = sql(postgres_url, query)
    assert 0 < coming < told_in + coming < drawn
    stats, question = corpus_stats(dm), Question.parse("heron", day_of(clock.now()))
    for kinds, others in ((None, drawn - coming), (frozenset(["episode"]), told_in)):
        for now, left in ((clock.now(), 0), (begins, coming), (ends, 0)):
            asked = ActiveSearch(SearchRequest("heron", (b"",), kinds=kinds), question, None, 1, now)
            counted = others + (left if kinds is None else 0)
            expected = 1 if counted == drawn else (counted + 0.5) / (drawn + 1)
            assert stats.filtered_share(asked) == expected
    assert stats.episodes_per_session == 10
    assert stats.episode_share() == told_in / drawn


def test_where_others_ask_a_search_goes_one_step_after_the_other(
    dm: duramen.Duramen, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = fill(dm, 60)
    embedder: Any = dm.memory._core._service.embedder
    room, at_once = embedder._idle_slots, list[int]()

    async def watching(*both: Any) -> Any:
        at_once.append(1)
        return await run_alongside(*both)

    monkeypatch.setattr("duramen.memory.index.workspace_embedder.run_alongside", watching)
    taken = 0
    while room.acquire(blocking=False):
        taken += 1
    assert told(dm.memory.recall(said[3], limit=1)) == [said[3]]
    assert at_once == []
    for _ in range(taken):
        room.release()
    for _ in range(taken + 1):
        assert told(dm.memory.recall(said[4], limit=1)) == [said[4]]
    assert at_once == [1] * (taken + 1)

    async def fails(*_: Any) -> Any:
        raise StoreUnavailable("away")

    monkeypatch.setattr(source(dm, 20), "change_count", fails)
    for _ in range(taken):
        with pytest.raises(StoreUnavailable):
            dm.memory.recall(said[3])
    assert room.acquire(blocking=False), "given back, whatever happened"


def test_two_answers_are_joined_in_the_order_of_one(dm: duramen.Duramen) -> None:
    fill(dm, 60, kind="episode")
    given = source(dm, 20)
    every = drive(given.with_adjacent(1, set(range(200))))
    numbers = [change.row.number for change in every]
    assert len(numbers) == 60
    some, others = (drive(given.with_adjacent(1, set(numbers[first::4]))) for first in (0, 2))
    assert {one.row.number for one in some} & {one.row.number for one in others}, "what stands beside both"
    assert retrieval._joined(others, some) == retrieval._joined(some, others) == every


# -- what is gone


@pytest.mark.promise("G3", "S9")
def test_nothing_that_is_gone_is_a_candidate(dm: duramen.Duramen, postgres_url: str, watched: Watched) -> None:
    said = fill(dm, 60)
    dm.memory.remember("the pass is heron", key="pass")
    dm.memory.remember("the heron sleeps", subject="Ada")
    forgotten = dm.memory.remember("a heron to forget")
    dm.memory.catch_up()
    assert len(told(dm.memory.recall("heron", subject="Ada", limit=3))) == 3
    dm.memory.remember("the pass is egret", key="pass")
    dm.memory.forget(forgotten.id)
    dm.memory.catch_up()
    dm.erase("Ada")
    assert not [one for one in told(dm.memory.recall("heron", everyone=True, limit=80)) if "heron" in one]
    assert watched.numbers
    assert sql(postgres_url, "SELECT count(*) FROM duramen.searchable") == [(len(said) + 1,)]
    assert dm.verify().ok


@pytest.mark.promise("G3")
def test_what_is_forgotten_while_it_is_searched_is_not_given(
    dm: duramen.Duramen, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = fill(dm, 60)
    first = dm.memory.recall(said[5]).hits[0].memory
    given: Any = source(dm, 20)._retriever
    for place in ("with_adjacent", "retrieve"):
        one = dm.memory.recall(said[5]).hits[0].memory
        do = getattr(given, place)

        async def between(*asked: Any, do: Any = do, id: str = one.id) -> Any:
            found = await do(*asked)
            with suppress(UnknownMemory):  # words and meaning are searched one after the other
                await dm.memory._core.forget(id)
            return found

        monkeypatch.setattr(given, place, between)
        hits = told(dm.memory.recall(one.content))
        monkeypatch.undo()
        assert len(hits) == 10
        assert one.content not in hits
    assert first.content == said[5]


@pytest.mark.promise("G4")
def test_another_workspace_has_no_candidates_here(postgres_url: str) -> None:
    with opened(postgres_url, workspace="a") as one, opened(postgres_url, workspace="b") as two:
        mine, theirs = fill(one, 60, seed=1), fill(two, 60, seed=2)
        assert set(told(one.memory.recall(theirs[3], everyone=True, limit=200))) == set(mine)
        assert set(told(two.memory.recall(theirs[3], everyone=True, limit=200))) == set(theirs)


def test_an_end_that_moves_moves_in_the_search_too(dm: duramen.Duramen, clock: FakeClock, watched: Watched) -> None:
    fill(dm, 60)
    dm.memory.remember("the heron is here", key="bird")
    dm.memory.catch_up()
    dm.memory.remember("the heron is gone", key="bird", valid_from=moment(clock.now() + 100 * SECOND))
    dm.memory.catch_up()
    assert told(dm.memory.recall("heron", limit=1)) == ["the heron is here"]
    clock.advance(200)
    assert told(dm.memory.recall("heron", limit=1)) == ["the heron is gone"]
    assert watched.selections[-1] is not None
    assert dm.verify().ok


# -- generations, seals


@pytest.mark.promise("S6")
def test_a_store_that_moved_is_searched_by_its_new_codes(dm: duramen.Duramen, postgres_url: str) -> None:
    said = fill(dm, 60)
    with opened(postgres_url, embedder=ThemeEmbedder("other", 300)) as moved:
        list(moved.memory.reindex())
        watching = Watched(moved, pytest.MonkeyPatch())
        assert told(moved.memory.recall(said[9], limit=1)) == [said[9]]
        assert len(watching.numbers) == 60
        assert moved.verify().ok
    left = sql(postgres_url, "SELECT DISTINCT generation, length(code) FROM duramen.searchable")
    assert left == [(2, code_bits(300))]


@pytest.mark.promise("G3", "S3")
def test_of_what_is_sealed_nothing_is_in_the_clear_and_both_are_found(postgres_url: str) -> None:
    with opened(postgres_url) as dm:
        said = fill(dm, 60, seed=1)
    with opened(postgres_url, key=b"k" * 32) as dm:
        sealed = fill(dm, 60, seed=2)
        found = set(told(dm.memory.recall(sealed[0], limit=200)))
        assert found == {*said, *sealed}
        assert dm.verify().ok
    rows = sql(postgres_url, "SELECT terms, code, metadata, length, draw FROM duramen.searchable WHERE hidden")
    assert len(rows) == 60
    assert {tuple(map(str, row[:4])) for row in rows} == {("[]", "None", "None", "0")}
    assert sql(postgres_url, "SELECT count(*) FROM duramen.searchable WHERE NOT hidden") == [(60,)]


# -- older stores, damage


def unmake(address: str) -> None:
    """As it was before PostgreSQL searched by itself."""
    sql(address, "DELETE FROM duramen.searchable")
    sql(address, "DELETE FROM duramen.searched")


@pytest.mark.promise("S7", "R9")
def test_an_older_store_is_searched_in_memory_until_it_is_ready(
    dm: duramen.Duramen, postgres_url: str, processes: ChildProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = fill(dm, 700)
    dm.close()
    unmake(postgres_url)
    with opened(postgres_url) as again:
        again.memory._core._service.index_worker.stop()
        watching = Watched(again, monkeypatch)
        assert told(again.memory.recall(said[3], limit=1)) == [said[3]]
        assert watching.selections == [None]
        child = processes.start("retrieval_corpus:make_searchable", crash=("memory.readying", 2), address=postgres_url)
        assert child.wait() == -signal.SIGKILL, child.errors()
        made = sql(postgres_url, "SELECT count(*) FROM duramen.searchable")
        assert made == [(500,)]
        assert told(again.memory.recall(said[3], limit=1)) == [said[3]]
        children = [processes.start("retrieval_corpus:make_searchable", address=postgres_url) for _ in range(2)]
        for one in children:
            one.finish()
        assert told(again.memory.recall(said[3], limit=1)) == [said[3]]
        assert watching.selections[-1] is not None
        assert again.verify().ok
    assert sql(postgres_url, "SELECT count(*), count(DISTINCT number) FROM duramen.searchable") == [(700, 700)]


@pytest.mark.promise("J8")
@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("DELETE FROM duramen.searchable WHERE number % 30 = 0", "has no search row"),
        ("UPDATE duramen.searchable SET number = number + 500", "belongs to no current memory"),
        ("UPDATE duramen.searchable SET kind = 'other'", "contradicts"),
        ("UPDATE duramen.searchable SET code = ~ code", "does not match its checksum"),
        ("UPDATE duramen.searchable SET terms = terms[2:]", "does not match its checksum"),
    ],
)
def test_damage_to_what_is_searched_is_told(dm: duramen.Duramen, postgres_url: str, spoil: str, said: str) -> None:
    fill(dm, 60)
    assert dm.verify().ok
    sql(postgres_url, spoil)
    assert any(said in problem for problem in map(str, dm.verify().problems))


# -- the index over codes


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few memories are many."""
    monkeypatch.setattr(tending, "LARGE", 50)
    monkeypatch.setattr(inside, "SCANNED", 50)
    monkeypatch.setattr(inside, "ALL_SCANNED", 60)


def maintain_indexes(dm: duramen.Duramen) -> None:
    """Let the store look after its indexes; if it does so by itself at this moment, until it is done."""
    service: Any = dm.memory._core._service
    service.index_worker.stop()
    thread = service.index_worker._maintenance
    if thread is not None:
        thread.join()
    service.index_worker._maintain_now(source(dm, 20)._retriever)


def indexes(address: str) -> list[Any]:
    found = sql(
        address,
        "SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
        " WHERE c.relname LIKE 'near%' ORDER BY 1",
    )
    return [(name.rsplit("_", 1)[1], valid) for name, valid in found]


@pytest.mark.promise("B2")
@pytest.mark.usefixtures("large")
def test_what_is_large_is_searched_by_an_index(dm: duramen.Duramen, postgres_url: str, watched: Watched) -> None:
    said = fill(dm, 400)
    assert told(dm.memory.recall(said[3], limit=1)) == [said[3]]
    assert watched.selections == [None], "without an index it is searched in memory"
    maintain_indexes(dm)
    assert indexes(postgres_url) == [("1", True)]
    source(dm, 20)._retriever._indexed.clear()  # type: ignore[attr-defined]
    assert sql(postgres_url, SCANS) == [(0,)]
    with opened(postgres_url) as other:
        assert told(other.memory.recall(said[7], limit=1)) == [said[7]]
    until(lambda: sql(postgres_url, SCANS) > [(0,)], "the index was walked")
    for question in said[:5]:
        assert told(dm.memory.recall(question, limit=1)) == [question]
        assert told(dm.memory.recall(question, limit=1, kinds="fact", everyone=True)) == [question]
    assert told(dm.memory.recall(said[0], kinds="nothing of that")) == []
    assert all(selection is not None for selection in watched.selections[1:])
    sql(postgres_url, f"UPDATE pg_index SET indisvalid = false WHERE indexrelid IN ({NEAR})")
    maintain_indexes(dm)
    assert indexes(postgres_url) == [("1", True)], "one that was not completed is made again"
    with opened(postgres_url, embedder=ThemeEmbedder("other")) as moved:
        list(moved.memory.reindex())
        assert indexes(postgres_url) == [("1", True), ("2", True)], "it is made before it is searched"
        maintain_indexes(moved)
        assert indexes(postgres_url) == [("2", True)]


NEAR = "SELECT oid FROM pg_class WHERE relname LIKE 'near%'"
SCANS = "SELECT coalesce(sum(idx_scan), 0)::int FROM pg_stat_user_indexes WHERE indexrelname LIKE 'near%'"


@pytest.mark.promise("R9")
@pytest.mark.usefixtures("large")
def test_without_the_right_to_make_an_index_everything_is_found(dm: duramen.Duramen, postgres_url: str) -> None:
    said = fill(dm, 400)
    name = postgres_url.rsplit("/", 1)[1]
    for grant in (
        f'CREATE ROLE "{name}" LOGIN',
        f'GRANT USAGE ON SCHEMA duramen TO "{name}"',
        f'GRANT ALL ON ALL TABLES IN SCHEMA duramen TO "{name}"',
        f'GRANT ALL ON ALL SEQUENCES IN SCHEMA duramen TO "{name}"',
    ):
        sql(postgres_url, grant)
    with opened(postgres_url.replace("postgres@", f"{name}@")) as bound:
        maintain_indexes(bound)
        store: Any = bound.memory._core._service.journal.store
        assert "owner" in store._vector_index.refused or "permission" in store._vector_index.refused
        assert told(bound.memory.recall(said[3], limit=1)) == [said[3]]
    assert indexes(postgres_url) == []


def moment(time: int) -> Any:
    from duramen.journal.events import moment as at

    return at(time)
