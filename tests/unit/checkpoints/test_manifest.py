"""States are encoded as deltas of earlier states: they read back unchanged, and only new data is written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.delta_writer import CHUNK_LOG, SALT, DeltaWriter, encode, encode_delta, list_field, snapshot_bytes
from programs.seeds import examples

from duramen.checkpoints.delta import DeltaBase, diff_lists
from duramen.checkpoints.manifest import BytesField, ListField, Manifest
from duramen.checkpoints.persistent_list import PersistentList
from duramen.errors import InvalidInput

# -- any edits

values: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([0, 1, True, 1.0, False, "", None, b"", [], {}, "same", float("inf")]),
    st.integers(0, 30),
    st.text(max_size=5),
    st.builds(lambda text, size: text * size, st.text(min_size=1, max_size=3), st.integers(20, 200)),
)
edits = st.one_of(
    st.tuples(st.just("append"), st.lists(values, max_size=4)),
    st.tuples(st.just("trim"), st.integers(0, 5)),
    st.tuples(st.just("edit"), st.integers(0, 40), values),
    st.tuples(st.just("insert"), st.integers(0, 40), values),
    st.tuples(st.just("delete"), st.integers(0, 40)),
    st.tuples(st.just("repeat"), st.integers(0, 40)),
    st.tuples(st.sampled_from(["clear", "reverse", "sort", "double", "same"])),
)


def edited(old: list[Any], edit: tuple[Any, ...]) -> list[Any]:
    kind, *arguments = edit
    at = arguments[0] % (len(old) + 1) if arguments and isinstance(arguments[0], int) else 0
    results: dict[str, Callable[[], list[Any]]] = {
        "append": lambda: [*old, *arguments[0]],
        "trim": lambda: old[at:],
        "edit": lambda: [*old[:at], arguments[1], *old[at + 1 :]],
        "insert": lambda: [*old[:at], arguments[1], *old[at:]],
        "delete": lambda: [*old[:at], *old[at + 1 :]],
        "repeat": lambda: [*old, *old[at : at + 1]],
        "clear": list,
        "reverse": lambda: old[::-1],
        "sort": lambda: sorted(old, key=repr),
        "double": lambda: old + old,
        "same": lambda: list(old),
    }
    return results[kind]()


steps = st.lists(
    st.tuples(
        st.sampled_from(["main", "main", "other", "sub"]),
        edits,
        st.binary(max_size=3) | st.sampled_from([b"a" * 64, b"b" * 64, b"c" * 22, b"d" * 22]),
        st.sampled_from(["", "", "", "reopen", "move", "fresh"]),
    ),
    max_size=14,
)


@pytest.mark.promise("C3", "J11")
@settings(max_examples=examples(150), deadline=None)
@given(steps)
def test_every_state_is_read_back_unchanged(plan: list[tuple[str, Any, bytes, str]]) -> None:
    writer, lists = DeltaWriter(), dict[str, list[Any]]()
    for name, edit, body, then in plan:
        lists[name] = edited(lists.get(name, []), edit)[:60]
        state = {
            "list": list_field(lists[name]),
            "of all": {"inner": list_field(lists.get("main", [])), "none": {}, "leaf": BytesField(body)},
            "": BytesField(body * 3),
            "lone": list_field(lists[name][:1]),
        }
        writer.save(name, state)
        # The digest depends on the state only, not on the chunks that it was assembled from.
        assert encode_delta(None, state, DeltaBase(1, 0), SALT).digest == writer.manifests[-1][1]
        if then == "reopen":
            writer.reopen(name)
        elif then == "move":
            writer.relocate()
        elif then == "fresh":
            fresh = max(writer.chunk_logs) + 1
            writer.chunk_logs[fresh] = []
            writer.base = DeltaBase(fresh, 0)
    for stored in writer.manifests:
        writer.check(*stored)


@given(st.lists(st.integers(0, 6), max_size=30), st.lists(st.integers(0, 6), max_size=30))
def test_a_list_diff_covers_the_new_list_exactly(old: list[int], new: list[int]) -> None:
    seen = upto = 0
    for origin, first, last in diff_lists(PersistentList(old), PersistentList(new)):
        assert first == seen < last
        seen = last
        if origin is not None:
            assert old[origin : origin + last - first] == new[first:last]
            assert origin >= upto, "old items keep their order"
            upto = origin + last - first
    assert seen == len(new)


# -- size


@pytest.mark.promise("C4")
def test_appending_to_a_list_costs_the_new_items() -> None:
    writer, talk = DeltaWriter(), list[str]()
    for number in range(300):
        talk = [*talk, f"{number} " + "x" * 500]
        assert writer.save("main", {"talk": list_field(talk)}) == 1
    assert max(writer.written) < 600
    assert writer.written[-1] - writer.written[5] < 20, "the manifest does not grow with the list"


@pytest.mark.promise("C4")
def test_trimming_the_front_of_a_list_costs_nothing() -> None:
    writer = DeltaWriter()
    talk = [f"{number} " + "x" * 500 for number in range(100)]
    writer.save("main", {"talk": list_field(talk)})
    for _ in range(90):
        talk = [*talk[3:], f"{len(writer.manifests)} new" + "y" * 500][-80:]
        assert writer.save("main", {"talk": list_field(talk)}) == 1
    assert max(writer.written[1:]) < 600


@pytest.mark.promise("C4")
@pytest.mark.parametrize("edit", ["edit", "insert", "delete", "move"])
def test_an_edit_inside_a_list_costs_the_edited_item(edit: str) -> None:
    writer = DeltaWriter()
    talk = [f"{number} " + "x" * 300 for number in range(200)]
    writer.save("main", {"talk": list_field(talk)})
    for number in range(5):
        at = 20 + 31 * number
        inserted = [f"edit {number}" + "z" * 300] if edit in ("edit", "insert") else talk[at + 5 : at + 6]
        talk = [*talk[:at], *(inserted if edit != "delete" else []), *talk[at + (edit != "insert") :]]
        assert writer.save("main", {"talk": list_field(talk)}) <= 1
    assert max(writer.written[1:]) < 600


@pytest.mark.promise("C4")
def test_many_edits_of_a_list_cost_the_edited_items() -> None:
    writer = DeltaWriter()
    talk = [f"{number} " + "x" * 100 for number in range(100)]
    writer.save("main", {"talk": list_field(talk)})
    counts = []
    for number in range(400):
        talk[number * 37 % 100] = f"edit {number}" + "z" * 100
        counts.append(writer.save("main", {"talk": list_field(list(talk))}))
    assert sum(counts) < 1200, "an edit each, and sometimes a page of chunk ranges"
    assert max(map(len, (manifest for manifest, _, _ in writer.manifests))) < 2000
    assert Manifest(writer.manifests[-1][0]).unread_pages(), "most of its ranges are on pages"
    del writer.manifests[:-50]
    for moved in (False, True):
        if moved:
            writer.relocate()
        writer.reopen("main")
        talk[50] = f"edited again {len(writer.manifests)} " + "z" * 100
        assert writer.save("main", {"talk": list_field(list(talk))}) < 10
        for stored in writer.manifests:
            writer.check(*stored)


@pytest.mark.promise("C4")
@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 66, 1000, 100_000])
def test_an_unchanged_value_costs_a_reference(size: int) -> None:
    writer, body = DeltaWriter(), bytes(range(256)) * (size // 256) + bytes(size % 256)
    first = writer.save("main", {"big": BytesField(body), "small": BytesField(b"0")})
    assert first == (1 if size > 64 else 0)
    assert writer.save("main", {"big": BytesField(body), "small": BytesField(b"1")}) == 0
    assert writer.save("other", {"deep": {"elsewhere": BytesField(body)}}) == 0
    assert writer.save("main", {"big": BytesField(body + b"!")}) == (1 if size >= 64 else 0)
    assert writer.written[1] < 100 + min(size, 64)
    assert writer.save("main", {str(n): BytesField(body + b"?") for n in range(3)}) == (1 if size >= 64 else 0)


@pytest.mark.promise("C4")
def test_names_and_fields_share_the_common_start_of_lists() -> None:
    writer, talk = DeltaWriter(), [f"{number} " + "x" * 100 for number in range(50)]
    writer.save("main", {"talk": list_field(talk)})
    assert writer.save("sub:1", {"__start__": {"talk": list_field(talk)}}) == 0
    assert writer.save("sub:1", {"talk": list_field([*talk, "answer" + "x" * 100])}) == 1
    assert writer.save("main", {"talk": list_field([*talk, "answer" + "x" * 100])}) == 0
    assert writer.save(None, {"twice": list_field(talk + talk), "half": list_field(talk[25:])}) == 0
    assert max(writer.written[1:]) < 350


@pytest.mark.promise("C4")
def test_another_process_shares_the_chunks_that_it_read() -> None:
    writer, talk = DeltaWriter(), [f"{number} " + "x" * 100 for number in range(50)]
    writer.save("main", {"talk": list_field(talk), "config": BytesField(b"c" * 500)})
    for _ in range(5):
        writer.reopen("main")
        talk = [*talk, f"{len(talk)} " + "y" * 100]
        assert writer.save("main", {"talk": list_field(talk), "config": BytesField(b"c" * 500)}) == 1
    writer.reopen("main")
    assert writer.save("main", {"talk": list_field(talk[7:]), "config": BytesField(b"c" * 500)}) == 0


def test_unchanged_items_are_not_encoded_again() -> None:
    calls: list[Any] = []

    def counted(value: Any) -> bytes:
        calls.append(value)
        return encode(value)

    writer, talk = DeltaWriter(), [f"{number}" for number in range(500)]
    for name in ["main"] * 20 + ["another"] * 2:
        talk = [*talk, f"{len(talk)}"]
        calls.clear()
        delta = encode_delta(name, {"talk": ListField(talk, counted, snapshot_bytes)}, writer.base, SALT)
        assert len(calls) <= (2 if len(talk) > 501 else 1000)
        writer.chunk_logs[CHUNK_LOG] += delta.bodies
        writer.base.end += len(delta.bodies)
        writer.base.add(name, delta.stored, delta.new_bodies.items())


def test_freeze_receives_the_snapshots_of_the_previous_list() -> None:
    received: list[Sequence[Any]] = []

    def freeze(values: Sequence[Any], known: Sequence[Any]) -> Sequence[Any]:
        received.append(known)
        return [*known, *snapshot_bytes(values[len(known) :], [])]

    writer = DeltaWriter()
    for count in (1, 2, 3):
        writer.save("main", {"talk": ListField(["a", "b", "c"][:count], encode, freeze)})
    assert received == [[], [encode("a")], [encode("a"), encode("b")]]


# -- equality and digests


@pytest.mark.promise("C3")
def test_equal_values_of_different_types_are_distinguished() -> None:
    writer = DeltaWriter()
    equal_values: list[Any]
    for equal_values in ([1, 1, 1], [True, 1, 1.0], [1.0, True, 1], [0, False, 0.0, ""], [[], {}, None, b""]):
        for name in ("main", "other"):
            writer.save(name, {"x": list_field(equal_values), "y": list_field([1, *equal_values])})


class NeverEqual:
    """Not equal to itself, like NaN."""

    def __init__(self) -> None:
        self.comparisons = 0

    def __eq__(self, other: object) -> bool:
        self.comparisons += 1
        assert self.comparisons < 1000, "endless comparison"
        return False

    __hash__ = None  # type: ignore[assignment]


def test_a_diff_of_values_that_are_not_equal_to_themselves_terminates() -> None:
    nan = float("nan")
    one = NeverEqual()
    for old, new in (([one, 1, one], [one, one, 2]), ([one], [one]), ([nan, 1.0, 2.0], [nan, 1.0, 3.0])):
        hunks = diff_lists(PersistentList(old), PersistentList(new))
        assert [first for _, first, _ in hunks] == [0, *(last for _, _, last in hunks[:-1])]
        assert hunks[-1][2] == len(new)

    def snapshot_unchanged(values: Sequence[Any], known: Sequence[Any]) -> Sequence[Any]:
        return list(values)

    writer = DeltaWriter()
    for numbers in ([nan, 1.0, 2.0], [nan, 1.0, 3.0], [3.0, nan], [nan, nan]):
        writer.save("main", {"x": ListField(numbers, encode, snapshot_unchanged)})


@pytest.mark.promise("C3")
def test_equal_lists_with_different_encoders_are_distinguished() -> None:
    def shout(value: str) -> bytes:
        return encode(value if value == "head" else value.upper())

    def snapshot_unchanged(values: Sequence[Any], known: Sequence[Any]) -> Sequence[Any]:
        return list(values)

    writer = DeltaWriter()
    writer.save("main", {"said": ListField(["head", "word"], encode, snapshot_unchanged)})
    writer.save("loud", {"said": ListField(["head", "word"], shout, snapshot_unchanged)})
    writer.save("main", {"said": ListField(["head", "word"], shout, snapshot_unchanged)})


def test_digests_depend_on_the_salt() -> None:
    state = {"x": list_field(["a", "b" * 100]), "y": BytesField(b"c"), "z": {}}
    digests = {encode_delta(None, state, DeltaBase(1, 0), salt).digest for salt in (b"", b"one", b"two")}
    assert len(digests) == 3


def test_different_states_have_different_digests() -> None:
    states: list[dict[str, Any]] = [
        *(
            {},
            {"a": {}},
            {"a": list_field([])},
            {"a": BytesField(b"")},
            {"a": list_field([""])},
            {"a": list_field(["", ""])},
        ),
        *(
            {"a": list_field([]), "b": list_field([])},
            {"b": list_field([]), "a": list_field([])},
            {"a": {"b": list_field([])}},
        ),
        *({"a": BytesField(encode(""))}, {"ab": BytesField(b"c")}, {"a": BytesField(b"bc")}),
    ]
    digests = {encode_delta(None, state, DeltaBase(1, 0), b"").digest for state in states}
    assert len(digests) == len(states)


# -- invalid input and limits


def test_a_field_of_another_type_is_rejected() -> None:
    for wrong in (b"raw", "text", ["list"], None, 7, object()):
        with pytest.raises(InvalidInput):
            encode_delta("main", {"field": {"inner": wrong}}, DeltaBase(1, 0), b"")


@given(st.binary(max_size=40))
def test_bytes_that_are_no_manifest_raise_value_error(junk: bytes) -> None:
    for packed in (junk, encode([2, [1], 0, [3, {}]]), encode([1, [], 0, [3, {}]]), encode([1, [1], "x", [3, {}]])):
        with pytest.raises(ValueError, match="manifest"):
            Manifest(packed)


def test_the_delta_base_remembers_a_limited_number_of_lists_and_bodies() -> None:
    writer = DeltaWriter()
    for number in range(300):
        writer.save(f"name {number}", {"x": list_field([f"{number} {at}" for at in range(50)])})
    base = writer.base
    assert len(base.by_name) < 100
    assert len(base.by_first_item) < 100
    assert len(base.bodies) <= 5000
