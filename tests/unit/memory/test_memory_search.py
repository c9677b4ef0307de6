"""Search ranks by words, meaning and time, filters, explains its hits, and reports what was missing."""

from __future__ import annotations

import datetime as dt
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from programs.child_processes import until
from programs.counting_embedder import CountingEmbedder
from programs.memory_handles import DIMS, contents, open_memory, vectors_of

import duramen
from duramen.embedders import CallableEmbedder, InstalledModel
from duramen.errors import EmbedderFailed, EmbedderMismatch, InvalidInput, StoreBusy
from duramen.testing.clock import FakeClock

START = dt.datetime.fromtimestamp(1_700_000_000, dt.UTC)
DAY = 86_400


@pytest.fixture
def handle(any_address: str, clock: FakeClock) -> Iterator[duramen.Duramen]:
    with open_memory(any_address, clock=clock) as dm:
        yield dm


@pytest.fixture
def in_memory(clock: FakeClock) -> Iterator[duramen.Duramen]:
    with open_memory("memory:", clock=clock) as dm:
        yield dm


# -- results

FACTS = [
    "Ada prefers an aisle seat on long flights",
    "The staging server runs Debian 12",
    "Bob's daughter plays the violin in a youth orchestra",
    "Invoices are paid on the last working day of the month",
    "The office kitchen has a new espresso machine",
    "Our build broke because the certificate had expired",
    "Maria moved from Lisbon to Toronto for her studies",
    "The wifi password is on the back of the router",
]
PARAPHRASES = {
    "Where does she like to sit on a plane?": 0,
    "Which operating system is installed on the test machine?": 1,
    "Whose child makes classical music?": 2,
    "When do we settle bills?": 3,
    "Where can I get a coffee?": 4,
    "Why did the pipeline fail?": 5,
    "Who emigrated to Canada?": 6,
    "How do I get onto the wireless network?": 7,
}


@pytest.mark.promise("S1", "S7")
def test_a_paraphrase_finds_the_fact_in_another_session(
    tmp_path: Path, installed: InstalledModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*_: Any, **__: Any) -> Any:
        raise AssertionError("a network connection was opened")

    monkeypatch.setattr(socket.socket, "connect", offline)
    monkeypatch.delenv("DURAMEN_EMBEDDER", raising=False)
    path = tmp_path / "agent.db"
    with duramen.open(path) as dm:
        for number, fact in enumerate(FACTS):
            dm.session(f"session {number}").remember(fact)
        dm.memory.catch_up()
    with duramen.open(path) as dm:
        results = {query: contents(dm.memory.recall(query, limit=2)) for query in PARAPHRASES}
        assert dm.memory.waiting() == 0
        first = sum(hits[0] == FACTS[PARAPHRASES[query]] for query, hits in results.items())
        assert all(FACTS[PARAPHRASES[query]] in hits for query, hits in results.items()), results
        assert first >= 7
        text = dm.session("session 47").recall("Where does she like to sit on a plane?").text
        assert FACTS[0] in text


@pytest.mark.promise("S2")
def test_one_query_finds_names_paraphrases_and_times(handle: duramen.Duramen, clock: FakeClock) -> None:
    handle.memory.remember("Invoice RX-4711 was paid")
    handle.memory.remember("The hound sleeps in the kitchen")
    handle.memory.remember("The walk went along the river", kind="episode")
    clock.advance(5 * DAY)
    for number in range(20):
        handle.memory.remember(f"filler text number {number} about nothing")
    clock.advance(5 * DAY)
    handle.memory.remember("The walk went up the hill", kind="episode")
    clock.advance(DAY)
    handle.memory.catch_up()
    for query, expected in (
        ("RX-4711", "Invoice RX-4711 was paid"),
        ("Where is the dog?", "The hound sleeps in the kitchen"),
        ("Where did the walk go yesterday?", "The walk went up the hill"),
        ("Where did the walk go 11 days ago?", "The walk went along the river"),
    ):
        assert contents(handle.memory.recall(query, limit=1)) == [expected]
    together = contents(handle.memory.recall("RX-4711 and the dog, and the walk yesterday", limit=4))
    assert {"Invoice RX-4711 was paid", "The hound sleeps in the kitchen", "The walk went up the hill"} <= set(together)


