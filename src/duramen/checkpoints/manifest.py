"""How a state is put together from what earlier checkpoints stored already.

A state is a tree of fields, lists and opaque bytes. All bytes that are new in a checkpoint go to the end of a chunk_log, a
list of bodies that only grows; the checkpoint's manifest says which of them it is made of. A list that grew at its end,
lost its front or was edited in the middle therefore costs what is new in it, and a value that did not change costs a
reference. The digest of the state covers every byte of it, however it is put together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec

from .persistent_list import Growing

pack = msgspec.msgpack.encode
_DIGEST = 16
FORMAT = 1
PAGE = 24
"""Pieces of a list on one page."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """Opaque bytes."""

    body: bytes


@dataclass(frozen=True, slots=True)
class Items:
    """A list. `encode` gives the bytes of a value; `freeze` a list of stand-ins that are equal only if the values have
    the same bytes, and that no change to the values in place can reach. It is given the stand-ins of the list as it
    was, to use them again where nothing changed: best by `Growing.and_more`, which copies none of them."""

    values: Sequence[Any]
    encode: Callable[[Any], bytes]
    freeze: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]


Fields = dict[str, Any]
"""Names to `Leaf`, `Items` and further `Fields`."""


class Span(NamedTuple):
    """The items of a chunk_log from `first` to before `last`."""

    chunk_log: int
    first: int
    last: int


@dataclass(slots=True)
class KeptLeaf:
    """A value as it was last stored: here, or as one item of a chunk_log."""

    digest: bytes
    here: bytes | None
    span: Span | None


@dataclass(slots=True)
class KeptItems:
    """A list as it was last stored. `keys` are its stand-ins and `frozen` is how they were made, which must be the same
    for them to be compared; there are none if it was read. `hashed` is what its digest was taken from, to go on."""

    keys: Growing[Any]
    frozen: tuple[Any, Any] | None
    digests: Growing[bytes]
    spans: list[Span]
    hashed: blake2b | None = None


_NAMES = 32
_HEADS = 64
_HEAD_ITEMS = 20_000
_BODIES = 4096


@dataclass(slots=True)
class Kept:
    """What the writer of the next checkpoint of a session knows about those before: where the chunk_log ends, what the
    last state under each name was made of, lists by the digest of their first item, and bodies by theirs."""

    chunk_log: int
    tip: int
    names: dict[str, dict[str, Any]] = field(default_factory=dict)
    heads: dict[bytes, KeptItems] = field(default_factory=dict)
    bodies: dict[bytes, Span] = field(default_factory=dict)
    _items: int = 0
    """Of the lists in `heads`, in all."""

    def learn(self, name: str | None, fields: dict[str, Any], fresh: Iterable[tuple[bytes, Span]] = ()) -> None:
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
                self._learn_head(kept.digests[0], kept)

    def _learn_head(self, first: bytes, kept: KeptItems) -> None:
        before = self.heads.pop(first, None)
        self.heads[first] = kept
        self._items += len(kept.digests) - (0 if before is None else len(before.digests))
        while len(self.heads) > _HEADS or (len(self.heads) > 1 and self._items > _HEAD_ITEMS):
            self._items -= len(self.heads.pop(next(iter(self.heads))).digests)


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
        return blake2b(body, digest_size=_DIGEST, key=self._salt, person=b"duramen.leaf").digest()

    def items(self, digests: Iterable[bytes], begun: blake2b | None = None) -> blake2b:
        """Of a list, from those of its items: the rest of them, if it was begun before."""
        if begun is None:
            return blake2b(b"".join(digests), digest_size=_DIGEST, key=self._salt, person=b"duramen.list")
        hashed = begun.copy()
        hashed.update(b"".join(digests))
        return hashed

    def fields(self, digests: dict[str, bytes]) -> bytes:
        """Of fields, from theirs, in their order."""
        return blake2b(pack(digests), digest_size=_DIGEST, key=self._salt, person=b"duramen.fields").digest()


def join(spans: list[Span], more: list[Span]) -> None:
    """Add spans at the end, as one where they follow on each other."""
    for span in more:
        if spans and spans[-1].chunk_log == span.chunk_log and spans[-1].last == span.first:
            spans[-1] = Span(span.chunk_log, spans[-1].first, span.last)
        elif span.first < span.last:
            spans.append(span)


def flat(spans: Iterable[Span], chunk_logs: dict[int, int]) -> list[int]:
    """Spans as small numbers: the chunk_log's number, the distance from the span before, the length."""
    numbers: list[int] = []
    before = 0
    for chunk_log, first, last in spans:
        numbers += (chunk_logs.setdefault(chunk_log, len(chunk_logs)), first - before, last - first)
        before = last
    return numbers


def unflat(numbers: list[int], chunk_logs: list[int]) -> list[Span]:
    """The spans of such numbers."""
    spans, before = [], 0
    for at in range(0, len(numbers), 3):
        first = before + numbers[at + 1]
        before = first + numbers[at + 2]
        spans.append(Span(chunk_logs[numbers[at]], first, before))
    return spans


