"""How a state is put together from what earlier checkpoints stored already.

A state is a tree of fields, lists and opaque bytes. All bytes that are new in a checkpoint go to the end of a strand, a
list of bodies that only grows; the checkpoint's form says which of them it is made of. A list that grew at its end,
lost its front or was edited in the middle therefore costs what is new in it, and a value that did not change costs a
reference. The digest of the state covers every byte of it, however it is put together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from ..errors import InvalidInput

_pack = msgspec.msgpack.encode
_INLINE = 64
"""Bytes up to which a value lies in the form itself: a reference would hardly be shorter."""
_MOST_SPANS = 64
"""A list in more pieces than this is written anew in one."""
_MISSES = 16
"""How many new items of a list are looked for in its past before the rest counts as new."""
_DIGEST = 16
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class Leaf:
    """Opaque bytes."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Items:
    """A list. `encode` gives the bytes of a value; `freeze` a list of stand-ins that are equal only if the values have
    the same bytes, and that no change to the values in place can reach. It is given the stand-ins of the list as it
    was, to use them again where nothing changed."""

    values: Sequence[Any]
    encode: Callable[[Any], bytes]
    freeze: Callable[[Sequence[Any], list[Any]], list[Any]]


Fields = dict[str, Any]
"""Names to `Leaf`, `Items` and further `Fields`."""


class Span(NamedTuple):
    """The items of a strand from `first` to before `last`."""

    strand: int
    first: int
    last: int


@dataclass(slots=True)
class KeptLeaf:
    """A value as it was last stored: here, or as one item of a strand."""

    digest: bytes
    here: bytes | None
    span: Span | None


@dataclass(slots=True)
class KeptItems:
    """A list as it was last stored. `keys` are its stand-ins and `frozen` is how they were made, which must be the same
    for them to be compared; there are none if it was read."""

    keys: list[Any]
    frozen: tuple[Any, Any] | None
    digests: list[bytes]
    spans: list[Span]


_NAMES = 32
_HEADS = 64
_HEAD_ITEMS = 20_000
_BODIES = 4096


@dataclass(slots=True)
class Kept:
    """What the writer of the next checkpoint of a session knows about those before: where the strand ends, what the
    last state under each name was made of, lists by the digest of their first item, and bodies by theirs."""

    strand: int
    tip: int
    names: dict[str, dict[str, Any]] = field(default_factory=dict)
    heads: dict[bytes, KeptItems] = field(default_factory=dict)
    bodies: dict[bytes, Span] = field(default_factory=dict)

    def learn(self, name: str | None, fields: dict[str, Any], fresh: Iterable[tuple[bytes, Span]]) -> None:
        """Remember what a stored state is made of, and which of its bodies are new."""
        if name is not None:
            _put(self.names, name, fields, _NAMES)
        self._learn(fields)
        for digest, span in fresh:
            _put(self.bodies, digest, span, _BODIES)

    def _learn(self, fields: dict[str, Any]) -> None:
        for kept in fields.values():
            if type(kept) is dict:
                self._learn(kept)
            elif type(kept) is KeptItems and kept.digests:
                _put(self.heads, kept.digests[0], kept, _HEADS)
                while len(self.heads) > 1 and sum(len(one.digests) for one in self.heads.values()) > _HEAD_ITEMS:
                    del self.heads[next(iter(self.heads))]


def _put(remembered: dict[Any, Any], key: Any, value: Any, most: int) -> None:
    remembered.pop(key, None)
    remembered[key] = value
    if len(remembered) > most:
        del remembered[next(iter(remembered))]


