"""Search inside PostgreSQL: candidates by words and vectors, filters, removed, sealed and separate memories."""

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
from duramen.journal.events import moment as datetime_at
from duramen.memory.index.index_entry import code_bits, day_of
from duramen.memory.ranking import retrieval
from duramen.memory.ranking.rank import Question, Weights
from duramen.memory.ranking.retrieval import Retrieval
from duramen.memory.ranking.selection import ActiveSearch, SearchRequest
from duramen.runtime import drive, run_alongside
from duramen.stores.postgres import retrieval as retrieval_sql
from duramen.stores.postgres import vector_index
from duramen.testing.clock import FakeClock

SECOND = 1_000_000


@pytest.fixture
def dm(postgres_url: str, clock: FakeClock) -> Iterator[duramen.Duramen]:
    with open_with_candidates(postgres_url, clock=clock) as dm:
        yield dm


def open_with_candidates(address: str, **settings: Any) -> duramen.Duramen:
    """A handle that searches in the store if there are more than 20 memories."""
    dm = duramen.open(address, **{"embedder": ThemeEmbedder(), **settings})
    retrieval_of(dm, 20)
    return dm


def retrieval_of(dm: duramen.Duramen, exact: int | None) -> Retrieval:
    """Set how many memories are ranked without candidates from the store. None means all."""
    source: Any = dm.memory._core._service.search._sources[0]
    assert isinstance(source, Retrieval)
    source.exact_limit = 10**9 if exact is None else exact
    return source


class RecordedSelections:
    """Records the candidates of each search. None means that the store was not asked."""

    def __init__(self, dm: duramen.Duramen, monkeypatch: pytest.MonkeyPatch) -> None:
        self.all: list[Any] = []
        source = retrieval_of(dm, 20)
        candidates = source.candidates

        async def recording(search: Any) -> Any:
            self.all.append(await candidates(search))
            return self.all[-1]

        monkeypatch.setattr(source, "candidates", recording)

    @property
    def numbers(self) -> set[int]:
        """The numbers of the memories that the last search ranked."""
        last = self.all[-1]
        assert last is not None, "the store was not asked"
        return {number for audience in last.audiences for number in audience.column("number").tolist()}


@pytest.fixture
def selections(dm: duramen.Duramen, monkeypatch: pytest.MonkeyPatch) -> RecordedSelections:
    return RecordedSelections(dm, monkeypatch)


def contents(recalled: Any) -> list[str]:
    return [hit.memory.content for hit in recalled.hits]


def search(dm: duramen.Duramen, question: str, exact: int | None, **options: Any) -> dict[str, float]:
    """The content and the score of each hit. Earlier recalls do not affect the score."""
    retrieval_of(dm, exact)
    service: Any = dm.memory._core._service
    audiences = options.pop("audiences", (b"",))
    recalled = drive(service.search.find(SearchRequest(question, audiences, weights=Weights(access=0), **options)))
    return {hit.memory.content: hit.score for hit in recalled.hits}


def sql(address: str, query: str) -> list[Any]:
    with psycopg.connect(address, autocommit=True) as connection:
        answer = connection.execute(query.encode())
        return answer.fetchall() if answer.description else []


# -- candidates


@pytest.mark.promise("B2")
@pytest.mark.parametrize("kind", ["fact", "episode"])
def test_candidates_give_the_same_answers_as_a_full_ranking(dm: duramen.Duramen, kind: str) -> None:
    fill(dm, 2_000, kind=kind)
    choices, right, total = random.Random(5), 0, 0  # fixed: the share of right hits depends on the questions
    for _ in range(20):
        question = sentence(choices, 4)
        exact = search(dm, question, None, limit=40)
        min_score = sorted(exact.values())[-10] - 0.02  # hits with nearly the same score are interchangeable
        hits = search(dm, question, 100)
        right, total = right + sum(exact.get(content, 0) >= min_score for content in hits), total + len(hits)
    assert total == 200
    assert right >= 0.95 * total


