"""Putting a state together from what is stored already and what is new: see `manifest`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from ..errors import InvalidInput
from .manifest import FORMAT, PAGE, Digester, Fields, Items, Kept, KeptItems, KeptLeaf, Leaf, Span, flat, join, pack
from .persistent_list import Growing, growing

_INLINE = 64
"""Bytes up to which a value lies in the manifest itself: a reference would hardly be shorter."""
_RECENT = 8
"""Pieces of a list that are not put on a page: the last of them may still grow."""
_MISSES = 16
"""How many new items of a list are looked for in its past before the rest counts as new."""


class Woven(NamedTuple):
    """A manifest ready to be stored: its bytes, the digest of the state, the new bodies and the place where they begin, and
    what `Kept.learn` is told once it is stored. States that were woven together share bodies and place."""

    manifest: bytes
    digest: bytes
    bodies: list[bytes]
    chunk_log: int
    start: int
    fields: dict[str, Any]
    fresh: dict[bytes, Span]


def weave(name: str | None, fields: Fields, kept: Kept, salt: bytes) -> Woven:
    """Put a state together from what was kept and what is new."""
    return weave_all([(name, fields)], kept, salt)[0]


def weave_all(states: Iterable[tuple[str | None, Fields]], kept: Kept, salt: bytes) -> list[Woven]:
    """Put states together that will be stored at once, each from what was kept, what those before it brought, and what
    is new."""
    weaving = _Weaving(kept, Digester(salt))
    last: dict[str | None, dict[str, Any]] = {}
    woven = []
    for name, fields in states:
        weaving.chunk_logs = {weaving.chunk_log: 0}
        before = None if name is None else last.get(name) or kept.names.get(name)
        node, digest, last[name] = weaving.fields(fields, before)
        manifest = pack([FORMAT, list(weaving.chunk_logs), weaving.tip + len(weaving.bodies), node])
        woven.append(
            Woven(manifest, digest, weaving.bodies, weaving.chunk_log, weaving.tip, last[name], weaving.fresh),
        )
    return woven


def digest_of(fields: Fields, salt: bytes) -> bytes | None:
    """The digest of a state, before it is put together; None if some of it is not encoded yet."""
    digester = Digester(salt)
    return None if _is_lazy(fields) else _digest(fields, digester)


def _is_lazy(fields: Fields) -> bool:
    """Whether there are lists whose items are encoded only where they are new."""
    return any(
        _is_lazy(value) if type(value) is dict else type(value) is Items and value.encode is not bytes
        for value in fields.values()
    )


def _digest(value: Any, digester: Digester) -> bytes:
    if type(value) is Leaf:
        return digester.body(value.body)
    if type(value) is Items:
        return digester.items(map(digester.body, value.values)).digest()
    return digester.fields({name: _digest(inner, digester) for name, inner in value.items()})


class _Weaving:
    def __init__(self, kept: Kept, digester: Digester) -> None:
        self._kept = kept
        self.chunk_log, self.tip = kept.chunk_log, kept.tip
        self._digester = digester
        self.bodies: list[bytes] = []
        self.fresh: dict[bytes, Span] = {}
        self.chunk_logs: dict[int, int] = {self.chunk_log: 0}

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
                f"{type(value).__name__} is no chunk of a manifest", hint="give Leaf, Items, or a dict of them"
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
        keys = growing(items.freeze(values, old.keys if old.frozen == way else []))
        if old.frozen == way and old.keys and keys and keys[0] != old.keys[0]:  # it begins otherwise: like another?
            other = self._like(items)
            old = other if other.digests else old
        if old.frozen == way or not old.digests:
            runs = shared_runs(old.keys, keys)
        else:  # read from the store, where there are no stand-ins: compare by digest this once
            bodies = [items.encode(value) for value in values]
            runs = shared_runs(old.digests, Growing(map(self._digester.body, bodies)))
        begun = _NOTHING
        if runs[:1] == [(0, 0, len(old.digests))]:  # by far the most common: it grew at its end, or not at all
            begun, runs = old, runs[1:]
        spans: list[Span] = begun.spans.copy()
        fresh: list[bytes] = []
        for run in runs:
            fresh += self._continued(spans, run, items, bodies, old)
        digests = begun.digests.and_more(fresh) if begun.digests else Growing(fresh)
        hashed = self._digester.items(fresh if begun.hashed else digests, begun.hashed)
        return self._list(spans), hashed.digest(), KeptItems(keys, way, digests, spans, hashed)

    def _list(self, spans: list[Span]) -> Any:
        """A list's node. In many pieces, the older ones are put on pages, and pages on pages: those that were written
        stay the same while the list grows, and are shared like any other body."""
        levels: list[list[int]] = []
        while True:
            paged = (len(spans) - _RECENT) // PAGE * PAGE if len(spans) > _RECENT + PAGE else 0
            levels.append(self._flat(spans[paged:]))
            if not paged:
                break
            pages = [_page(spans[at : at + PAGE]) for at in range(0, paged, PAGE)]
            spans = [self._store(self._digester.body(page), page) for page in pages]
        return [2, *levels[0]] if len(levels) == 1 else [4, levels]

    def _like(self, items: Items) -> KeptItems:
        """A list of the session that begins with the same item, under whatever name."""
        if not items.values:
            return _NOTHING
        first = self._digester.body(items.encode(items.values[0]))
        return self._kept.heads.get(first) or _NOTHING

    def _continued(
        self, spans: list[Span], run: Run, items: Items, bodies: list[bytes] | None, old: KeptItems
    ) -> list[bytes]:
        """The digests of one run more of a list, whose place is added to the spans."""
        origin, first, last = run
        if origin is not None:
            stop = origin + last - first
            join(spans, _slice(old.spans, origin, stop))
            return old.digests[origin:stop]
        digests = []
        for body in bodies[first:last] if bodies else map(items.encode, items.values[first:last]):
            digest = self._digester.body(body)
            digests.append(digest)
            join(spans, [self._store(digest, body)])
        return digests

    def _store(self, digest: bytes, body: bytes) -> Span:
        """Where a body lies: the session may have it from elsewhere."""
        known = self._kept.bodies.get(digest) or self.fresh.get(digest)
        if known is not None:
            return known
        first = self.tip + len(self.bodies)
        self.bodies.append(body)
        self.fresh[digest] = Span(self.chunk_log, first, first + 1)
        return self.fresh[digest]

    def _flat(self, spans: Iterable[Span]) -> list[int]:
        return flat(spans, self.chunk_logs)


def _page(spans: list[Span]) -> bytes:
    chunk_logs: dict[int, int] = {}
    numbers = flat(spans, chunk_logs)
    return pack([list(chunk_logs), numbers])


Run = tuple[int | None, int, int]
"""A stretch of a list: where it lies in the list as it was (None: it is new), its first item, and where it ends."""
_NOTHING = KeptItems(Growing(), None, Growing(), [])


def shared_runs(old: Growing[Any], new: Growing[Any]) -> list[Run]:
    """A list as runs: old items in their order, and new ones."""
    known, count = len(old), len(new)
    if known and old.heads(new):
        return [(0, 0, known), (None, known, count)] if count > known else [(0, 0, known)]
    runs: list[Run] = []
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


def _find(old: Growing[Any], item: Any, start: int) -> int:
    try:
        return old.index(item, start)
    except ValueError:
        return -1


def _common(old: Growing[Any], start: int, new: Growing[Any], first: int) -> int:
    """How many items are the same from here on."""
    length = min(len(old) - start, len(new) - first)
    if old[start : start + length] == new[first : first + length]:
        return length
    # The first was found; it may still differ from itself, as NaN does.
    return next((index for index in range(1, length) if old[start + index] != new[first + index]), length)


def _slice(spans: list[Span], first: int, last: int) -> list[Span]:
    """The items first..last of a list that is made of spans."""
    found, passed = [], 0
    for chunk_log, begin, end in spans:
        low, high = max(first - passed, 0), min(last - passed, end - begin)
        if low < high:
            found.append(Span(chunk_log, begin + low, begin + high))
        passed += end - begin
    return found
