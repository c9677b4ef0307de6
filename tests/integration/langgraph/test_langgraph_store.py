"""LangGraph's long-term store: items, filters, ranking by words, namespaces and expiry."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from langgraph.config import get_store
from langgraph.graph import START, StateGraph
from langgraph.store.base import GetOp, InvalidNamespaceError, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from programs.graphs import Notes

import duramen
from duramen.errors import InvalidInput
from duramen.integrations.langgraph import DuramenStore
from duramen.testing.clock import FakeClock

ALICE, BOB = ("users", "alice"), ("users", "bob")


@pytest.fixture
def timed(any_address: str, clock: FakeClock) -> Iterator[duramen.Duramen]:
    """A handle with a fake clock."""
    with duramen.open(any_address, clock=clock) as dm:
        yield dm


@pytest.fixture
def store(timed: duramen.Duramen) -> DuramenStore:
    return DuramenStore(timed)


def keys(items: list[Any]) -> list[str]:
    return [item.key for item in items]


# -- items


@pytest.mark.promise("I2")
def test_items_can_be_stored_read_changed_and_deleted(store: DuramenStore, clock: FakeClock) -> None:
    store.put(ALICE, "food", {"likes": "tea", "nested": {"list": [1, 2.5, None, True]}})
    clock.advance(5)
    store.put(ALICE, "food", {"likes": "coffee"})
    item = store.get(ALICE, "food")
    assert item is not None
    assert (item.namespace, item.key, item.value) == (ALICE, "food", {"likes": "coffee"})
    assert (item.updated_at - item.created_at).total_seconds() == 5
    assert store.get(BOB, "food") is None
    store.delete(ALICE, "food")
    assert store.get(ALICE, "food") is None
    store.delete(ALICE, "food")


def test_items_are_durable(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "agent.db") as dm:
        DuramenStore(dm).put(ALICE, "food", {"likes": "tea"})
    with duramen.open(tmp_path / "agent.db") as dm:
        assert DuramenStore(dm).search(("users",))[0].value == {"likes": "tea"}


def test_replaced_and_deleted_items_leave_no_bytes_on_disk(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "agent.db") as dm:
        store = DuramenStore(dm)
        store.put(ALICE, "a", {"text": "one-secret-plan"})
        store.put(ALICE, "a", {"text": "another-secret-plan"})
        store.put(ALICE, "b", {"text": "the-open-plan"})
        store.delete(ALICE, "a")
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"the-open-plan" in files
    assert b"secret-plan" not in files


def test_a_batch_reads_before_it_writes_and_its_last_write_wins(store: DuramenStore) -> None:
    store.put(ALICE, "old", {"n": 0})
    ops = [
        PutOp(ALICE, "new", {"n": 1}),
        GetOp(ALICE, "new"),
        PutOp(ALICE, "new", {"n": 2}),
        SearchOp(ALICE),
        PutOp(ALICE, "old", None),
        GetOp(ALICE, "old"),
        ListNamespacesOp(),
    ]
    put, new, again, results, deleted, old, spaces = store.batch(ops)
    assert (put, new, again, deleted, spaces) == (None, None, None, None, [ALICE])
    assert keys(results) == ["old"]
    assert old.value == {"n": 0}
    assert [(item.key, item.value) for item in store.search(ALICE)] == [("new", {"n": 2})]


def test_async_methods_work_on_sync_and_async_handles(any_address: str) -> None:
    async def use_store(dm: Any) -> None:
        store = DuramenStore(dm)
        await store.aput(ALICE, "food", {"likes": "tea"})
        assert (await store.aget(ALICE, "food")).value == {"likes": "tea"}
        assert keys(await store.asearch(("users",), filter={"likes": "tea"})) == ["food"]
        assert await store.alist_namespaces(prefix=("users",)) == [ALICE]
        await store.adelete(ALICE, "food")
        assert await store.aget(ALICE, "food") is None
        assert await store.asweep_ttl() == 0

    async def use_both_handles() -> None:
        async with await duramen.aopen(any_address) as async_handle:
            await use_store(async_handle)
        with duramen.open(any_address) as sync_handle:
            await use_store(sync_handle)

    asyncio.run(use_both_handles())


def test_a_node_can_use_the_store_of_its_graph(dm: duramen.Duramen) -> None:
    def note(state: Any) -> Any:
        get_store().put(ALICE, "seen", {"times": 1})
        return {"notes": keys(get_store().search(("users",)))}

    builder = StateGraph(Notes)
    builder.add_node("note", note)
    builder.add_edge(START, "note")
    store = DuramenStore(dm)
    assert builder.compile(store=store).invoke({"notes": []})["notes"] == ["seen"]
    assert store.get(ALICE, "seen") is not None


# -- filters


PEOPLE = {
    "ann": {"age": 30, "name": "Ann", "tags": ["x", "y"], "home": {"city": "Rome", "zip": 1}},
    "ben": {"age": 40.5, "name": "Ben", "tags": ["x"], "home": {"city": "Oslo", "zip": 2}},
    "cat": {"name": "Cat", "home": None, "ok": True},
}


@pytest.mark.promise("I2")
@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({"name": "Ann"}, ["ann"]),
        ({"name": {"$eq": "Ben"}}, ["ben"]),
        ({"name": {"$ne": "Ben"}}, ["ann", "cat"]),
        ({"age": {"$gt": 30}}, ["ben"]),
        ({"age": {"$gte": 30}}, ["ann", "ben"]),
        ({"age": {"$lt": 40.5}}, ["ann"]),
        ({"age": {"$lte": 40.5}}, ["ann", "ben"]),
        ({"age": {"$gt": 20, "$lt": 35}}, ["ann"]),
        ({"name": {"$gt": "Ann"}}, ["ben", "cat"]),
        ({"name": {"$gt": 5}}, []),
        ({"age": None}, ["cat"]),
        ({"tags": ["x"]}, ["ben"]),
        ({"home": {"city": "Rome"}}, ["ann"]),
        ({"home": {"zip": {"$gte": 1}}}, ["ann", "ben"]),
        ({"ok": True, "name": "Cat"}, ["cat"]),
        ({"ok": True, "name": "Ann"}, []),
        ({}, ["ann", "ben", "cat"]),
    ],
)
def test_filters_compare_as_in_langgraphs_stores(store: DuramenStore, wanted: Any, expected: list[str]) -> None:
    for key, value in PEOPLE.items():
        store.put(("people",), key, value)
    assert sorted(keys(store.search(("people",), filter=wanted))) == expected


def test_an_unknown_operator_is_refused(store: DuramenStore) -> None:
    store.put(ALICE, "a", {"n": 1})
    with pytest.raises(InvalidInput, match=r"\$in"):
        store.search(ALICE, filter={"n": {"$in": [1]}})


LABELS = st.sampled_from(["a", "b", "c"])
SPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
CONDITIONS = st.lists(
    st.builds(
        MatchCondition,
        st.sampled_from(["prefix", "suffix"]),
        st.lists(st.one_of(LABELS, st.just("*")), min_size=1, max_size=3).map(tuple),
    ),
    max_size=2,
).map(tuple)


@pytest.mark.promise("I2")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    items=st.lists(st.tuples(SPACES, LABELS, st.integers(0, 3)), max_size=8),
    prefix=st.lists(LABELS, max_size=2).map(tuple),
    wanted=st.sampled_from([None, {"n": 1}, {"n": {"$gte": 1}}, {"n": {"$ne": 0}}]),
    conditions=CONDITIONS,
    depth=st.one_of(st.none(), st.integers(1, 3)),
)
def test_results_equal_those_of_langgraphs_in_memory_store(
    items: Any, prefix: Any, wanted: Any, conditions: Any, depth: Any
) -> None:
    with duramen.open("memory:") as dm:
        ours, theirs = DuramenStore(dm), InMemoryStore()
        for space, key, number in items:
            for store in (ours, theirs):
                store.put(space, key, {"n": number})
        every: list[Any] = [ours, theirs]
        results = [store.search(prefix, filter=wanted, limit=100) for store in every]
        facts = [sorted((item.namespace, item.key, item.value["n"]) for item in one) for one in results]
        assert facts[0] == facts[1]
        op = ListNamespacesOp(match_conditions=conditions, max_depth=depth)
        assert ours.batch([op]) == theirs.batch([op])


# -- ranking


@pytest.mark.promise("I2")
def test_a_query_ranks_by_the_share_of_its_words(store: DuramenStore, clock: FakeClock) -> None:
    texts = {"tea": "Likes green tea", "cup": {"deep": ["a cup of TEA"]}, "dog": "has a dog", "late": "tea with milk"}
    for key, text in texts.items():
        store.put(ALICE, key, {"text": text})
        clock.advance(1)
    results = store.search(ALICE, query="green tea?")
    assert [(item.key, item.score) for item in results] == [("tea", 1.0), ("late", 0.5), ("cup", 0.5), ("dog", 0.0)]
    assert keys(store.search(ALICE, query="green tea", limit=1, offset=1)) == ["late"]


def test_without_a_query_the_newest_items_are_first(store: DuramenStore, clock: FakeClock) -> None:
    for number in range(5):
        store.put(ALICE, f"k{number}", {})
        clock.advance(1)
    assert keys(store.search(ALICE)) == ["k4", "k3", "k2", "k1", "k0"]
    assert keys(store.search(ALICE, limit=2, offset=1)) == ["k3", "k2"]
    assert store.search(ALICE)[0].score is None


def test_a_vector_index_is_refused(dm: duramen.Duramen) -> None:
    with pytest.raises(InvalidInput, match="vector index"):
        DuramenStore(dm, index={"dims": 3, "embed": lambda texts: [[0.0] * 3 for _ in texts]})


# -- namespaces


@pytest.mark.promise("I2")
def test_namespaces_are_listed_by_prefix_suffix_wildcard_and_depth(store: DuramenStore) -> None:
    for space in (("docs", "a", "v1"), ("docs", "b", "v1"), ("docs", "b", "v2"), ("logs",)):
        store.put(space, "k", {})
    assert store.list_namespaces() == [("docs", "a", "v1"), ("docs", "b", "v1"), ("docs", "b", "v2"), ("logs",)]
    assert store.list_namespaces(prefix=("docs", "b")) == [("docs", "b", "v1"), ("docs", "b", "v2")]
    assert store.list_namespaces(prefix=("docs", "*", "v1")) == [("docs", "a", "v1"), ("docs", "b", "v1")]
    assert store.list_namespaces(suffix=("v1",)) == [("docs", "a", "v1"), ("docs", "b", "v1")]
    assert store.list_namespaces(max_depth=2) == [("docs", "a"), ("docs", "b"), ("logs",)]
    assert store.list_namespaces(limit=1, offset=1) == [("docs", "b", "v1")]
    store.delete(("logs",), "k")
    assert store.list_namespaces(max_depth=1) == [("docs",)]


@pytest.mark.parametrize("space", [(), ("langgraph",), ("a.b",), ("",), (1,), ("a", "\0")])
def test_invalid_namespaces_are_refused(store: DuramenStore, space: Any) -> None:
    with pytest.raises(InvalidNamespaceError):
        store.put(space, "k", {})


def test_invalid_namespaces_are_refused_in_a_batch(store: DuramenStore) -> None:
    with pytest.raises(InvalidNamespaceError):
        store.batch([PutOp(("a", "b"), "k", {}), PutOp(("a.b",), "k", {})])
    assert store.list_namespaces() == []


# -- expiry


@pytest.mark.promise("I2")
def test_an_item_expires_after_its_ttl_and_reading_renews_it(timed: duramen.Duramen, clock: FakeClock) -> None:
    store = DuramenStore(timed, ttl={"default_ttl": 10})
    store.put(ALICE, "read", {})
    store.put(ALICE, "searched", {"s": 1})
    store.put(ALICE, "left", {}, ttl=10)
    store.put(ALICE, "for ever", {}, ttl=None)
    for _ in range(3):
        clock.advance(6 * 60)
        assert store.get(ALICE, "read") is not None
        assert keys(store.search(ALICE, filter={"s": 1})) == ["searched"]
    assert store.get(ALICE, "left") is None
    assert sorted(keys(store.search(ALICE))) == ["for ever", "read", "searched"]
    clock.advance(11 * 60)
    assert keys(store.search(ALICE)) == ["for ever"]


def test_refresh_on_read_can_be_disabled(timed: duramen.Duramen, clock: FakeClock) -> None:
    store = DuramenStore(timed, ttl={"default_ttl": 10, "refresh_on_read": False})
    store.put(ALICE, "k", {})
    store.put(ALICE, "refreshed", {})
    clock.advance(6 * 60)
    assert store.get(ALICE, "k") is not None
    assert store.get(ALICE, "refreshed", refresh_ttl=True) is not None
    clock.advance(6 * 60)
    assert keys(store.search(ALICE)) == ["refreshed"]


def test_a_sweep_removes_expired_items(timed: duramen.Duramen, clock: FakeClock) -> None:
    store = DuramenStore(timed)
    store.put(ALICE, "short", {}, ttl=1)
    store.put(ALICE, "long", {}, ttl=100)
    store.put(BOB, "short", {}, ttl=0.5)
    assert store.sweep_ttl() == 0
    clock.advance(61)
    assert store.list_namespaces() == [ALICE]
    assert store.sweep_ttl() == 2
    assert store.sweep_ttl() == 0
    assert keys(store.search(())) == ["long"]


def test_a_put_sweeps_once_the_interval_has_passed(timed: duramen.Duramen, clock: FakeClock) -> None:
    store = DuramenStore(timed, ttl={"sweep_interval_minutes": 5})
    store.put(ALICE, "short", {}, ttl=1)
    clock.advance(4 * 60)
    store.put(ALICE, "other", {})
    assert store.sweep_ttl() == 1
    store.put(ALICE, "short", {}, ttl=1)
    clock.advance(2 * 60)
    store.put(ALICE, "other", {})
    assert store.sweep_ttl() == 0
