"""Persistent lists: versions share their items, and no version ever changes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.checkpoints.persistent_list import PersistentList, as_persistent_list

INDEXES = st.integers(-12, 12)
STEPS = st.lists(st.tuples(st.integers(0, 30), st.lists(st.integers(0, 3), max_size=4)), max_size=12)


@given(st.lists(st.integers(0, 3), max_size=5), STEPS, st.slices(8), INDEXES, st.integers(0, 3))
def test_every_version_stays_unchanged(
    first: list[int], steps: list[tuple[int, list[int]]], some: slice, index: int, item: int
) -> None:
    versions, model = [PersistentList(first)], [list(first)]
    for number, more in steps:
        number %= len(versions)
        versions.append(versions[number].extended(more))
        model.append(model[number] + more)
    for version, wanted in zip(versions, model, strict=True):
        assert list(version) == wanted
        assert version == wanted
        assert len(version) == len(wanted)
        assert version[some] == wanted[some]
        assert (item in version) == (item in wanted)
        if item in wanted:
            assert version.index(item) == wanted.index(item)
        if -len(wanted) <= index < len(wanted):
            assert version[index] == wanted[index]
        else:
            with pytest.raises(IndexError):
                version[index]
        for other, longer in zip(versions, model, strict=True):
            assert version.is_prefix_of(other) == (longer[: len(wanted)] == wanted)
            assert version.is_prefix_of(longer) == (longer[: len(wanted)] == wanted)
            assert (version == other) == (wanted == longer)


def test_items_after_the_end_of_a_version_are_not_found() -> None:
    short = PersistentList([1])
    short.extended([2])
    with pytest.raises(ValueError):
        short.index(2)
    assert as_persistent_list(short) is short


def test_threads_that_extend_the_same_list_do_not_interfere() -> None:
    for _ in range(50):
        begun = PersistentList(range(10))
        with ThreadPoolExecutor(8) as pool:
            grown = list(pool.map(begun.extended, [[number] * 5 for number in range(8)]))
        assert [list(one) for one in grown] == [[*range(10), *[number] * 5] for number in range(8)]