class Manifest:
    """A stored manifest, read. Raises ValueError where it makes no sense. While `pages` gives some, they are to be read and
    given to `turn`; the rest works after that."""

    def __init__(self, packed: bytes) -> None:
        try:
            version, chunk_logs, tip, node = msgspec.msgpack.decode(packed)
        except (msgspec.DecodeError, TypeError, ValueError) as error:
            raise ValueError(f"its manifest does not decode: {error}") from error
        if version != FORMAT or not chunk_logs or not isinstance(tip, int):
            raise ValueError("its manifest is of a kind that is not known here")
        self._chunk_logs: list[int] = chunk_logs
        self._paged: list[tuple[Any, list[Span], list[Any]]] = []
        self.own: list[Span] = []
        """Where its pages lie."""
        self._node = self._place(node)
        self.chunk_log: int = chunk_logs[0]
        self.tip: int = tip

    def _place(self, node: Any) -> Any:
        """A node with spans in place of numbers."""
        kind, *rest = node
        if kind == 3:
            return [3, {name: self._place(inner) for name, inner in rest[0].items()}]
        if kind == 4:
            levels = [self._unflat(level) for level in rest[0]]
            placed: list[Any] = [2, []]
            self._paged.append((placed, levels.pop(), levels))
            return placed
        return node if kind == 0 else [kind, self._unflat(rest)]

    def _unflat(self, flat: list[int]) -> list[Span]:
        return unflat(flat, self._chunk_logs)

    def pages(self) -> list[Span]:
        """The pages that are to be read next."""
        return [span for _, pages, _ in self._paged for span in pages]

    def turn(self, bodies: list[bytes]) -> None:
        """Read what stands on those pages."""
        turned = []
        read = iter(bodies)
        for placed, pages, levels in self._paged:
            self.own += pages
            spans: list[Span] = []
            for _ in pages:
                chunk_logs, flat = msgspec.msgpack.decode(next(read))
                spans += unflat(flat, chunk_logs)
            spans += levels.pop()
            if levels:
                turned.append((placed, spans, levels))
            else:
                placed[1] = spans
        self._paged = turned

    def spans(self) -> list[Span]:
        """Everything that the state is made of."""
        found: list[Span] = []
        self._collect(self._node, found)
        return found

    def _collect(self, node: Any, found: list[Span]) -> None:
        kind, rest = node
        if kind == 3:
            for inner in rest.values():
                self._collect(inner, found)
        elif kind != 0:
            found += rest

    def moved(self, move: Callable[[Span], list[Span]], chunk_log: int, tip: int) -> bytes:
        """The same manifest with all its items elsewhere: `move` says where a span lies in the new chunk_log."""
        return pack([FORMAT, [chunk_log], tip, self._move(self._node, move, chunk_log)])

    def _move(self, node: Any, move: Callable[[Span], list[Span]], chunk_log: int) -> Any:
        kind, rest = node
        if kind == 0:
            return node
        if kind == 3:
            return [3, {name: self._move(inner, move, chunk_log) for name, inner in rest.items()}]
        spans: list[Span] = []
        for span in rest:
            join(spans, move(span))
        return [kind, *flat(spans, {chunk_log: 0})]

    def assemble(
        self, bodies: Callable[[Span], list[bytes]], salt: bytes
    ) -> tuple[dict[str, Any], bytes, dict[str, Any]]:
        """The state, its digest, and what `Kept.learn` is told; `bodies` gives the items of a span."""
        state, digest, fields = self._open(self._node, bodies, Digester(salt))
        return state, digest, fields

    def _open(self, node: Any, bodies: Callable[[Span], list[bytes]], digester: Digester) -> tuple[Any, bytes, Any]:
        kind, rest = node
        if kind == 0:
            digest = digester.body(rest)
            return rest, digest, KeptLeaf(digest, rest, None)
        if kind == 3:
            opened = {name: self._open(inner, bodies, digester) for name, inner in rest.items()}
            digest = digester.fields({name: one[1] for name, one in opened.items()})
            return (
                {name: one[0] for name, one in opened.items()},
                digest,
                {name: one[2] for name, one in opened.items()},
            )
        found = [body for span in rest for body in bodies(span)]
        digests = [digester.body(body) for body in found]
        if kind == 1:
            return found[0], digests[0], KeptLeaf(digests[0], None, rest[0])
        return found, digester.items(digests).digest(), KeptItems(Growing(), None, Growing(digests), rest)


def bodies_of(fields: dict[str, Any]) -> Iterable[tuple[bytes, Span]]:
    """The bodies that a state is made of, by digest, for `Kept.learn`."""
    for kept in fields.values():
        if type(kept) is dict:
            yield from bodies_of(kept)
        elif type(kept) is KeptLeaf and kept.span is not None:
            yield kept.digest, kept.span
        elif type(kept) is KeptItems:
            places = (Span(chunk_log, at, at + 1) for chunk_log, first, last in kept.spans for at in range(first, last))
            yield from zip(kept.digests, places, strict=True)
