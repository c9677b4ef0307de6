"""Encodes states as a process would, into chunk logs in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from duramen.checkpoints.delta import Delta, DeltaBase, encode_deltas
from duramen.checkpoints.manifest import BodyRange, BytesField, ListField, Manifest, body_ranges
from duramen.checkpoints.removal import in_first_use_order, relocation

encode = msgspec.msgpack.encode
CHUNK_LOG = 77
SALT = b"salt"


def snapshot_bytes(values: Sequence[Any], known: list[Any]) -> list[Any]:
    """Snapshots that distinguish 1 from True and 1.0."""
    return [encode(value) for value in values]


def encode_delta(name: str | None, fields: dict[str, Any], base: DeltaBase, salt: bytes) -> Delta:
    """The delta of one state."""
    return encode_deltas([(name, fields)], base, salt)[0]


def list_field(values: Sequence[Any]) -> ListField:
    """A list field of any values."""
    return ListField(values, encode, snapshot_bytes)


def as_loaded(fields: dict[str, Any]) -> dict[str, Any]:
    """The same fields as reading returns them."""
    return {name: _as_loaded(value) for name, value in fields.items()}


def _as_loaded(value: Any) -> Any:
    if isinstance(value, BytesField):
        return value.body
    return [value.encode(one) for one in value.values] if isinstance(value, ListField) else as_loaded(value)


class DeltaWriter:
    """Encodes states as a process would, into chunk logs in memory."""

    def __init__(self, salt: bytes = SALT) -> None:
        self.salt = salt
        self.chunk_logs: dict[int, list[bytes]] = {CHUNK_LOG: []}
        self.base = DeltaBase(CHUNK_LOG, 0)
        self.manifests: list[tuple[bytes, bytes, dict[str, Any]]] = []
        self.written: list[int] = []

    def save(self, name: str | None, fields: dict[str, Any]) -> int:
        """Store a state and check that it and its digest can be read back. Returns the number of written bodies."""
        delta = encode_delta(name, fields, self.base, self.salt)
        chunk_log = self.chunk_logs[delta.chunk_log]
        assert delta.start == len(chunk_log)
        chunk_log += delta.bodies
        self.base.end = len(chunk_log)
        self.base.add(name, delta.stored, delta.new_bodies.items())
        assert Manifest(delta.manifest).end == len(chunk_log)
        self.manifests.append((delta.manifest, delta.digest, as_loaded(fields)))
        self.check(delta.manifest, delta.digest, as_loaded(fields))
        self.written.append(sum(map(len, delta.bodies)) + len(delta.manifest))
        return len(delta.bodies)

    def check(self, manifest: bytes, digest: bytes, wanted: dict[str, Any]) -> None:
        state, read_digest, _ = self.read(manifest).assemble(self.bodies, self.salt)
        assert state == wanted
        assert list(state) == list(wanted)
        assert read_digest == digest

    def read(self, packed: bytes) -> Manifest:
        """A manifest with all its pages."""
        manifest = Manifest(packed)
        while pages := manifest.unread_pages():
            manifest.add_pages([self.chunk_logs[page.chunk_log][page.first] for page in pages])
        return manifest

    def bodies(self, one: BodyRange) -> list[bytes]:
        bodies = self.chunk_logs[one.chunk_log][one.first : one.last]
        assert len(bodies) == one.last - one.first
        return bodies

    def reopen(self, name: str) -> None:
        """Continue as another process that has read the last state."""
        manifest = self.read(self.manifests[-1][0])
        _, _, fields = manifest.assemble(self.bodies, self.salt)
        self.base = DeltaBase(manifest.chunk_log, manifest.end)
        self.base.add(name, fields, body_ranges(fields))

    def relocate(self) -> None:
        """Relocate all states to another chunk log, as a removal does."""
        manifests = [self.read(manifest) for manifest, _, _ in self.manifests]
        needed = in_first_use_order(one for manifest in reversed(manifests) for one in manifest.ranges())
        relocated_bodies = [body for one in needed for body in self.bodies(one)]
        assert len({(one.chunk_log, at) for one in needed for at in range(*one[1:])}) == len(relocated_bodies), (
            "each body once"
        )
        name = max(self.chunk_logs) + 1
        self.chunk_logs = {name: relocated_bodies}
        moved = [manifest.relocated(relocation(needed, name), name, len(relocated_bodies)) for manifest in manifests]
        self.manifests = [
            (manifest, digest, wanted) for manifest, (_, digest, wanted) in zip(moved, self.manifests, strict=True)
        ]
        for manifest, digest, state in self.manifests:
            self.check(manifest, digest, state)
        self.base = DeltaBase(name, len(relocated_bodies))