class Digester:
    """Digests under an owner's salt: once it is gone, nobody can guess a value back from its digest."""

    def __init__(self, salt: bytes) -> None:
        self._salt = salt

    def body(self, body: bytes) -> bytes:
        """Of opaque bytes."""
        return blake2b(body, digest_size=_DIGEST, key=self._salt, person=b"holdfast.leaf").digest()

    def items(self, digests: Iterable[bytes]) -> bytes:
        """Of a list, from those of its items."""
        return blake2b(b"".join(digests), digest_size=_DIGEST, key=self._salt, person=b"holdfast.list").digest()

    def fields(self, digests: dict[str, bytes]) -> bytes:
        """Of fields, from theirs, in their order."""
        return blake2b(_pack(digests), digest_size=_DIGEST, key=self._salt, person=b"holdfast.fields").digest()


class Woven(NamedTuple):
    """A form ready to be stored: its bytes, the digest of the state, the new bodies and the place where they begin, and
    what `Kept.learn` is told once it is stored."""

    form: bytes
    digest: bytes
    bodies: list[bytes]
    strand: int
    start: int
    fields: dict[str, Any]
    fresh: dict[bytes, Span]


def weave(name: str | None, fields: Fields, kept: Kept, salt: bytes) -> Woven:
    """Put a state together from what was kept and what is new."""
    weaving = _Weaving(kept, Digester(salt))
    node, digest, after = weaving.fields(fields, kept.names.get(name) if name is not None else None)
    form = _pack([_FORMAT, list(weaving.strands), weaving.tip + len(weaving.bodies), node])
    return Woven(form, digest, weaving.bodies, weaving.strand, weaving.tip, after, weaving.fresh)


