"""The hash chain: each event's hash covers its header, its payload's hash and the hash before it.

The payload enters by its hash, so an erased payload leaves a chain that still verifies. A subject's
payloads are hashed under its salt: once the salt is destroyed, nobody can guess a short payload back
from the hash that stays.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

_pack = msgspec.msgpack.encode
_PERSON = b"duramen.event.1"


def payload_digest(payload: bytes, salt: bytes = b"") -> bytes:
    """The hash under which a stored payload enters the chain."""
    return blake2b(payload, digest_size=32, key=salt).digest()


def event_hash(previous: bytes, digest: bytes, header: tuple[object, ...]) -> bytes:
    """The hash of an event. The header: workspace, session, position, type, time, actor, cause, key,
    subject."""
    return blake2b(previous + digest + _pack(header), digest_size=32, person=_PERSON).digest()
