"""Key-value items: put, get, find, touch, remove and sweep, also concurrently."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from programs.side_effects import Open

import duramen
from duramen import crash_points as crashpoints
from duramen.checkpoints.checkpoints import Checkpoints
from duramen.checkpoints.kv_items import KvItem, KvItems
from duramen.errors import DuramenError, InvalidInput
from duramen.runtime import drive
from duramen.testing.clock import FakeClock

SECOND = 1_000_000
OnceAt = Callable[[str, Callable[[], Any]], None]


def items_of(dm: duramen.Duramen) -> KvItems:
    return KvItems(dm._core._journal)


@pytest.fixture
def items(open_one: Open) -> KvItems:
    return items_of(open_one())


@pytest.fixture
def other(open_one: Open, items: KvItems) -> KvItems:
    """The same items as another process sees them."""
    return items_of(open_one())


@pytest.fixture
def once_at() -> Iterator[OnceAt]:
    """Calls a function when execution first reaches a point, as if another process acted at that moment."""

    def once_at(point: str, work: Callable[[], Any]) -> None:
        def listener(reached: str) -> None:
            if reached == point:
                crashpoints.listen(None)
                work()

        crashpoints.listen(listener)

    yield once_at
    crashpoints.listen(None)


def put(items: KvItems, space: str, key: str, value: Any, **options: Any) -> KvItem:
    return drive(items.put(tuple(space.split("/")), key, {"v": value}, **options))


def get(items: KvItems, space: str, key: str, **options: Any) -> Any:
    found = drive(items.get(tuple(space.split("/")), key, **options))
    return None if found is None else found.value["v"]


def find(items: KvItems, *prefix: str) -> list[tuple[str, str, Any]]:
    return [("/".join(item.namespace), item.key, item.value["v"]) for item in drive(items.find(prefix))]


def remove(items: KvItems, space: str, key: str) -> bool:
    return drive(items.remove(tuple(space.split("/")), key))


# -- putting, getting, finding


@pytest.mark.promise("I2")
def test_a_value_lasts_until_it_is_replaced_or_removed(items: KvItems, other: KvItems, clock: FakeClock) -> None:
    assert get(items, "users/ada", "k") is None
    first = put(items, "users/ada", "k", 1)
    assert first == KvItem(("users", "ada"), "k", {"v": 1}, clock.now(), clock.now(), None, None)
    began = clock.now()
    clock.advance(5)
    second = put(other, "users/ada", "k", 2)
    assert (second.created, second.updated) == (began, began + 5 * SECOND)
    for reader in (items, other):
        assert drive(reader.get(("users", "ada"), "k")) == second
        assert drive(reader.find(("users",))) == [second]
    assert get(items, "users", "k") is None
    assert get(items, "users/ada/x", "k") is None
    assert remove(other, "users/ada", "k")
    assert not remove(items, "users/ada", "k")
    assert get(items, "users/ada", "k") is None
    clock.advance(1)
    assert put(items, "users/ada", "k", 3).created == clock.now()


@pytest.mark.promise("I2")
def test_values_are_found_by_a_namespace_prefix(items: KvItems) -> None:
    for number, space in enumerate(["a", "a/b", "a/bc", "a/b/c", "b", "ab", 'a/b"]', "a/%", "ä/b"]):
        put(items, space, f"k{number}", number)
        put(items, space, "j", number)
    assert [key for _, key, _ in find(items, "a", "b")] == ["j", "k1", "j", "k3"]
    assert {space for space, _, _ in find(items, "a")} == {"a", "a/b", "a/bc", "a/b/c", 'a/b"]', "a/%"}
    assert [space for space, _, _ in find(items, "a", "%")] == ["a/%"] * 2
    assert find(items, "unknown") == find(items, "a", "x") == []
    assert len(find(items)) == 18
    assert find(items) == sorted(find(items), key=lambda found: (found[0].split("/"), found[1]))
    spaces = drive(items.namespaces())
    assert spaces == sorted(spaces)
    assert len(spaces) == 9
    remove(items, "b", "k4")
    assert ("b",) in drive(items.namespaces())
    remove(items, "b", "j")
    assert ("b",) not in drive(items.namespaces())


labels = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
roots = labels.filter(lambda label: "\0" not in label)
entries = st.dictionaries(st.tuples(roots, roots), st.dictionaries(labels, st.integers(), max_size=3), max_size=6)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(entries, st.data())
def test_unusual_labels_and_keys_are_returned_unchanged(
    wanted: dict[tuple[str, str], dict[str, int]], data: Any
) -> None:
    with duramen.open("memory:") as dm:
        items = items_of(dm)
        stored: dict[tuple[tuple[str, ...], str], dict[str, int]] = {}
        for (root, label), value in wanted.items():
            key = data.draw(roots)
            space: tuple[str, ...] = (root, label) if data.draw(st.booleans()) else (root,)
            stored[space, key] = value
            drive(items.put(space, key, value))
        for place, value in stored.items():
            found = drive(items.get(*place))
            assert found is not None
            assert ((found.namespace, found.key), found.value) == (place, value)
        assert [(item.namespace, item.key) for item in drive(items.find(()))] == sorted(stored)
        assert drive(items.namespaces()) == sorted({space for space, _ in stored})


def test_keys_and_labels_are_not_redacted(items: KvItems) -> None:
    key, label = "sk-" + "a1b2c3d4" * 5, "https://user:pass@host/x"
    drive(items.put(("token", label), key, {"password": "hunter22", "n": 1}))
    (found,) = drive(items.find(("token",)))
    assert (found.namespace, found.key, found.value) == (("token", label), key, {"password": "[redacted]", "n": 1})
    assert drive(items.get(("token", label), key)) == found


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            {"namespace": ()},
            {"namespace": ("",)},
            {"namespace": ("a", "")},
            {"namespace": ("a\0b",)},
            {"namespace": ("x" * 600,)},
        ),
        *({"namespace": ("a", "\ud800")}, {"namespace": ("a", 7)}, {"key": ""}, {"key": "a\0"}, {"key": "y" * 513}),
        *({"key": 7}, {"key": "\ud800"}, {"value": [1]}, {"value": "text"}, {"value": None}, {"ttl_us": 0}),
        *({"ttl_us": -1}, {"ttl_us": 2**63}, {"ttl_us": "1"}, {"value": {"x": object()}}),
    ],
)
def test_invalid_arguments_of_put_are_rejected(wrong: dict[str, Any]) -> None:
    with duramen.open("memory:") as dm:
        arguments: Any = {"namespace": ("a",), "key": "k", "value": {}, **wrong}
        with pytest.raises(InvalidInput):
            drive(items_of(dm).put(**arguments))
        assert list(dm.sessions()) == []


# -- expiry


@pytest.mark.promise("I2")
def test_a_value_expires_after_its_ttl(items: KvItems, other: KvItems, clock: FakeClock) -> None:
    put(items, "a", "short", 1, ttl_us=10 * SECOND)
    put(items, "a", "long", 2)
    clock.advance(9.999999)
    assert [key for _, key, _ in find(other, "a")] == ["long", "short"]
    assert drive(other.sweep()) == 0
    clock.advance(0.000001)
    for reader in (items, other):
        assert get(reader, "a", "short") is None
        assert [key for _, key, _ in find(reader, "a")] == ["long"]
    put(items, "b", "only", 3, ttl_us=1)
    clock.advance(1)
    assert drive(other.namespaces()) == [("a",)]
    assert drive(other.sweep()) == 2
    assert drive(items.sweep()) == 0
    assert get(items, "a", "long") == 2
    assert put(items, "a", "short", 4, ttl_us=SECOND).created == clock.now(), "it is a new item"


@pytest.mark.promise("I2")
def test_a_touch_extends_the_ttl_of_a_value(open_one: Open, items: KvItems, clock: FakeClock) -> None:
    put(items, "a", "k", 1, ttl_us=100 * SECOND)
    head = open_one().session("kv:a").head
    clock.advance(4)
    touched = drive(items.get(("a",), "k", touch=True))
    assert touched == drive(items.get(("a",), "k")), "most of the ttl is left, so nothing is written"
    assert head().position == 1
    for _ in range(10):
        clock.advance(60)
        touched = drive(items.get(("a",), "k", touch=True))
        assert touched is not None
        assert touched.expires == clock.now() + 100 * SECOND
        assert drive(items.get(("a",), "k")) == touched
    assert head().position == 11
    put(items, "a", "stays", 1)
    drive(items.get(("a",), "stays", touch=True))
    assert head().position == 12
    clock.advance(101)
    assert drive(items.get(("a",), "k", touch=True)) is None


def test_a_sweep_of_several_pages_removes_only_expired_items(items: KvItems, open_one: Open, clock: FakeClock) -> None:
    count = 510 if items._journal.store.name == "inmemory" else 10  # the other stores are slower
    for number in range(count):
        drive(Checkpoints(items._journal).save("s", "main", {}, {}, expires=clock.now() + number))
        put(items, f"a{number % 3}", f"k{number}", number, ttl_us=SECOND)
    put(items, "a0", "stays", 1)
    clock.advance(2)
    assert drive(items.sweep()) == count
    assert find(items) == [("a0", "stays", 1)]
    assert open_one().verify().ok


# -- removal and erasure


def test_replaced_removed_and_swept_values_leave_no_bytes_in_the_files(tmp_path: Path, clock: FakeClock) -> None:
    path = tmp_path / "agent.db"
    with duramen.open(path, clock=clock) as dm:
        items = items_of(dm)
        for size in (1, 5000):
            for key in ("replaced", "removed", "swept"):
                put(items, "a", key, "planted " * size, ttl_us=SECOND if key == "swept" else None)
            put(items, "a", "replaced", "other")
            remove(items, "a", "removed")
            clock.advance(2)
            assert drive(items.sweep()) == 1
        assert dm.verify().ok
    assert [file.name for file in tmp_path.iterdir() if b"planted" in file.read_bytes()] == []


@pytest.mark.promise("G3")
@pytest.mark.parametrize("sealed", [False, True])
def test_erasing_a_subject_removes_its_items_and_their_bytes(tmp_path: Path, sealed: bool) -> None:
    path = tmp_path / "agent.db"
    key: Any = {"key": bytes(range(32))} if sealed else {}
    clock = FakeClock()
    with duramen.open(path, clock=clock, **key) as dm:
        items = items_of(dm)
        for number in range(3):
            put(items, "notes", f"about ada {number}", "ada lives here", subject="ada-lovelace", ttl_us=100 * SECOND)
        put(items, "notes", "about bob", "bob lives there", subject="bob")
        clock.advance(50)
        assert drive(items.get(("notes",), "about ada 1", touch=True)) is not None
        remove(items, "notes", "about ada 2")
        report = dm.erase("ada-lovelace")
        assert (report.payloads, report.checkpoints) == (2, 2)
        assert find(items) == [("notes", "about bob", "bob lives there")]
        for planted in (b"ada lives", b"about ada", b"lovelace"):
            assert [file.name for file in tmp_path.iterdir() if planted in file.read_bytes()] == []
        put(items, "notes", "about ada 0", "ada is back", subject="ada-lovelace")
        assert get(items, "notes", "about ada 0") == "ada is back"
        assert dm.verify().ok


# -- concurrency


def test_a_put_during_a_sweep_survives(items: KvItems, other: KvItems, clock: FakeClock, once_at: OnceAt) -> None:
    put(items, "a", "k", 1, ttl_us=SECOND)
    put(items, "a", "dead", 1, ttl_us=SECOND)
    clock.advance(2)
    once_at("append.encoded", lambda: put(other, "a", "k", 2))
    drive(items.sweep())
    assert find(items, "a") == find(other, "a") == [("a", "k", 2)]


@pytest.mark.parametrize("ttl", [None, SECOND])
@pytest.mark.parametrize("point", ["append.encoded", "append.begun"])
def test_a_put_during_a_touch_survives(
    items: KvItems, other: KvItems, clock: FakeClock, once_at: OnceAt, point: str, ttl: int | None
) -> None:
    put(items, "a", "k", 1, ttl_us=SECOND)
    clock.advance(0.5)
    once_at(point, lambda: put(other, "a", "k", 2, ttl_us=ttl) if point == "append.encoded" else None)
    drive(items.get(("a",), "k", touch=True))
    assert get(other, "a", "k") == (2 if point == "append.encoded" else 1)
    clock.advance(0.6)
    assert get(other, "a", "k") is not None
    clock.advance(5)
    assert (get(other, "a", "k") is None) == (ttl is not None or point != "append.encoded")


@pytest.mark.parametrize("what", ["put", "remove", "touch"])
def test_a_concurrently_replaced_value_loses_its_payload(
    items: KvItems, other: KvItems, open_one: Open, clock: FakeClock, once_at: OnceAt, what: str
) -> None:
    put(items, "a", "k", "first", ttl_us=SECOND)
    clock.advance(0.5)
    once_at("append.encoded", lambda: put(other, "a", "k", "second"))
    if what == "put":
        put(items, "a", "k", "third")
    elif what == "remove":
        assert remove(items, "a", "k")
    else:
        drive(items.get(("a",), "k", touch=True))
    left = {"put": ["third"], "remove": [], "touch": ["second"]}[what]
    events = [event for event in open_one().session("kv:a").events() if event.type == "kv.put"]
    assert [event.data["value"]["v"] for event in events if not event.erased] == left
    assert [value for _, _, value in find(other, "a")] == left


@pytest.mark.parametrize("how", ["get", "touch", "find", "find among others"])
def test_reading_during_a_replacement_returns_the_new_value(
    items: KvItems, other: KvItems, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    put(items, "a", "k", 1, ttl_us=SECOND)
    if how == "find among others":
        put(items, "a", "l", 3)
    clock.advance(0.5)
    store = items._journal.store
    pick = store.pick

    async def replaced_before_the_read(*place: Any) -> Any:
        monkeypatch.setattr(store, "pick", pick)
        put(other, "a", "k", 2)
        return await pick(*place)

    monkeypatch.setattr(store, "pick", replaced_before_the_read)
    if how.startswith("find"):
        assert [value for _, key, value in find(items, "a") if key == "k"] == [2]
    else:
        assert get(items, "a", "k", touch=how == "touch") == 2
    clock.advance(100)
    assert get(other, "a", "k") == 2, "it has no ttl"


@pytest.mark.promise("J5")
def test_concurrent_puts_of_two_handles_lose_nothing(items: KvItems, other: KvItems, open_one: Open) -> None:
    def work(number: int) -> None:
        one = (items, other)[number % 2]
        for turn in range(6):
            put(one, "a", f"of {number} {turn}", turn)
            put(one, "a", "common", [number, turn])
            assert get(one, "a", f"of {number} {turn}") == turn
            if turn % 2:
                assert remove(one, "a", f"of {number} {turn - 1}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    keys = [key for _, key, _ in find(items, "a")]
    assert keys == sorted(["common", *(f"of {n} {turn}" for n in range(4) for turn in (1, 3, 5))])
    events = [event for event in open_one().session("kv:a").events() if event.type == "kv.put"]
    assert sum(not event.erased for event in events) == len(keys), "replaced values lost their payload"
    assert open_one().verify().ok


@pytest.mark.promise("J1")
def test_items_survive_a_restart(tmp_path: Path) -> None:
    path, wanted = tmp_path / "agent.db", list[tuple[str, str, Any]]()
    for number in range(3):
        with duramen.open(path) as dm:
            assert find(items_of(dm)) == wanted
            put(items_of(dm), "a", f"k{number}", {"n": [number, "ü", None, 1.5, b"bytes"]})
            wanted.append(("a", f"k{number}", {"n": [number, "ü", None, 1.5, b"bytes"]}))


# -- damage


@pytest.mark.promise("J8")
@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE duramen_bookmarks SET time = 1 WHERE id = 'k'",
        "UPDATE duramen_bookmarks SET position = 1 WHERE id = 'k'",
        "UPDATE duramen_bookmarks SET expires = 1 WHERE id = 'k'",
        "UPDATE duramen_events SET payload = x'00' WHERE position = 2",
        "UPDATE duramen_events SET type = 'other' WHERE position = 2",
    ],
)
def test_a_damaged_value_raises_and_can_be_replaced(tmp_path: Path, sql: str) -> None:
    path = tmp_path / "agent.db"
    with duramen.open(path) as dm:
        items = items_of(dm)
        for key in ("j", "k", "l"):
            put(items, "a", key, key)
        with closing(apsw.Connection(str(path))) as db:
            db.execute(sql)
        with pytest.raises(DuramenError):
            get(items, "a", "k")
        assert not dm.verify().ok
        assert drive(items.sweep()) == 0
        assert [get(items, "a", key) for key in ("j", "l")] == ["j", "l"]
        put(items, "a", "k", "again")
        assert find(items, "a") == [("a", "j", "j"), ("a", "k", "again"), ("a", "l", "l")]
        assert remove(items, "a", "k")
        assert [get(items, "a", key) for key in ("j", "k", "l")] == ["j", None, "l"]