class _Weaving:
    def __init__(self, kept: Kept, digester: Digester) -> None:
        self._kept = kept
        self.strand, self.tip = kept.strand, kept.tip
        self._digester = digester
        self.bodies: list[bytes] = []
        self.fresh: dict[bytes, Span] = {}
        self.strands: dict[int, int] = {self.strand: 0}

    def fields(self, fields: Fields, kept: Any) -> tuple[Any, bytes, dict[str, Any]]:
        known = kept if type(kept) is dict else {}
        nodes, digests, after = {}, {}, {}
        for name, value in fields.items():
            nodes[name], digests[name], after[name] = self._any(value, known.get(name))
        return [3, nodes], self._digester.fields(digests), after

    def _any(self, value: Any, kept: Any) -> tuple[Any, bytes, Any]:
        if type(value) is Leaf:
            return self._leaf(value.body, kept)
        if type(value) is Items:
            return self._items(value, kept)
        if type(value) is not dict:
            raise InvalidInput(
                f"{type(value).__name__} is no part of a form", hint="give Leaf, Items, or a dict of them"
            )
        return self.fields(value, kept)

    def _leaf(self, body: bytes, kept: Any) -> tuple[Any, bytes, KeptLeaf]:
        digest = self._digester.body(body)
        if len(body) <= _INLINE:
            return [0, body], digest, KeptLeaf(digest, body, None)
        span = kept.span if type(kept) is KeptLeaf and kept.digest == digest else None
        if span is None:
            span = self._store(digest, body)
        return [1, *self._flat([span])], digest, KeptLeaf(digest, None, span)

    def _items(self, items: Items, kept: Any) -> tuple[Any, bytes, KeptItems]:
        old = kept if type(kept) is KeptItems and kept.digests else self._like(items)
        values, way = items.values, (items.encode, items.freeze)
        bodies: list[bytes] | None = None
        keys = items.freeze(values, old.keys if old.frozen == way else [])
        if old.frozen == way and old.keys and keys and keys[0] != old.keys[0]:  # it begins otherwise: like another?
            other = self._like(items)
            old = other if other.digests else old
        if old.frozen == way or not old.digests:
            wanted = keys
        else:  # read from the store, where there are no stand-ins: compare by digest this once
            bodies = [items.encode(value) for value in values]
            wanted = [self._digester.body(body) for body in bodies]
        runs = shared_runs(old.keys if bodies is None else old.digests, wanted)
        spans, digests = self._put_together(items, bodies, runs, old)
        if len(spans) > max(_MOST_SPANS, len(values) // 2):
            bodies = bodies or [items.encode(value) for value in values]
            first = self.tip + len(self.bodies)
            self.bodies += bodies  # written anew in one piece
            spans = [Span(self.strand, first, first + len(bodies))]
        return [2, *self._flat(spans)], self._digester.items(digests), KeptItems(keys, way, digests, spans)

    def _like(self, items: Items) -> KeptItems:
        """A list of the session that begins with the same item, under whatever name."""
        if not items.values:
            return KeptItems([], None, [], [])
        first = self._digester.body(items.encode(items.values[0]))
        return self._kept.heads.get(first) or KeptItems([], None, [], [])

    def _put_together(
        self, items: Items, bodies: list[bytes] | None, runs: Sequence[tuple[int | None, int, int]], old: KeptItems
    ) -> tuple[list[Span], list[bytes]]:
        """The spans and digests of a list that is made of runs: old items from an index, or new ones (None)."""
        spans: list[Span] = []
        digests: list[bytes] = []
        for origin, first, last in runs:
            if origin is None:
                fresh = bodies[first:last] if bodies else [items.encode(value) for value in items.values[first:last]]
                for body in fresh:
                    digest = self._digester.body(body)
                    digests.append(digest)
                    _join(spans, [self._store(digest, body)])
            else:
                stop = origin + last - first
                digests += old.digests[origin:stop]
                _join(spans, _slice(old.spans, origin, stop))
        return spans, digests

    def _store(self, digest: bytes, body: bytes) -> Span:
        """Where a body lies: the session may have it from elsewhere."""
        known = self._kept.bodies.get(digest) or self.fresh.get(digest)
        if known is not None:
            return known
        first = self.tip + len(self.bodies)
        self.bodies.append(body)
        self.fresh[digest] = Span(self.strand, first, first + 1)
        return self.fresh[digest]

    def _flat(self, spans: Iterable[Span]) -> list[int]:
        flat: list[int] = []
        for strand, first, last in spans:
            flat += (self.strands.setdefault(strand, len(self.strands)), first, last)
        return flat


def shared_runs(old: list[Any], new: list[Any]) -> list[tuple[int | None, int, int]]:
    """A list as runs of (where it lies in `old`, first, last): old items in their order, and new ones (None)."""
    known, count = len(old), len(new)
    if known and old == new[:known]:  # by far the most common: it grew at its end, or not at all
        return [(0, 0, known), (None, known, count)] if count > known else [(0, 0, known)]
    runs: list[tuple[int | None, int, int]] = []
    here, there, misses = 0, 0, 0
    while here < count:
        found = _find(old, new[here], there) if there < known and misses < _MISSES else -1
        if found < 0:
            misses += 1
            if runs and runs[-1][0] is None:
                runs[-1] = (None, runs[-1][1], here + 1)
            else:
                runs.append((None, here, here + 1))
            here += 1
            continue
        length = _common(old, found, new, here)
        runs.append((found, here, here + length))
        here, there = here + length, found + length
    return runs


def _find(old: list[Any], item: Any, start: int) -> int:
    try:
        return old.index(item, start)
    except ValueError:
        return -1


def _common(old: list[Any], start: int, new: list[Any], first: int) -> int:
    """How many items are the same from here on."""
    length = min(len(old) - start, len(new) - first)
    if old[start : start + length] == new[first : first + length]:
        return length
    # The first was found; it may still differ from itself, as NaN does.
    return next((index for index in range(1, length) if old[start + index] != new[first + index]), length)


def _slice(spans: list[Span], first: int, last: int) -> list[Span]:
    """The items first..last of a list that is made of spans."""
    found, passed = [], 0
    for strand, begin, end in spans:
        low, high = max(first - passed, 0), min(last - passed, end - begin)
        if low < high:
            found.append(Span(strand, begin + low, begin + high))
        passed += end - begin
    return found


def _join(spans: list[Span], more: list[Span]) -> None:
    """Add spans at the end, as one where they follow on each other."""
    for span in more:
        if spans and spans[-1].strand == span.strand and spans[-1].last == span.first:
            spans[-1] = Span(span.strand, spans[-1].first, span.last)
        elif span.first < span.last:
            spans.append(span)


class Form:
    """A stored form, read. Raises ValueError where it makes no sense."""

    def __init__(self, packed: bytes) -> None:
        try:
            version, strands, tip, node = msgspec.msgpack.decode(packed)
        except (msgspec.DecodeError, TypeError, ValueError) as error:
            raise ValueError(f"its form does not decode: {error}") from error
        if version != _FORMAT or not strands or not isinstance(tip, int):
            raise ValueError("its form is of a kind that is not known here")
        self._strands: list[int] = strands
        self._node = node
        self.strand: int = strands[0]
        self.tip: int = tip

    def spans(self) -> list[Span]:
        """Everything that it is made of."""
        found: list[Span] = []
        self._collect(self._node, found)
        return found

    def _collect(self, node: Any, found: list[Span]) -> None:
        kind, *rest = node
        if kind == 3:
            for inner in rest[0].values():
                self._collect(inner, found)
        elif kind != 0:
            found += self._unflat(rest)

    def _unflat(self, flat: list[int]) -> list[Span]:
        return [Span(self._strands[flat[index]], flat[index + 1], flat[index + 2]) for index in range(0, len(flat), 3)]

    def moved(self, move: Callable[[Span], list[Span]], strand: int, tip: int) -> bytes:
        """The same form with all its items elsewhere: `move` says where a span lies in the new strand."""
        return _pack([_FORMAT, [strand], tip, self._move(self._node, move)])

    def _move(self, node: Any, move: Callable[[Span], list[Span]]) -> Any:
        kind, *rest = node
        if kind == 0:
            return node
        if kind == 3:
            return [3, {name: self._move(inner, move) for name, inner in rest[0].items()}]
        spans: list[Span] = []
        for span in self._unflat(rest):
            _join(spans, move(span))
        return [kind, *(number for _, first, last in spans for number in (0, first, last))]

    def assemble(
        self, bodies: Callable[[Span], list[bytes]], salt: bytes
    ) -> tuple[dict[str, Any], bytes, dict[str, Any]]:
        """The state, its digest, and what `Kept.learn` is told; `bodies` gives the items of a span."""
        state, digest, fields = self._open(self._node, bodies, Digester(salt))
        return state, digest, fields

    def _open(self, node: Any, bodies: Callable[[Span], list[bytes]], digester: Digester) -> tuple[Any, bytes, Any]:
        kind, *rest = node
        if kind == 0:
            digest = digester.body(rest[0])
            return rest[0], digest, KeptLeaf(digest, rest[0], None)
        if kind == 3:
            opened = {name: self._open(inner, bodies, digester) for name, inner in rest[0].items()}
            digest = digester.fields({name: one[1] for name, one in opened.items()})
            return (
                {name: one[0] for name, one in opened.items()},
                digest,
                {name: one[2] for name, one in opened.items()},
            )
        spans = self._unflat(rest)
        found = [body for span in spans for body in bodies(span)]
        digests = [digester.body(body) for body in found]
        if kind == 1:
            return found[0], digests[0], KeptLeaf(digests[0], None, spans[0])
        return found, digester.items(digests), KeptItems([], None, digests, spans)


def bodies_of(fields: dict[str, Any]) -> Iterable[tuple[bytes, Span]]:
    """The bodies that a state is made of, by digest, for `Kept.learn`."""
    for kept in fields.values():
        if type(kept) is dict:
            yield from bodies_of(kept)
        elif type(kept) is KeptLeaf and kept.span is not None:
            yield kept.digest, kept.span
        elif type(kept) is KeptItems:
            places = (Span(strand, at, at + 1) for strand, first, last in kept.spans for at in range(first, last))
            yield from zip(kept.digests, places, strict=True)