@pytest.mark.promise("S3")
def test_hits_are_sorted_limited_and_explained(handle: duramen.Duramen) -> None:
    for number in range(30):
        handle.memory.remember("tea " * (number % 5 + 1) + f"and cake {number}", importance=number / 30)
    handle.memory.catch_up()
    hits = handle.memory.recall("tea and cake", limit=100)
    assert len(hits) == 30
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    for hit in hits:
        assert sum(hit.parts.values()) == pytest.approx(hit.score, abs=1e-4)
        assert 0 <= hit.likeness <= 1
    assert {"words", "meaning", "importance"} <= set(hits.hits[0].parts)
    assert contents(handle.memory.recall("tea and cake")) == contents(hits)[:10]
    assert contents(handle.memory.recall("tea and cake", limit=1)) == contents(hits)[:1]


@pytest.mark.promise("S3")
def test_no_hit_is_below_the_threshold(handle: duramen.Duramen) -> None:
    for text in ("a brown dog", "a brown cat", "rain tomorrow", "a hound"):
        handle.memory.remember(text, fresh=True)
    hits = handle.memory.recall("brown dog", limit=10)
    assert len(hits) == 4
    for threshold in (0.1, 0.4, 0.9, 1.0):
        above = handle.memory.recall("brown dog", threshold=threshold)
        assert set(contents(above)) == {hit.memory.content for hit in hits if hit.likeness >= threshold}
    assert list(handle.memory.recall("quantum chromodynamics", threshold=0.5)) == []


@pytest.mark.promise("S3")
def test_filters_apply_before_the_limit(handle: duramen.Duramen, clock: FakeClock) -> None:
    for number in range(40):
        handle.memory.remember(
            f"tea number {number}",
            kind="preference" if number == 33 else "fact",
            metadata={"n": number, "odd": bool(number % 2)} if number != 5 else None,
            valid_from=START - dt.timedelta(days=100 - number),
        )
    handle.memory.catch_up()

    def numbers(**options: Any) -> set[int]:
        return {int(text.rpartition(" ")[2]) for text in contents(handle.memory.recall("tea number 3", **options))}

    def day(number: int) -> dt.datetime:
        return START - dt.timedelta(days=100 - number)

    assert numbers(limit=1, kinds="preference") == numbers(limit=1, kinds=["preference", "none"]) == {33}
    assert numbers(limit=1, metadata={"n": 17}) == {17}
    assert numbers(limit=50, metadata={"odd": True}) == {n for n in range(40) if n % 2 and n != 5}
    assert numbers(metadata={"n": 17, "odd": False}) == numbers(metadata={"m": 1}) == numbers(kinds=[]) == set()
    assert numbers(limit=50, since=day(38)) == {38, 39}
    assert numbers(limit=50, until=day(1)) == {0, 1}
    assert numbers(limit=50, since=day(10), until=day(12), metadata={"odd": False}) == {10, 12}
    assert len(numbers(limit=50, metadata={})) == 40


@pytest.mark.promise("E4")
def test_newer_memories_rank_higher_among_equals(handle: duramen.Duramen, clock: FakeClock) -> None:
    for days in (400, 30, 90, 0):
        handle.memory.remember("Prefers tea", kind=f"k{days}", valid_from=START - dt.timedelta(days=days))
    handle.memory.catch_up()
    result = handle.memory.recall("tea")
    assert [hit.memory.kind for hit in result] == ["k0", "k30", "k90", "k400"]
    newest, *_, oldest = (hit.parts["recency"] for hit in result)
    assert newest == pytest.approx(0.05)
    assert 0 < oldest < newest / 2


@pytest.mark.promise("E4")
def test_the_half_life_of_recency_is_a_setting(in_memory: duramen.Duramen, clock: FakeClock) -> None:
    for days in (0, 10):
        in_memory.memory.remember("Prefers tea", kind=f"k{days}", valid_from=START - dt.timedelta(days=days))

    def remaining(**setting: Any) -> float:
        new, old = (hit.parts["recency"] for hit in in_memory.memory.recall("tea", **setting))
        return old / new

    assert remaining(half_life=dt.timedelta(days=10)) == pytest.approx(0.5, abs=0.01)
    assert remaining(half_life=5 * DAY) == pytest.approx(0.25, abs=0.01)
    assert remaining(half_life=None) == remaining() > 0.9
    for wrong in (0, -1, float("nan"), float("inf"), True, "90", dt.timedelta(0), 10**12):
        with pytest.raises(InvalidInput, match="half_life"):
            in_memory.memory.recall("tea", half_life=wrong)  # type: ignore[arg-type]


