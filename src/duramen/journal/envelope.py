"""Bytes as they are stored outside the events: compressed where that helps, sealed for their owner and their place."""

from __future__ import annotations

import zstandard

from ..errors import KeyMissing
from ..ports import Ids
from .owners import Owner
from .sealing import NONCE_BYTES, EnvelopeFlags, seal, unseal

_PRESS_ABOVE = 512
"""Bytes from which compression is tried."""

_idle: list[zstandard.ZstdCompressor] = []
"""Compressors that nobody uses now: making one takes longer than most of what it is used for."""


def _pressed(body: bytes) -> bytes:
    try:
        compressor = _idle.pop()
    except IndexError:
        compressor = zstandard.ZstdCompressor(level=3)
    pressed = compressor.compress(body)
    _idle.append(compressor)
    return pressed


def enclose(body: bytes, owner: Owner, where: bytes, ids: Ids) -> bytes:
    """Bytes as they are stored: compressed where that helps, and sealed for their owner and their place."""
    flags = EnvelopeFlags.PLAIN
    if len(body) > _PRESS_ABOVE:
        pressed = _pressed(body)
        if len(pressed) < len(body) * 0.9:
            body, flags = pressed, EnvelopeFlags.ZSTD
    nonce = ids.random(NONCE_BYTES) if owner.data_key else b""
    return seal(body, flags, owner.data_key, nonce, where)


def disclose(envelope: bytes, owner: Owner, where: bytes) -> bytes:
    """What was enclosed. ValueError if it was changed, moved, or is another owner's."""
    try:
        flags, body = unseal(envelope, owner.data_key, where)
    except KeyMissing as error:
        raise ValueError("a part of it is sealed under a key that its owner never had") from error
    if not flags & EnvelopeFlags.ZSTD:
        return body
    try:
        return zstandard.ZstdDecompressor().decompress(body)
    except (zstandard.ZstdError, MemoryError) as error:  # a damaged size may ask for anything
        raise ValueError("a part of it does not unpack") from error