@pytest.mark.promise("B2", "S3")
def test_filters_are_applied_in_the_store(
    dm: duramen.Duramen, clock: FakeClock, selections: RecordedSelections
) -> None:
    early = fill(dm, 60, seed=1)
    clock.advance(1_000)
    middle = clock.now()
    clock.advance(1_000)
    late = fill(dm, 60, seed=2, kind="preference")
    fill(dm, 60, seed=3, subject="Ada")
    question, every = early[0], 200
    assert set(contents(dm.memory.recall(question, limit=every))) == {*early, *late}
    assert set(contents(dm.memory.recall(question, limit=every, kinds="preference"))) == set(late)
    assert set(contents(dm.memory.recall(question, limit=every, until=datetime_at(middle)))) == set(early)
    assert set(contents(dm.memory.recall(question, limit=every, since=datetime_at(middle)))) == set(late)
    odd = {"parity": 1}
    assert set(contents(dm.memory.recall(question, limit=every, metadata=odd))) == {*early[1::2], *late[1::2]}
    assert set(contents(dm.memory.recall(question, limit=every, metadata={"parity": True}))) == {
        *early[1::2],
        *late[1::2],
    }
    assert contents(dm.memory.recall(question, limit=every, metadata={"parity": "1"})) == []
    assert contents(dm.memory.recall("zzz", limit=every, kinds="fact", threshold=0.99)) == []
    assert len(dm.memory.recall(question, subject="Ada", limit=every).hits) == 180
    assert len(dm.memory.recall(question, everyone=True, limit=every).hits) == 180
    best = dm.memory.recall(question, limit=5).hits
    assert (best[0].memory.content, len(best)) == (question, 5)
    assert [hit.score for hit in best] == sorted((hit.score for hit in best), reverse=True)
    assert sum(best[0].parts.values()) == pytest.approx(best[0].score, abs=1e-4)
    assert len(selections.all) == 11
    assert all(selection is not None for selection in selections.all)


def test_a_filter_that_json_cannot_express_uses_the_full_ranking(
    dm: duramen.Duramen, selections: RecordedSelections
) -> None:
    sentences = fill(dm, 60)
    assert contents(dm.memory.recall(sentences[0], metadata={"parity": b"1"})) == []
    assert contents(dm.memory.recall(sentences[0], metadata={"parity\0": 1})) == []
    assert selections.all == [None, None]
    assert len(dm.memory.recall(" ".join(sentence(random.Random(number)) for number in range(9))).hits) == 10


@pytest.mark.promise("S3")
def test_a_common_word_does_not_make_every_memory_a_candidate(
    dm: duramen.Duramen, selections: RecordedSelections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval, "_SCAN_LIMIT", 40)
    sentences = fill(dm, 300)
    common, rare = sentences[7].split()[0], sentences[7].split()[-1]
    recalled = dm.memory.recall(f"{common} {rare}")
    assert contents(recalled)[0] == sentences[7]
    assert len(selections.numbers) < 250
    assert contents(dm.memory.recall(common))


def test_a_memory_without_a_vector_is_found_by_its_words(dm: duramen.Duramen, selections: RecordedSelections) -> None:
    fill(dm, 60)
    dm.memory._core._service.index_worker.stop()
    dm.memory.remember("the heron stands in the reeds")
    recalled = dm.memory.recall("where is the heron?", limit=1)
    assert (contents(recalled), recalled.waiting) == (["the heron stands in the reeds"], 1)
    assert selections.all[-1] is not None


class WaitingEmbedder(ThemeEmbedder):
    """Returns the vector of a question after an event. `waited` records whether the event came in time."""

    def __init__(self, event: threading.Event) -> None:
        super().__init__()
        self._event, self.waited = event, list[bool]()

    def embed(self, texts: Any) -> Any:
        if self._event is not None and len(texts) == 1:
            self.waited.append(self._event.wait(20))
        return super().embed(texts)


