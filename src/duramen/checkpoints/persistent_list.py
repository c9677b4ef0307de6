"""A persistent list: its versions share the items that they have in common.

Each checkpoint compares the whole conversation. Copying a list of a thousand items takes longer than writing the new
ones, because a copy touches every item and its reference count.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class PersistentList(Sequence[T], Generic[T]):
    """An immutable list. `extended` returns a longer list that shares the items of this one. Safe to share between
    threads."""

    __slots__ = ("_count", "_extension", "_shared")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._shared = list(items)
        self._count = len(self._shared)
        self._extension = [True]
        """The right to append to `_shared`. It exists once: the thread that pops it owns it."""

    def extended(self, more: Sequence[T]) -> Self:
        """This list with more items at its end. The first extension shares the items; any other extension copies
        them."""
        longer = type(self).__new__(type(self))
        longer._count, longer._extension = self._count + len(more), [True]
        try:
            self._extension.pop()
        except IndexError:
            longer._shared = [*self, *more]
        else:
            self._shared += more
            longer._shared = self._shared
        return longer

    def is_prefix_of(self, other: Sequence[T]) -> bool:
        """Whether another list begins with this one."""
        if isinstance(other, PersistentList) and other._shared is self._shared:
            return self._count <= other._count
        return self._count <= len(other) and self[:] == list(islice(other, self._count))

    def index(self, item: T, start: int = 0, stop: int | None = None) -> int:
        """The first index of an item, from `start` on. Raises ValueError if the item is not found."""
        return self._shared.index(item, start, self._count if stop is None else min(stop, self._count))

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        if isinstance(place, slice):
            first, last, step = place.indices(self._count)
            return self._shared[first:last] if step == 1 else self._shared[: self._count][place]
        if not -self._count <= place < self._count:
            raise IndexError(place)
        return self._shared[place if place >= 0 else self._count + place]

    def __iter__(self) -> Iterator[T]:
        return islice(self._shared, self._count)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (PersistentList, list)):
            return NotImplemented
        return len(other) == self._count and self.is_prefix_of(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self[:]!r})"


def as_persistent_list(items: Sequence[Any]) -> PersistentList[Any]:
    """The items as a persistent list. A persistent list is returned unchanged."""
    return items if isinstance(items, PersistentList) else PersistentList(items)
