"""Lists that mostly grow at their end, in versions that share what they have in common.

A conversation of a thousand items is looked at with each checkpoint; copying lists of that length takes longer than
writing what is new, because every item of a copy is counted and touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, Self, TypeVar, overload

T = TypeVar("T")


class Growing(Sequence[T], Generic[T]):
    """A list that never changes. `and_more` gives a longer one, in place where nobody went on from here before. Safe to
    share between threads."""

    __slots__ = ("_count", "_rights", "_whole")

    def __init__(self, items: Iterable[T] = ()) -> None:
        self._whole = list(items)
        self._count = len(self._whole)
        self._rights = [True]
        """The right to go on in place, which is there once: whoever pops it has it, whatever other threads do."""

    def and_more(self, more: Sequence[T]) -> Self:
        """This list and some more items."""
        longer = type(self).__new__(type(self))
        longer._count, longer._rights = self._count + len(more), [True]
        try:
            self._rights.pop()
        except IndexError:
            longer._whole = [*self, *more]
        else:
            self._whole += more
            longer._whole = self._whole
        return longer

    def heads(self, other: Sequence[T]) -> bool:
        """Whether another list begins with this one."""
        if isinstance(other, Growing) and other._whole is self._whole:
            return self._count <= other._count
        return self._count <= len(other) and self[:] == list(islice(other, self._count))

    def index(self, item: T, start: int = 0, stop: int | None = None) -> int:
        """Where an item is, from some place on. ValueError if it is not."""
        return self._whole.index(item, start, self._count if stop is None else min(stop, self._count))

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> list[T]: ...
    def __getitem__(self, place: int | slice) -> T | list[T]:
        if isinstance(place, slice):
            first, last, step = place.indices(self._count)
            return self._whole[first:last] if step == 1 else self._whole[: self._count][place]
        if not -self._count <= place < self._count:
            raise IndexError(place)
        return self._whole[place if place >= 0 else self._count + place]

    def __iter__(self) -> Iterator[T]:
        return islice(self._whole, self._count)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (Growing, list)):
            return NotImplemented
        return len(other) == self._count and self.heads(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self[:]!r})"


def growing(items: Sequence[Any]) -> Growing[Any]:
    """A sequence as such a list; itself, if it is one."""
    return items if isinstance(items, Growing) else Growing(items)
