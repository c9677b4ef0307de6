"""Neighbours: relations and mentions from what may be seen, with their sources, right after every change."""

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


def said(found: list[Relation]) -> list[tuple[str, str, str]]:
    return [(one.subject, one.relation, one.object) for one in found]


async def told(handle: AsyncDuramen, name: str, **options: object) -> list[tuple[str, str, str]]:
    return said(await handle.memory.neighbours(name, **options))  # type: ignore[arg-type]


class TestNeighbours:
    @pytest.mark.promise("S9", "S10")
    @both_apis
    async def test_relations_and_mentions_newest_first_each_with_its_source(self, open: Opener) -> None:
        handle = await open(embedder="none")
        first = await handle.memory.remember("Alice lives in Paris and works at Acme.")
        open.clock.advance(60)
        second = await handle.session("talk").remember("Bob is married to Alice.", subject="bob", scope="workspace")
        open.clock.advance(60)
        third = await handle.memory.remember("Alice met Carol in Rome on 3 May 2023.")
        found = await handle.memory.neighbours("Alice")
        assert said(found) == [
            ("Alice", "met", "Carol"),
            ("Alice", "with", "Rome"),
            ("Bob", "married to", "Alice"),
            ("Alice", "lives in", "Paris"),
            ("Alice", "works for", "Acme"),
        ]
        assert [one.memory.id for one in found] == [third.id, third.id, second.id, first.id, first.id]
        day = dt.date(2023, 5, 3)
        assert [one.dates for one in found] == [((day, day),), ((day, day),), (), (), ()]
        for one in found:  # the source is the very event that said it
            session, _, position = one.memory.source.rpartition("#")
            (event,) = [
                event async for event in handle.session(session).events(start=int(position), stop=int(position))
            ]
            assert event.type == "memory.added"
            assert event.data["content"] == one.memory.content
            assert one.object in event.data["content"]
        assert second.source == "talk#1"
        assert await told(handle, "alice", limit=2) == said(found)[:2]
        assert await told(handle, "Rome") == [("Rome", "with", "Alice"), ("Rome", "with", "Carol")]
        assert await told(handle, "Ali") == await told(handle, "Nobody Else") == []

    @pytest.mark.promise("S9")
    @both_apis
    async def test_only_what_may_be_seen(self, open: Opener) -> None:
        handle = await open(embedder="none")
        await handle.memory.remember("Alice knows Bob.")
        await handle.memory.remember("Alice is allergic to peanuts.", subject="alice")
        await handle.session("talk").remember("Alice owns a boat.", scope="session")
        everybody, hers, talked = (
            ("Alice", "knows", "Bob"),
            ("Alice", "allergic to", "peanuts"),
            ("Alice", "owns", "boat"),
        )
        assert set(await told(handle, "Alice")) == {everybody}
        assert set(await told(handle, "Alice", subject="alice")) == {everybody, hers}
        assert set(await told(handle, "Alice", session="talk")) == {everybody, talked}
        assert set(await told(handle, "Alice", everyone=True)) == {everybody, hers, talked}
        await handle.erase("alice")
        assert set(await told(handle, "Alice", subject="alice", session="talk")) == {everybody, talked}
        assert set(await told(handle, "Alice", everyone=True)) == {everybody, talked}

    @pytest.mark.promise("S9")
    @both_apis
    async def test_what_was_replaced_or_forgotten_relates_to_nothing(self, open: Opener) -> None:
        handle = await open(embedder="none")
        await handle.memory.remember("Alice lives in Paris.", key="home")
        assert await told(handle, "Paris") == [("Alice", "lives in", "Paris")]
        moved = await handle.memory.remember("Alice lives in Lyon.", key="home")
        assert await told(handle, "Alice") == [("Alice", "lives in", "Lyon")]
        assert await told(handle, "Paris") == []
        await handle.memory.remember("Alice visited Kyoto.", ttl=60)
        assert ("Alice", "visited", "Kyoto") in await told(handle, "Alice")
        open.clock.advance(120)
        await handle.memory.forget(moved.id)
        assert await told(handle, "Alice") == []

    @both_apis
    async def test_another_process_sees_the_same(self, open: Opener) -> None:
        one = await open(embedder="none")
        two = one if open._address == "memory:" else await open(embedder="none")
        memory = await one.memory.remember("Alice knows Bob.")
        assert await told(two, "Bob") == [("Alice", "knows", "Bob")]
        await one.memory.forget(memory.id)
        assert await told(two, "Bob") == []


class TestOnAFile:
    """What no store can change, on one of them."""

    @pytest.fixture
    def dm(self, tmp_path: Path) -> duramen.Duramen:
        return duramen.open(str(tmp_path / "agent.db"), embedder="none")

    def test_the_same_is_told_once_with_its_newest_source(self, dm: duramen.Duramen) -> None:
        with dm:
            for number in range(5):
                newest = dm.memory.remember(f"Alice knows Bob. That is note {number}.")
            (found,) = dm.memory.neighbours("Alice")
            assert (found.object, found.memory.source) == ("Bob", newest.source)

    def test_speakers_and_parts_of_names(self, dm: duramen.Duramen) -> None:
        with dm:
            dm.memory.remember("I work for Acme.", kind="episode", speaker="Maria Lopez")
            dm.memory.remember("My boss likes Rome.", kind="episode", speaker="user")
            assert said(dm.memory.neighbours("Maria")) == [("Maria Lopez", "works for", "Acme")]
            assert said(dm.memory.neighbours("Lopez")) == [("Maria Lopez", "works for", "Acme")]
            assert said(dm.memory.neighbours("Lopez Maria")) == []
            assert said(dm.memory.neighbours("Rome")) == []

    def test_a_name_that_is_everywhere_is_read_only_as_far_as_needed(
        self, dm: duramen.Duramen, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("duramen.memory.ranking.neighbours._PAGE", 10)
        monkeypatch.setattr("duramen.memory.ranking.neighbours._MOST", 30)
        with dm:
            for number in range(50):
                dm.memory.remember(f"Alice visited Town{number}.")
            assert [one.object for one in dm.memory.neighbours("Alice", limit=3)] == ["Town49", "Town48", "Town47"]
            assert len(dm.memory.neighbours("Alice", limit=100)) == 30

    def test_what_makes_no_sense_is_refused(self, dm: duramen.Duramen) -> None:
        with dm:
            for wrong in ({"name": " "}, {"name": 3}, {"name": "Ada", "limit": 0}, {"name": "Ada", "kinds": "fact"}):
                with pytest.raises(errors.InvalidInput):
                    dm.memory.neighbours(**wrong)  # type: ignore[arg-type]
            dm.memory.remember("Alice knows Bob.")
            assert dm.memory.neighbours("!?") == dm.memory.neighbours("Ada") == []
