"""Seals chunks and manifests for the store, and reads them back."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ..journal.envelope import disclose, enclose
from ..journal.journal import Journal
from ..journal.owners import Owner
from ..journal.sealing import EnvelopeFlags
from ..ports import Bookmark, Chunk
from .manifest import BodyRange, Manifest

_pack = msgspec.msgpack.encode
_unpack = msgspec.msgpack.Decoder(list[bytes]).decode
_PLAIN = bytes((EnvelopeFlags.PLAIN,))
_NEAR = 32
"""Two ranges of a chunk log with at most this many bodies between them are read together."""


class Chunks:
    """Seals and reads the chunks and manifests of one workspace."""

    def __init__(self, journal: Journal) -> None:
        self._store = journal.store
        self._workspace = journal.workspace
        self._ids = journal.ids

    def seal_chunk(self, session: str, chunk_log: int, start: int, bodies: list[bytes], owner: Owner) -> Chunk:
        """Bodies as a sealed chunk of a chunk log."""
        where = _pack((self._workspace, session, chunk_log, start))
        return Chunk(chunk_log, start, len(bodies), owner.ref, enclose(_pack(bodies), owner, where, self._ids))

    def seal_manifest(self, session: str, name: str, id: str, manifest: bytes, owner: Owner) -> bytes:
        """A packed manifest, sealed for the row of a bookmark."""
        where = _pack((self._workspace, session, name, id)) if owner.data_key else b""
        return enclose(manifest, owner, where, self._ids)

    async def open_manifest(self, session: str, bookmark: Bookmark, owner: Owner) -> Manifest:
        """The manifest of a bookmark, with its pages. Raises ValueError if it was changed or moved."""
        where = _pack((self._workspace, session, bookmark.name, bookmark.id))
        try:
            manifest = Manifest(disclose(bookmark.manifest or b"", owner, where))
            while pages := manifest.unread_pages():
                bodies = await self.bodies(session, pages, owner)
                manifest.add_pages([bodies[page.chunk_log, page.first] for page in pages])
        except (KeyError, IndexError, TypeError, AttributeError, msgspec.DecodeError) as error:
            raise ValueError(f"its manifest is damaged, or one of its pages is missing ({error})") from error
        return manifest

    async def bodies(self, session: str, ranges: Sequence[BodyRange], owner: Owner) -> dict[tuple[int, int], bytes]:
        """The bodies of some ranges, by chunk log and index. A body is left out if its chunk is missing or cannot be
        opened."""
        found: dict[tuple[int, int], bytes] = {}
        for chunk_log, first, last in _merged(ranges):
            for _, start, _, _, envelope in await self._store.chunks(self._workspace, session, chunk_log, first, last):
                try:
                    if envelope[:1] == _PLAIN:  # a faster path, because there may be hundreds of chunks
                        bodies = _unpack(memoryview(envelope)[1:])
                    else:
                        where = _pack((self._workspace, session, chunk_log, start))
                        bodies = _unpack(disclose(envelope, owner, where))
                except (msgspec.DecodeError, ValueError):
                    continue
                for index, body in enumerate(bodies, start):
                    found[chunk_log, index] = body
        return found


def _merged(ranges: Sequence[BodyRange]) -> list[BodyRange]:
    merged: list[BodyRange] = []
    for one in sorted(ranges):
        last = merged[-1] if merged else None
        if last is not None and last.chunk_log == one.chunk_log and one.first <= last.last + _NEAR:
            merged[-1] = BodyRange(one.chunk_log, last.first, max(last.last, one.last))
        else:
            merged.append(one)
    return merged