@pytest.mark.promise("B2")
def test_an_audience_is_sampled_while_the_question_is_embedded(
    dm: duramen.Duramen, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences = fill(dm, 60)
    sampled = threading.Event()
    embedder = WaitingEmbedder(sampled)
    with open_with_candidates(postgres_url, embedder=embedder) as other:
        retriever: Any = retrieval_of(other, 20)._retriever
        sample_corpus, corpus_samples = retriever.sample_corpus, list[Any]()

        async def recording(*arguments: Any) -> Any:
            corpus_samples.append(await sample_corpus(*arguments))
            sampled.set()
            return corpus_samples[-1]

        monkeypatch.setattr(retriever, "sample_corpus", recording)
        assert contents(other.memory.recall(sentences[3], limit=1)) == [sentences[3]]
        assert embedder.waited == [True]
        assert contents(other.memory.recall(sentences[4], limit=1)) == [sentences[4]]
        assert len(corpus_samples) == 1, "the audience was sampled again"


@pytest.mark.promise("B2")
@pytest.mark.parametrize("known", [True, False])
def test_words_and_vectors_are_searched_at_the_same_time(
    dm: duramen.Duramen, postgres_url: str, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    sentences = fill(dm, 60)
    words, vectors = threading.Event(), threading.Event()
    embedder = WaitingEmbedder(words)
    with open_with_candidates(postgres_url, embedder=embedder) as other:
        retriever: Any = retrieval_of(other, 20)._retriever
        if known:
            words.set()
            other.memory.recall(sentences[2])
            words.clear()
        retrieve, waited, queries = retriever.retrieve, list[bool](), list[Any]()

        async def recording(workspace: str, wanted: Any) -> Any:
            queries.append(wanted)
            (words if wanted.code is None else vectors).set()
            if wanted.code is None:
                waited.append(vectors.wait(20))
            return await retrieve(workspace, wanted)

        monkeypatch.setattr(retriever, "retrieve", recording)
        assert contents(other.memory.recall(sentences[3], limit=1)) == [sentences[3]]
        assert waited == [True]
        assert [one.code is None for one in queries] == [True, False], "a search was repeated"
        assert {one.unindexed_limit for one in queries} == {0}, "all memories have a vector"


@pytest.mark.promise("B2")
@pytest.mark.parametrize("kind", ["fact", "episode"])
def test_the_best_by_words_are_read_during_the_vector_search(
    dm: duramen.Duramen, postgres_url: str, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    sentences = fill(dm, 600, kind=kind)
    words, read = threading.Event(), threading.Event()
    expected = search(dm, sentences[3], 20)
    with open_with_candidates(postgres_url, embedder=WaitingEmbedder(words), clock=clock) as other:
        retriever: Any = retrieval_of(other, 20)._retriever
        retrieve, with_adjacent, waited, numbers = (
            retriever.retrieve,
            retriever.with_adjacent,
            list[bool](),
            list[set[int]](),
        )

        async def searching_by_vector(workspace: str, wanted: Any) -> Any:
            words.set()
            if wanted.code is not None:
                waited.append(read.wait(20))
            return await retrieve(workspace, wanted)

        async def reading(workspace: str, generation: int, some: Any) -> Any:
            numbers.append(set(some))
            read.set()
            return await with_adjacent(workspace, generation, some)

        monkeypatch.setattr(retriever, "retrieve", searching_by_vector)
        monkeypatch.setattr(retriever, "with_adjacent", reading)
        assert search(other, sentences[3], 20) == expected
        assert waited == [True]
        early, later = numbers
        assert early
        assert later
        assert not early & later


def corpus_stats(dm: duramen.Duramen) -> Any:
    """The statistics of the only audience that was searched."""
    ((_, stats),) = retrieval_of(dm, 20)._cached.values()
    assert stats is not None
    return stats


def test_damaged_entries_are_left_out_of_the_sample(dm: duramen.Duramen, postgres_url: str) -> None:
    sentences = fill(dm, 200)
    sql(postgres_url, "UPDATE duramen.index_entries SET words = '\\x00c1' WHERE number % 3 = 0")
    sql(postgres_url, "UPDATE duramen.index_entries SET vector = '\\x0000' WHERE number % 3 = 1")
    drawn = [one for (one,) in sql(postgres_url, "SELECT number FROM duramen.searchable WHERE draw < 128")]
    assert {number % 3 for number in drawn} == {0, 1, 2}
    with open_with_candidates(postgres_url) as other:
        assert contents(other.memory.recall(sentences[3], limit=1)) == [sentences[3]]
        held = corpus_stats(other).sample
    assert set(held.column("number").tolist()) == {number for number in drawn if number % 3}
    assert set(held.column("number")[held.column("has_vector")].tolist()) == {
        number for number in drawn if number % 3 == 2
    }


@pytest.mark.promise("S3")
def test_the_sample_estimates_the_share_that_passes_filters(
    dm: duramen.Duramen, clock: FakeClock, postgres_url: str
) -> None:
    fill(dm, 100)
    begins, ends = clock.now() + 100 * SECOND, clock.now() + 200 * SECOND
    for number in range(100):
        dm.memory.remember(f"heron {number}", valid_from=datetime_at(begins), valid_to=datetime_at(ends))
    fill(dm, 100, seed=2, kind="episode")
    dm.memory.recall("heron")
    query = "SELECT count(*), count(opens), count(session) FROM duramen.searchable WHERE draw < 128"
    ((drawn, future, episodes),) = sql(postgres_url, query)
    assert 0 < future < episodes + future < drawn
    stats, question = corpus_stats(dm), Question.parse("heron", day_of(clock.now()))
    for kinds, others in ((None, drawn - future), (frozenset(["episode"]), episodes)):
        for now, left in ((clock.now(), 0), (begins, future), (ends, 0)):
            search = ActiveSearch(SearchRequest("heron", (b"",), kinds=kinds), question, None, 1, now)
            counted = others + (left if kinds is None else 0)
            expected = 1 if counted == drawn else (counted + 0.5) / (drawn + 1)
            assert stats.filtered_share(search) == expected
    assert stats.episodes_per_session == 10
    assert stats.episode_share() == episodes / drawn


def test_a_busy_handle_searches_one_step_after_another(dm: duramen.Duramen, monkeypatch: pytest.MonkeyPatch) -> None:
    sentences = fill(dm, 60)
    embedder: Any = dm.memory._core._service.embedder
    slots, parallel_runs = embedder._idle_slots, list[int]()

    async def recording(*both: Any) -> Any:
        parallel_runs.append(1)
        return await run_alongside(*both)

    monkeypatch.setattr("duramen.memory.index.workspace_embedder.run_alongside", recording)
    taken = 0
    while slots.acquire(blocking=False):
        taken += 1
    assert contents(dm.memory.recall(sentences[3], limit=1)) == [sentences[3]]
    assert parallel_runs == []
    for _ in range(taken):
        slots.release()
    for _ in range(taken + 1):
        assert contents(dm.memory.recall(sentences[4], limit=1)) == [sentences[4]]
    assert parallel_runs == [1] * (taken + 1)

    async def fails(*_: Any) -> Any:
        raise StoreUnavailable("no connection")

    monkeypatch.setattr(retrieval_of(dm, 20), "change_count", fails)
    for _ in range(taken):
        with pytest.raises(StoreUnavailable):
            dm.memory.recall(sentences[3])
    assert slots.acquire(blocking=False), "a failed search did not release its slot"


def test_two_results_are_joined_in_the_order_of_one(dm: duramen.Duramen) -> None:
    fill(dm, 60, kind="episode")
    source = retrieval_of(dm, 20)
    every = drive(source.with_adjacent(1, set(range(200))))
    numbers = [change.row.number for change in every]
    assert len(numbers) == 60
    some, others = (drive(source.with_adjacent(1, set(numbers[first::4]))) for first in (0, 2))
    assert {one.row.number for one in some} & {one.row.number for one in others}, "the results share no adjacent memory"
    assert retrieval._joined(others, some) == retrieval._joined(some, others) == every


# -- removed memories


@pytest.mark.promise("G3", "S9")
def test_removed_memories_are_no_candidates(
    dm: duramen.Duramen, postgres_url: str, selections: RecordedSelections
) -> None:
    sentences = fill(dm, 60)
    dm.memory.remember("the pass is heron", key="pass")
    dm.memory.remember("the heron sleeps", subject="Ada")
    forgotten = dm.memory.remember("a heron to forget")
    dm.memory.catch_up()
    assert len(contents(dm.memory.recall("heron", subject="Ada", limit=3))) == 3
    dm.memory.remember("the pass is egret", key="pass")
    dm.memory.forget(forgotten.id)
    dm.memory.catch_up()
    dm.erase("Ada")
    assert not [one for one in contents(dm.memory.recall("heron", everyone=True, limit=80)) if "heron" in one]
    assert selections.numbers
    assert sql(postgres_url, "SELECT count(*) FROM duramen.searchable") == [(len(sentences) + 1,)]
    assert dm.verify().ok


@pytest.mark.promise("G3")
def test_a_memory_forgotten_during_a_search_is_not_returned(
    dm: duramen.Duramen, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences = fill(dm, 60)
    first = dm.memory.recall(sentences[5]).hits[0].memory
    retriever: Any = retrieval_of(dm, 20)._retriever
    for place in ("with_adjacent", "retrieve"):
        one = dm.memory.recall(sentences[5]).hits[0].memory
        do = getattr(retriever, place)

        async def between(*arguments: Any, do: Any = do, id: str = one.id) -> Any:
            result = await do(*arguments)
            with suppress(UnknownMemory):  # words and vectors are searched separately, so it may be forgotten already
                await dm.memory._core.forget(id)
            return result

        monkeypatch.setattr(retriever, place, between)
        hits = contents(dm.memory.recall(one.content))
        monkeypatch.undo()
        assert len(hits) == 10
        assert one.content not in hits
    assert first.content == sentences[5]


@pytest.mark.promise("G4")
def test_a_search_finds_no_candidates_of_another_workspace(postgres_url: str) -> None:
    with (
        open_with_candidates(postgres_url, workspace="a") as one,
        open_with_candidates(postgres_url, workspace="b") as two,
    ):
        mine, theirs = fill(one, 60, seed=1), fill(two, 60, seed=2)
        assert set(contents(one.memory.recall(theirs[3], everyone=True, limit=200))) == set(mine)
        assert set(contents(two.memory.recall(theirs[3], everyone=True, limit=200))) == set(theirs)


def test_a_changed_end_of_validity_changes_the_search(
    dm: duramen.Duramen, clock: FakeClock, selections: RecordedSelections
) -> None:
    fill(dm, 60)
    dm.memory.remember("the heron is here", key="bird")
    dm.memory.catch_up()
    dm.memory.remember("the heron is gone", key="bird", valid_from=datetime_at(clock.now() + 100 * SECOND))
    dm.memory.catch_up()
    assert contents(dm.memory.recall("heron", limit=1)) == ["the heron is here"]
    clock.advance(200)
    assert contents(dm.memory.recall("heron", limit=1)) == ["the heron is gone"]
    assert selections.all[-1] is not None
    assert dm.verify().ok


# -- generations and sealed memories


@pytest.mark.promise("S6")
def test_after_a_reindex_the_new_vectors_are_searched(dm: duramen.Duramen, postgres_url: str) -> None:
    sentences = fill(dm, 60)
    with open_with_candidates(postgres_url, embedder=ThemeEmbedder("other", 300)) as moved:
        list(moved.memory.reindex())
        recording = RecordedSelections(moved, pytest.MonkeyPatch())
        assert contents(moved.memory.recall(sentences[9], limit=1)) == [sentences[9]]
        assert len(recording.numbers) == 60
        assert moved.verify().ok
    left = sql(postgres_url, "SELECT DISTINCT generation, length(code) FROM duramen.searchable")
    assert left == [(2, code_bits(300))]


@pytest.mark.promise("G3", "S3")
def test_sealed_memories_are_found_and_leave_no_plain_words(postgres_url: str) -> None:
    with open_with_candidates(postgres_url) as dm:
        sentences = fill(dm, 60, seed=1)
    with open_with_candidates(postgres_url, key=b"k" * 32) as dm:
        sealed = fill(dm, 60, seed=2)
        recalled = set(contents(dm.memory.recall(sealed[0], limit=200)))
        assert recalled == {*sentences, *sealed}
        assert dm.verify().ok
    rows = sql(postgres_url, "SELECT terms, code, metadata, length, draw FROM duramen.searchable WHERE hidden")
    assert len(rows) == 60
    assert {tuple(map(str, row[:4])) for row in rows} == {("[]", "None", "None", "0")}
    assert sql(postgres_url, "SELECT count(*) FROM duramen.searchable WHERE NOT hidden") == [(60,)]


# -- missing and damaged search rows


def remove_search_rows(address: str) -> None:
    """Make a store as it was before PostgreSQL had search rows."""
    sql(address, "DELETE FROM duramen.searchable")
    sql(address, "DELETE FROM duramen.searched")


@pytest.mark.promise("S7", "R9")
def test_a_store_without_search_rows_is_searched_in_memory_first(
    dm: duramen.Duramen, postgres_url: str, processes: ChildProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentences = fill(dm, 700)
    dm.close()
    remove_search_rows(postgres_url)
    with open_with_candidates(postgres_url) as again:
        again.memory._core._service.index_worker.stop()
        recording = RecordedSelections(again, monkeypatch)
        assert contents(again.memory.recall(sentences[3], limit=1)) == [sentences[3]]
        assert recording.all == [None]
        child = processes.start("retrieval_corpus:make_searchable", crash=("memory.readying", 2), address=postgres_url)
        assert child.wait() == -signal.SIGKILL, child.errors()
        assert sql(postgres_url, "SELECT count(*) FROM duramen.searchable") == [(500,)]
        assert contents(again.memory.recall(sentences[3], limit=1)) == [sentences[3]]
        children = [processes.start("retrieval_corpus:make_searchable", address=postgres_url) for _ in range(2)]
        for one in children:
            one.finish()
        assert contents(again.memory.recall(sentences[3], limit=1)) == [sentences[3]]
        assert recording.all[-1] is not None
        assert again.verify().ok
    assert sql(postgres_url, "SELECT count(*), count(DISTINCT number) FROM duramen.searchable") == [(700, 700)]


@pytest.mark.promise("J8")
@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("DELETE FROM duramen.searchable WHERE number % 30 = 0", "has no search row"),
        ("UPDATE duramen.searchable SET number = number + 500", "belongs to no current memory"),
        ("UPDATE duramen.searchable SET kind = 'other'", "contradicts"),
        ("UPDATE duramen.searchable SET code = ~ code", "does not match its checksum"),
        ("UPDATE duramen.searchable SET terms = terms[2:]", "does not match its checksum"),
    ],
)
def test_verify_reports_damaged_search_rows(dm: duramen.Duramen, postgres_url: str, damage: str, problem: str) -> None:
    fill(dm, 60)
    assert dm.verify().ok
    sql(postgres_url, damage)
    assert any(problem in line for line in map(str, dm.verify().problems))


# -- the vector index


@pytest.fixture
def small_limit_for_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat a store with more than 50 memories as large."""
    monkeypatch.setattr(vector_index, "LARGE", 50)
    monkeypatch.setattr(retrieval_sql, "SCANNED", 50)
    monkeypatch.setattr(retrieval_sql, "ALL_SCANNED", 60)


def maintain_indexes(dm: duramen.Duramen) -> None:
    """Maintain the vector indexes now. Waits for maintenance that runs in the background."""
    service: Any = dm.memory._core._service
    service.index_worker.stop()
    thread = service.index_worker._maintenance
    if thread is not None:
        thread.join()
    service.index_worker._maintain_now(retrieval_of(dm, 20)._retriever)


def indexes(address: str) -> list[Any]:
    rows = sql(
        address,
        "SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
        " WHERE c.relname LIKE 'near%' ORDER BY 1",
    )
    return [(name.rsplit("_", 1)[1], valid) for name, valid in rows]


@pytest.mark.promise("B2")
@pytest.mark.usefixtures("small_limit_for_large")
def test_a_large_store_is_searched_with_a_vector_index(
    dm: duramen.Duramen, postgres_url: str, selections: RecordedSelections
) -> None:
    sentences = fill(dm, 400)
    assert contents(dm.memory.recall(sentences[3], limit=1)) == [sentences[3]]
    assert selections.all == [None], "without an index the search runs in memory"
    maintain_indexes(dm)
    assert indexes(postgres_url) == [("1", True)]
    retrieval_of(dm, 20)._retriever._indexed.clear()  # type: ignore[attr-defined]
    assert sql(postgres_url, SCANS) == [(0,)]
    with open_with_candidates(postgres_url) as other:
        assert contents(other.memory.recall(sentences[7], limit=1)) == [sentences[7]]
    until(lambda: sql(postgres_url, SCANS) > [(0,)], "an index scan")
    for question in sentences[:5]:
        assert contents(dm.memory.recall(question, limit=1)) == [question]
        assert contents(dm.memory.recall(question, limit=1, kinds="fact", everyone=True)) == [question]
    assert contents(dm.memory.recall(sentences[0], kinds="unknown")) == []
    assert all(selection is not None for selection in selections.all[1:])
    sql(postgres_url, f"UPDATE pg_index SET indisvalid = false WHERE indexrelid IN ({NEAR})")
    maintain_indexes(dm)
    assert indexes(postgres_url) == [("1", True)], "an invalid index was not replaced"
    with open_with_candidates(postgres_url, embedder=ThemeEmbedder("other")) as moved:
        list(moved.memory.reindex())
        assert indexes(postgres_url) == [("1", True), ("2", True)], "the new index did not exist before the switch"
        maintain_indexes(moved)
        assert indexes(postgres_url) == [("2", True)]


NEAR = "SELECT oid FROM pg_class WHERE relname LIKE 'near%'"
SCANS = "SELECT coalesce(sum(idx_scan), 0)::int FROM pg_stat_user_indexes WHERE indexrelname LIKE 'near%'"


@pytest.mark.promise("R9")
@pytest.mark.usefixtures("small_limit_for_large")
def test_everything_is_found_without_the_right_to_create_an_index(dm: duramen.Duramen, postgres_url: str) -> None:
    sentences = fill(dm, 400)
    name = postgres_url.rsplit("/", 1)[1]
    for grant in (
        f'CREATE ROLE "{name}" LOGIN',
        f'GRANT USAGE ON SCHEMA duramen TO "{name}"',
        f'GRANT ALL ON ALL TABLES IN SCHEMA duramen TO "{name}"',
        f'GRANT ALL ON ALL SEQUENCES IN SCHEMA duramen TO "{name}"',
    ):
        sql(postgres_url, grant)
    with open_with_candidates(postgres_url.replace("postgres@", f"{name}@")) as bound:
        maintain_indexes(bound)
        store: Any = bound.memory._core._service.journal.store
        assert "owner" in store._vector_index.refused or "permission" in store._vector_index.refused
        assert contents(bound.memory.recall(sentences[3], limit=1)) == [sentences[3]]
    assert indexes(postgres_url) == []
