"""Envelopes for bytes that are stored outside the events: compressed if that saves space, and sealed."""

from __future__ import annotations

import zstandard

from ..errors import KeyMissing
from ..ports import Ids
from .owners import Owner
from .sealing import NONCE_BYTES, EnvelopeFlags, seal, unseal

_COMPRESS_ABOVE = 512
"""Compression is tried for bodies with more bytes than this."""

_idle: list[zstandard.ZstdCompressor] = []
"""Unused compressors. Creating one takes longer than most compressions."""


def _compressed(body: bytes) -> bytes:
    try:
        compressor = _idle.pop()
    except IndexError:
        compressor = zstandard.ZstdCompressor(level=3)
    compressed = compressor.compress(body)
    _idle.append(compressor)
    return compressed


def enclose(body: bytes, owner: Owner, where: bytes, ids: Ids) -> bytes:
    """The envelope of `body`: compressed if that saves a tenth, and sealed with the owner's key if it has one. A sealed
    envelope opens only with the same `where`."""
    flags = EnvelopeFlags.PLAIN
    if len(body) > _COMPRESS_ABOVE:
        compressed = _compressed(body)
        if len(compressed) < len(body) * 0.9:
            body, flags = compressed, EnvelopeFlags.ZSTD
    nonce = ids.random(NONCE_BYTES) if owner.data_key else b""
    return seal(body, flags, owner.data_key, nonce, where)


def disclose(envelope: bytes, owner: Owner, where: bytes) -> bytes:
    """The body of an envelope. Raises ValueError if it was changed, moved, or sealed for another owner."""
    try:
        flags, body = unseal(envelope, owner.data_key, where)
    except KeyMissing as error:
        raise ValueError("a part is sealed, but its owner has no key") from error
    if not flags & EnvelopeFlags.ZSTD:
        return body
    try:
        return zstandard.ZstdDecompressor().decompress(body)
    except (zstandard.ZstdError, MemoryError) as error:  # a damaged header may declare any size
        raise ValueError("a part cannot be decompressed") from error
