"""The manifest of a checkpoint: which stored bodies its state consists of.

A state is a tree of fields, lists and opaque bytes. Data that is new in a checkpoint is appended to a chunk log,
which is an append-only list of bodies. The manifest lists the bodies of the state by their ranges in chunk logs. A
list that grew at its end, lost its front or was edited in between costs only its new items. An unchanged value costs
a reference. The digest of a state covers all of its bytes and does not depend on how they are stored.

A packed manifest is `[FORMAT, chunk logs, end of the first one, node]`. Ranges refer to chunk logs by their index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from .persistent_list import PersistentList

pack = msgspec.msgpack.encode
_DIGEST_BYTES = 16
FORMAT = 1
PAGE = 24
"""How many ranges of a list one page holds."""
INLINE, BODY, LIST, FIELDS, PAGED_LIST = range(5)
"""The kinds of nodes: bytes in the manifest, one body, a list of bodies, named nodes, and a list whose ranges are
stored as bodies too (pages)."""


@dataclass(frozen=True, slots=True)
class BytesField:
    """A field of opaque bytes."""

    body: bytes


@dataclass(frozen=True, slots=True)
class ListField:
    """A field that is a list.

    `encode` returns the bytes of a value. `snapshot` returns a list of snapshots, one for each value. Two snapshots
    are equal only if their values have the same bytes, and an in-place change of a value does not change its
    snapshot. `snapshot` also gets the snapshots of the previous version, to reuse those of unchanged values;
    `PersistentList.extended` does so without a copy.
    """

    values: Sequence[Any]
    encode: Callable[[Any], bytes]
    snapshot: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]


Fields = dict[str, Any]
"""A mapping from names to `BytesField`, `ListField` or nested `Fields`."""


class BodyRange(NamedTuple):
    """The bodies of a chunk log from `first` up to, but not including, `last`."""

    chunk_log: int
    first: int
    last: int


@dataclass(slots=True)
class StoredBytes:
    """Where a field of bytes is stored: in the manifest (`inline`), or as one body of a chunk log."""

    digest: bytes
    inline: bytes | None
    body: BodyRange | None


@dataclass(slots=True)
class StoredList:
    """Where a list is stored.

    Its `snapshots` can be compared with others of the same `snapshot_method`. A list that was read from the store has
    neither. `hash_state` is the state of its digest, so that the digest can be continued.
    """

    snapshots: PersistentList[Any]
    snapshot_method: tuple[Any, Any] | None
    digests: PersistentList[bytes]
    ranges: list[BodyRange]
    hash_state: blake2b | None = None


class AssembledState(NamedTuple):
    """A state that was read: its fields, its digest, and where each field is stored."""

    fields: dict[str, Any]
    digest: bytes
    stored: dict[str, Any]


class Digester:
    """Digests with the salt of an owner. Once the salt is destroyed, no value can be guessed from its digest."""

    def __init__(self, salt: bytes) -> None:
        self._salt = salt

    def body(self, body: bytes) -> bytes:
        """The digest of opaque bytes."""
        return blake2b(body, digest_size=_DIGEST_BYTES, key=self._salt, person=b"duramen.body").digest()

    def items(self, digests: Iterable[bytes], begun: blake2b | None = None) -> blake2b:
        """The hash of a list, from the digests of its items. `begun` is the hash of the items before these."""
        if begun is None:
            return blake2b(b"".join(digests), digest_size=_DIGEST_BYTES, key=self._salt, person=b"duramen.list")
        hash_state = begun.copy()
        hash_state.update(b"".join(digests))
        return hash_state

    def fields(self, digests: dict[str, bytes]) -> bytes:
        """The digest of fields, from the digest of each field, in order."""
        return blake2b(pack(digests), digest_size=_DIGEST_BYTES, key=self._salt, person=b"duramen.fields").digest()


def append_ranges(ranges: list[BodyRange], more: list[BodyRange]) -> None:
    """Append ranges in place. Adjacent ranges are merged."""
    for one in more:
        if ranges and ranges[-1].chunk_log == one.chunk_log and ranges[-1].last == one.first:
            ranges[-1] = BodyRange(one.chunk_log, ranges[-1].first, one.last)
        elif one.first < one.last:
            ranges.append(one)


def flatten_ranges(ranges: Iterable[BodyRange], chunk_logs: dict[int, int]) -> list[int]:
    """Ranges as small numbers: the index of the chunk log, the distance from the previous range, the length. A chunk
    log without an index gets the next one."""
    numbers: list[int] = []
    before = 0
    for chunk_log, first, last in ranges:
        numbers += (chunk_logs.setdefault(chunk_log, len(chunk_logs)), first - before, last - first)
        before = last
    return numbers


def parse_ranges(numbers: list[int], chunk_logs: list[int]) -> list[BodyRange]:
    """The reverse of `flatten_ranges`."""
    ranges, before = [], 0
    for at in range(0, len(numbers), 3):
        first = before + numbers[at + 1]
        before = first + numbers[at + 2]
        ranges.append(BodyRange(chunk_logs[numbers[at]], first, before))
    return ranges


class Manifest:
    """A stored manifest, parsed. Raises ValueError if it is malformed.

    While `unread_pages` returns pages, read their bodies and pass them to `add_pages`. The other methods work after
    that.
    """

    def __init__(self, packed: bytes) -> None:
        try:
            version, chunk_logs, end, node = msgspec.msgpack.decode(packed)
        except (msgspec.DecodeError, TypeError, ValueError) as error:
            raise ValueError(f"its manifest cannot be decoded: {error}") from error
        if version != FORMAT or not chunk_logs or not isinstance(end, int):
            raise ValueError("its manifest has an unknown format")
        self._chunk_logs: list[int] = chunk_logs
        self._unread: list[tuple[Any, list[BodyRange], list[Any]]] = []
        self.page_ranges: list[BodyRange] = []
        """Where the pages of the manifest are stored."""
        self._root = self._parse(node)
        self.chunk_log: int = chunk_logs[0]
        self.end: int = end
        """Where that chunk log ended when the manifest was written."""

    def _parse(self, node: Any) -> Any:
        """A node with ranges instead of numbers."""
        kind, *rest = node
        if kind == FIELDS:
            return [FIELDS, {name: self._parse(inner) for name, inner in rest[0].items()}]
        if kind == PAGED_LIST:
            levels = [parse_ranges(level, self._chunk_logs) for level in rest[0]]
            parsed: list[Any] = [LIST, []]
            self._unread.append((parsed, levels.pop(), levels))
            return parsed
        return node if kind == INLINE else [kind, parse_ranges(rest, self._chunk_logs)]

    def unread_pages(self) -> list[BodyRange]:
        """The pages to read next."""
        return [one for _, pages, _ in self._unread for one in pages]

    def add_pages(self, bodies: list[bytes]) -> None:
        """Parse the bodies of the unread pages, in order."""
        unread = []
        remaining = iter(bodies)
        for parsed, pages, levels in self._unread:
            self.page_ranges += pages
            ranges: list[BodyRange] = []
            for _ in pages:
                chunk_logs, numbers = msgspec.msgpack.decode(next(remaining))
                ranges += parse_ranges(numbers, chunk_logs)
            ranges += levels.pop()
            if levels:
                unread.append((parsed, ranges, levels))
            else:
                parsed[1] = ranges
        self._unread = unread

    def ranges(self) -> list[BodyRange]:
        """The ranges of all bodies of the state."""
        found: list[BodyRange] = []
        self._collect(self._root, found)
        return found

    def _collect(self, node: Any, found: list[BodyRange]) -> None:
        kind, rest = node
        if kind == FIELDS:
            for inner in rest.values():
                self._collect(inner, found)
        elif kind != INLINE:
            found += rest

    def relocated(self, relocate: Callable[[BodyRange], list[BodyRange]], chunk_log: int, end: int) -> bytes:
        """The packed manifest of the same state in a new chunk log. `relocate` returns the new place of a range."""
        return pack([FORMAT, [chunk_log], end, self._relocate(self._root, relocate, chunk_log)])

    def _relocate(self, node: Any, relocate: Callable[[BodyRange], list[BodyRange]], chunk_log: int) -> Any:
        kind, rest = node
        if kind == INLINE:
            return node
        if kind == FIELDS:
            return [FIELDS, {name: self._relocate(inner, relocate, chunk_log) for name, inner in rest.items()}]
        ranges: list[BodyRange] = []
        for one in rest:
            append_ranges(ranges, relocate(one))
        return [kind, *flatten_ranges(ranges, {chunk_log: 0})]

    def assemble(self, bodies: Callable[[BodyRange], list[bytes]], salt: bytes) -> AssembledState:
        """The state, built from its bodies. `bodies` returns the bodies of a range."""
        return AssembledState(*self._assemble(self._root, bodies, Digester(salt)))

    def _assemble(
        self, node: Any, bodies: Callable[[BodyRange], list[bytes]], digester: Digester
    ) -> tuple[Any, bytes, Any]:
        kind, rest = node
        if kind == INLINE:
            digest = digester.body(rest)
            return rest, digest, StoredBytes(digest, rest, None)
        if kind == FIELDS:
            inner = {name: self._assemble(one, bodies, digester) for name, one in rest.items()}
            digest = digester.fields({name: one[1] for name, one in inner.items()})
            return {name: one[0] for name, one in inner.items()}, digest, {name: one[2] for name, one in inner.items()}
        found = [body for one in rest for body in bodies(one)]
        digests = [digester.body(body) for body in found]
        if kind == BODY:
            return found[0], digests[0], StoredBytes(digests[0], None, rest[0])
        return (
            found,
            digester.items(digests).digest(),
            StoredList(PersistentList(), None, PersistentList(digests), rest),
        )


def body_ranges(stored: dict[str, Any]) -> Iterable[tuple[bytes, BodyRange]]:
    """The digest and the range of each body of a stored state."""
    for one in stored.values():
        if type(one) is dict:
            yield from body_ranges(one)
        elif type(one) is StoredBytes and one.body is not None:
            yield one.digest, one.body
        elif type(one) is StoredList:
            single = (BodyRange(log, at, at + 1) for log, first, last in one.ranges for at in range(first, last))
            yield from zip(one.digests, single, strict=True)
