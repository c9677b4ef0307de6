"""Weaves states as a process would, onto chunk_logs that are kept in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from duramen.checkpoints.delta import weave
from duramen.checkpoints.manifest import Items, Kept, Leaf, Manifest, Span, bodies_of
from duramen.checkpoints.removal import in_order, mover

encode = msgspec.msgpack.encode
STRAND = 77
SALT = b"salt"


def by_bytes(values: Sequence[Any], known: list[Any]) -> list[Any]:
    """Stand-ins that tell 1 from True and 1.0."""
    return [encode(value) for value in values]


def items(values: Sequence[Any]) -> Items:
    return Items(values, encode, by_bytes)


def plain(fields: dict[str, Any]) -> dict[str, Any]:
    """What reading such fields must give."""
    return {name: _plain(value) for name, value in fields.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, Leaf):
        return value.body
    return [value.encode(one) for one in value.values] if isinstance(value, Items) else plain(value)


class Writer:
    """Weaves states as a process would, onto chunk_logs that it keeps in memory."""

    def __init__(self, salt: bytes = SALT) -> None:
        self.salt = salt
        self.chunk_logs: dict[int, list[bytes]] = {STRAND: []}
        self.kept = Kept(STRAND, 0)
        self.manifests: list[tuple[bytes, bytes, dict[str, Any]]] = []
        self.written: list[int] = []

    def save(self, name: str | None, fields: dict[str, Any]) -> int:
        """Store a state, look whether it and its digest can be read back, and say how many bodies were written."""
        woven = weave(name, fields, self.kept, self.salt)
        chunk_log = self.chunk_logs[woven.chunk_log]
        assert woven.start == len(chunk_log)
        chunk_log += woven.bodies
        self.kept.tip = len(chunk_log)
        self.kept.learn(name, woven.fields, woven.fresh.items())
        assert Manifest(woven.manifest).tip == len(chunk_log)
        self.manifests.append((woven.manifest, woven.digest, plain(fields)))
        self.check(woven.manifest, woven.digest, plain(fields))
        self.written.append(sum(map(len, woven.bodies)) + len(woven.manifest))
        return len(woven.bodies)

    def check(self, manifest: bytes, digest: bytes, wanted: dict[str, Any]) -> None:
        state, found, _ = self.read(manifest).assemble(self.bodies, self.salt)
        assert state == wanted
        assert list(state) == list(wanted)
        assert found == digest

    def read(self, packed: bytes) -> Manifest:
        """A manifest with all its pages turned."""
        manifest = Manifest(packed)
        while pages := manifest.pages():
            manifest.turn([self.chunk_logs[page.chunk_log][page.first] for page in pages])
        return manifest

    def bodies(self, span: Span) -> list[bytes]:
        found = self.chunk_logs[span.chunk_log][span.first : span.last]
        assert len(found) == span.last - span.first
        return found

    def reopen(self, name: str) -> None:
        """Go on as another process would that read the last state."""
        manifest = self.read(self.manifests[-1][0])
        _, _, fields = manifest.assemble(self.bodies, self.salt)
        self.kept = Kept(manifest.chunk_log, manifest.tip)
        self.kept.learn(name, fields, bodies_of(fields))

    def move(self) -> None:
        """Put all states together anew on another chunk_log, as dropping does."""
        manifests = [self.read(manifest) for manifest, _, _ in self.manifests]
        needed = in_order(span for manifest in reversed(manifests) for span in manifest.spans())
        fresh = [body for span in needed for body in self.bodies(span)]
        assert len({(span.chunk_log, at) for span in needed for at in range(*span[1:])}) == len(fresh), "each once"
        name = max(self.chunk_logs) + 1
        self.chunk_logs = {name: fresh}
        moved = [manifest.moved(mover(needed, name), name, len(fresh)) for manifest in manifests]
        self.manifests = [
            (manifest, digest, wanted) for manifest, (_, digest, wanted) in zip(moved, self.manifests, strict=True)
        ]
        for manifest, digest, state in self.manifests:
            self.check(manifest, digest, state)
        self.kept = Kept(name, len(fresh))