@pytest.mark.promise("S11")
def test_a_memory_counts_its_recalls(handle: duramen.Duramen, clock: FakeClock) -> None:
    one, other = handle.memory.remember("Prefers tea"), handle.memory.remember("Owns a boat")
    assert (one.recalled, one.recalled_at) == (0, None)
    for _ in range(2):
        clock.advance(60)
        handle.memory.recall("tea", limit=1)
    last = dt.datetime.fromtimestamp(clock.now() / 1e6, dt.UTC)
    clock.advance(60)
    recalls = {memory.id: (memory.recalled, memory.recalled_at) for memory in handle.memory.list()}
    assert recalls == {one.id: (2, last), other.id: (0, None)}
    assert handle.memory.get(one.id).recalled == 2
    handle.memory.recall("tea", limit=1)
    assert handle.memory.get(one.id).recalled == 3
    handle.memory.forget(one.id)
    assert handle.memory.remember("Prefers tea").recalled == 0


@pytest.mark.promise("S11")
def test_recalls_are_not_lost_while_the_store_is_busy(tmp_path: Path) -> None:
    path = tmp_path / "agent.db"
    with open_memory(str(path), embedder="none", timeout=0.05) as dm, closing(apsw.Connection(str(path))) as other:
        tea = dm.memory.remember("Prefers tea")
        dm.memory.recall("tea")
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreBusy):
            dm.memory.get(tea.id)
        dm.memory.recall("tea")
        other.execute("ROLLBACK")
        assert dm.memory.get(tea.id).recalled == 2


@pytest.mark.promise("S11")
def test_recalled_memories_rank_higher_among_equals(tmp_path: Path, clock: FakeClock) -> None:
    path = str(tmp_path / "agent.db")
    with open_memory(path, clock=clock, embedder="none") as dm:
        for name in ("one", "two", "three"):
            dm.memory.remember(f"Tea, says {name}")
        for _ in range(3):
            assert contents(dm.memory.recall("one", limit=1)) == ["Tea, says one"]
        result = dm.memory.recall("tea", limit=1)
        assert (contents(result), result.hits[0].parts["access"] > 0) == (["Tea, says one"], True), "at once"
    with open_memory(path, clock=clock, embedder="none") as dm:
        result = dm.memory.recall("tea")
        assert contents(result)[0] == "Tea, says one"
        assert result.hits[0].parts["access"] > 0
        assert all("access" not in hit.parts for hit in result.hits[1:])


def test_diversity_avoids_similar_hits(in_memory: duramen.Duramen) -> None:
    for text in ("a cup of tea", "of tea a cup", "tea, a cup of", "tea from ships", *(f"filler {n}" for n in range(9))):
        in_memory.memory.remember(text)
    in_memory.memory.catch_up()
    diverse = contents(in_memory.memory.recall("cup of tea", limit=2, diversity=1.0))
    plain = contents(in_memory.memory.recall("cup of tea", limit=2))
    assert plain[0] == diverse[0]
    assert "tea from ships" not in plain
    assert diverse[1] == "tea from ships"


@pytest.mark.parametrize("count", [0, 1, 2])
def test_a_few_memories_are_all_found(handle: duramen.Duramen, count: int) -> None:
    for number in range(count):
        handle.memory.remember(f"tea {number}")
    for query in ("tea", "???", "the", "\0"):
        assert len(handle.memory.recall(query)) == count
    assert len(handle.memory.recall("tea", threshold=0.5)) == count


# -- vectors


def recording_embedder(name: str = "test") -> tuple[CallableEmbedder, list[str]]:
    embedded: list[str] = []

    def embed(texts: list[str]) -> Any:
        embedded.extend(texts)
        return vectors_of(texts)

    return CallableEmbedder(embed, name=name, dims=DIMS), embedded


@pytest.mark.promise("S7")
def test_a_restart_embeds_nothing(any_address: str) -> None:
    if any_address == "memory:":
        return
    first, embedded = recording_embedder()
    with open_memory(any_address, embedder=first) as dm:
        for number in range(70):
            dm.memory.remember(f"fact {number}", subject="ada" if number % 2 else None)
        dm.memory.remember("fact 0")
        dm.memory.catch_up()
    assert set(embedded) == {f"fact {number}" for number in range(70)}
    again, embedded_again = recording_embedder()
    with open_memory(any_address, embedder=again) as dm:
        assert dm.memory.waiting() == 0
        dm.memory.catch_up()
        assert embedded_again == []
        assert len(dm.memory.recall("fact", subject="ada", limit=100)) == 70
        assert embedded_again == ["fact"]


