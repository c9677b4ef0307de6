"""The hash chain: the hash of an event covers its header, the hash of its payload and the hash of the event before.

The chain contains only the hash of a payload, so it still verifies after the payload was erased. A subject's payloads
are hashed with its salt. An erasure destroys the salt, so that nobody can guess a short payload from its hash.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

_pack = msgspec.msgpack.encode
_PERSON = b"duramen.event.1"


def payload_digest(payload: bytes, salt: bytes = b"") -> bytes:
    """The hash of a stored payload, as the chain contains it."""
    return blake2b(payload, digest_size=32, key=salt).digest()


def event_hash(previous: bytes, digest: bytes, header: tuple[object, ...]) -> bytes:
    """The hash of an event. The header is (workspace, session, position, type, time, actor, cause, key, subject)."""
    return blake2b(previous + digest + _pack(header), digest_size=32, person=_PERSON).digest()
