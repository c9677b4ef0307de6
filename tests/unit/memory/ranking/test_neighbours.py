"""Neighbours of a name: relations and mentions in visible memories, with sources, up to date after every change."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

import duramen
from duramen import Relation, errors
from duramen.api._async.duramen import AsyncDuramen
from duramen.testing.both_apis import Opener, both_apis


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def opener(any_address: str, is_async: bool) -> Opener:
    return Opener(any_address, is_async)


def triples(relations: list[Relation]) -> list[tuple[str, str, str]]:
    return [(one.subject, one.relation, one.object) for one in relations]


async def neighbours_of(handle: AsyncDuramen, name: str, **options: object) -> list[tuple[str, str, str]]:
    return triples(await handle.memory.neighbours(name, **options))  # type: ignore[arg-type]


class TestNeighbours:
    @pytest.mark.promise("S9", "S10")
    @both_apis
    async def test_relations_and_mentions_are_newest_first_with_sources(self, open: Opener) -> None:
        handle = await open(embedder="none")
        first = await handle.memory.remember("Alice lives in Paris and works at Acme.")
        open.clock.advance(60)
        second = await handle.session("talk").remember("Bob is married to Alice.", subject="bob", scope="workspace")
        open.clock.advance(60)
        third = await handle.memory.remember("Alice met Carol in Rome on 3 May 2023.")
        relations = await handle.memory.neighbours("Alice")
        assert triples(relations) == [
            ("Alice", "met", "Carol"),
            ("Alice", "with", "Rome"),
            ("Bob", "married to", "Alice"),
            ("Alice", "lives in", "Paris"),
            ("Alice", "works for", "Acme"),
        ]
        assert [one.memory.id for one in relations] == [third.id, third.id, second.id, first.id, first.id]
        day = dt.date(2023, 5, 3)
        assert [one.dates for one in relations] == [((day, day),), ((day, day),), (), (), ()]
        for one in relations:  # the source is the event that stored the memory
            session, _, position = one.memory.source.rpartition("#")
            (event,) = [
                event async for event in handle.session(session).events(start=int(position), stop=int(position))
            ]
            assert event.type == "memory.added"
            assert event.data["content"] == one.memory.content
            assert one.object in event.data["content"]
        assert second.source == "talk#1"
        assert await neighbours_of(handle, "alice", limit=2) == triples(relations)[:2]
        assert await neighbours_of(handle, "Rome") == [("Rome", "with", "Alice"), ("Rome", "with", "Carol")]
        assert await neighbours_of(handle, "Ali") == await neighbours_of(handle, "Nobody Else") == []

    @pytest.mark.promise("S9")
    @both_apis
    async def test_only_visible_memories_count(self, open: Opener) -> None:
        handle = await open(embedder="none")
        await handle.memory.remember("Alice knows Bob.")
        await handle.memory.remember("Alice is allergic to peanuts.", subject="alice")
        await handle.session("talk").remember("Alice owns a boat.", scope="session")
        for_all, about_alice, in_talk = (
            ("Alice", "knows", "Bob"),
            ("Alice", "allergic to", "peanuts"),
            ("Alice", "owns", "boat"),
        )
        assert set(await neighbours_of(handle, "Alice")) == {for_all}
        assert set(await neighbours_of(handle, "Alice", subject="alice")) == {for_all, about_alice}
        assert set(await neighbours_of(handle, "Alice", session="talk")) == {for_all, in_talk}
        assert set(await neighbours_of(handle, "Alice", everyone=True)) == {for_all, about_alice, in_talk}
        await handle.erase("alice")
        assert set(await neighbours_of(handle, "Alice", subject="alice", session="talk")) == {for_all, in_talk}
        assert set(await neighbours_of(handle, "Alice", everyone=True)) == {for_all, in_talk}

    @pytest.mark.promise("S9")
    @both_apis
    async def test_replaced_and_forgotten_memories_have_no_relations(self, open: Opener) -> None:
        handle = await open(embedder="none")
        await handle.memory.remember("Alice lives in Paris.", key="home")
        assert await neighbours_of(handle, "Paris") == [("Alice", "lives in", "Paris")]
        moved = await handle.memory.remember("Alice lives in Lyon.", key="home")
        assert await neighbours_of(handle, "Alice") == [("Alice", "lives in", "Lyon")]
        assert await neighbours_of(handle, "Paris") == []
        await handle.memory.remember("Alice visited Kyoto.", ttl=60)
        assert ("Alice", "visited", "Kyoto") in await neighbours_of(handle, "Alice")
        open.clock.advance(120)
        await handle.memory.forget(moved.id)
        assert await neighbours_of(handle, "Alice") == []

    @both_apis
    async def test_another_handle_returns_the_same(self, open: Opener) -> None:
        one = await open(embedder="none")
        two = one if open._address == "memory:" else await open(embedder="none")
        memory = await one.memory.remember("Alice knows Bob.")
        assert await neighbours_of(two, "Bob") == [("Alice", "knows", "Bob")]
        await one.memory.forget(memory.id)
        assert await neighbours_of(two, "Bob") == []


class TestOneStore:
    """What does not depend on the store."""

    @pytest.fixture
    def dm(self, tmp_path: Path) -> duramen.Duramen:
        return duramen.open(str(tmp_path / "agent.db"), embedder="none")

    def test_a_repeated_relation_is_returned_once_with_its_newest_source(self, dm: duramen.Duramen) -> None:
        with dm:
            for number in range(5):
                newest = dm.memory.remember(f"Alice knows Bob. That is note {number}.")
            (relation,) = dm.memory.neighbours("Alice")
            assert (relation.object, relation.memory.source) == ("Bob", newest.source)

    def test_a_speaker_is_found_by_parts_of_the_name(self, dm: duramen.Duramen) -> None:
        with dm:
            dm.memory.remember("I work for Acme.", kind="episode", speaker="Maria Lopez")
            dm.memory.remember("My boss likes Rome.", kind="episode", speaker="user")
            assert triples(dm.memory.neighbours("Maria")) == [("Maria Lopez", "works for", "Acme")]
            assert triples(dm.memory.neighbours("Lopez")) == [("Maria Lopez", "works for", "Acme")]
            assert triples(dm.memory.neighbours("Lopez Maria")) == []
            assert triples(dm.memory.neighbours("Rome")) == []

    def test_only_the_newest_mentions_of_a_frequent_name_are_read(
        self, dm: duramen.Duramen, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("duramen.memory.ranking.neighbours._PAGE", 10)
        monkeypatch.setattr("duramen.memory.ranking.neighbours._MOST", 30)
        with dm:
            for number in range(50):
                dm.memory.remember(f"Alice visited Town{number}.")
            assert [one.object for one in dm.memory.neighbours("Alice", limit=3)] == ["Town49", "Town48", "Town47"]
            assert len(dm.memory.neighbours("Alice", limit=100)) == 30

    def test_bad_input_is_refused(self, dm: duramen.Duramen) -> None:
        with dm:
            for wrong in ({"name": " "}, {"name": 3}, {"name": "Ada", "limit": 0}, {"name": "Ada", "kinds": "fact"}):
                with pytest.raises(errors.InvalidInput):
                    dm.memory.neighbours(**wrong)  # type: ignore[arg-type]
            dm.memory.remember("Alice knows Bob.")
            assert dm.memory.neighbours("!?") == dm.memory.neighbours("Ada") == []