@pytest.mark.promise("S6")
def test_another_embedder_is_refused(any_address: str) -> None:
    if any_address == "memory:":
        return
    with open_memory(any_address) as dm:
        dm.memory.remember("fact", fresh=True)
    for other in (CountingEmbedder("other"), CallableEmbedder(vectors_of, name="test", dims=DIMS, checksum="2")):
        with open_memory(any_address, embedder=other) as dm:
            with pytest.raises(EmbedderMismatch, match="test") as refused:
                dm.memory.recall("fact")
            assert "reindex" in refused.value.hint
            dm.memory.remember("still remembered")
    with open_memory(any_address) as dm:
        dm.memory.catch_up()
        assert len(dm.memory.recall("fact")) == 2


def test_a_memory_is_found_before_its_vector_is_made(any_address: str) -> None:
    proceed = threading.Event()

    def slow(texts: list[str]) -> Any:
        if texts != ["dog"]:
            assert proceed.wait(30)
        return vectors_of(texts)

    with open_memory(any_address, embedder=CallableEmbedder(slow, name="slow", dims=DIMS)) as dm:
        dm.memory.remember("a hound barks")
        dm.memory.remember("a dog barks")
        result = dm.memory.recall("dog")
        assert contents(result)[0] == "a dog barks"
        assert result.waiting == 2
        proceed.set()
        until(lambda: dm.memory.waiting() == 0, "the vectors")
        result = dm.memory.recall("dog")
        assert (result.waiting, len(dm.memory.recall("dog", threshold=0.4))) == (0, 2)


@pytest.mark.promise("R9")
def test_recall_works_while_the_embedder_fails(any_address: str) -> None:
    down = threading.Event()

    def flaky(texts: list[str]) -> Any:
        if down.is_set():
            raise OSError("connection refused")
        return vectors_of(texts)

    with open_memory(any_address, embedder=CallableEmbedder(flaky, name="flaky", dims=DIMS)) as dm:
        dm.memory.remember("a hound barks", fresh=True)
        assert dm.memory.recall("dog").missing == ()
        down.set()
        dm.memory.remember("a dog barks")
        result = dm.memory.recall("dog")
        assert contents(result)[0] == "a dog barks"
        assert result.waiting == 1
        (missing,) = result.missing
        assert missing.startswith("meaning: ")
        assert "connection refused" in missing
        with pytest.raises(EmbedderFailed):
            dm.memory.catch_up()
        with pytest.raises(EmbedderFailed) as failed:
            dm.memory.remember("a cat mews", fresh=True)
        assert "is stored" in "".join(failed.value.__notes__)
        down.clear()
        dm.memory.catch_up()
        result = dm.memory.recall("dog", threshold=0.4)
        assert (sorted(contents(result)), result.waiting, result.missing) == (["a dog barks", "a hound barks"], 0, ())
        assert contents(dm.memory.recall("mews", threshold=0.4)) == ["a cat mews"]


@pytest.mark.promise("R9")
@pytest.mark.parametrize("embedder", ["none", None])
def test_recall_without_an_embedder_reports_that_meaning_is_missing(embedder: str | None) -> None:
    with open_memory("memory:", embedder=embedder) as dm:
        dm.memory.remember("a dog barks")
        result = dm.memory.recall("dog")
        assert contents(result) == ["a dog barks"]
        assert result.waiting == 0
        assert [one.partition(":")[0] for one in result.missing] == ["meaning"]
        assert "(Searched without meaning" in dm.session("s").recall("dog").text


@pytest.mark.promise("R9")
def test_a_text_that_the_embedder_refuses_does_not_block_others(any_address: str) -> None:
    def picky(texts: list[str]) -> Any:
        if any("too long" in text for text in texts):
            raise ValueError("this is too long")
        return vectors_of(texts)

    with open_memory(any_address, embedder=CallableEmbedder(picky, name="picky", dims=DIMS)) as dm:
        for number in range(40):
            dm.memory.remember(f"too long {number}" if number < 3 else f"fact {number}")
        dm.memory.catch_up()
        assert dm.memory.waiting() == 3
        assert len(dm.memory.recall("fact number too long", limit=50)) == 40
        assert len(dm.memory.recall("fact", threshold=0.5, limit=50)) == 37


def test_a_readonly_handle_recalls_without_writing(tmp_path: Path) -> None:
    path = str(tmp_path / "agent.db")
    with open_memory(path, embedder="none") as dm:
        dm.memory.remember("a dog barks")
    with open_memory(path, readonly=True) as dm:
        assert contents(dm.memory.recall("dog")) == ["a dog barks"]
        assert contents(dm.memory.list()) == ["a dog barks"]
        with pytest.raises(duramen.errors.StoreReadOnly):
            dm.memory.remember("more")
