"""From drafts to records: encode payloads, move large parts into blobs, and place the records on a head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import zstandard
from msgspec.structs import replace

from ..errors import InvalidInput, PayloadTooLarge
from ..ports import Blob, Head, Ids, Record
from .chain import event_hash, payload_digest
from .codec import BlobRef, Codec, surrogate_text
from .events import Draft, check_cause, check_name
from .owners import Owner
from .sealing import NONCE_BYTES, EnvelopeFlags, blob_place, payload_place, seal

_APART_ABOVE = 16
"""A payload that is this many times larger than `blob_above` becomes a blob itself."""


class Prepared(NamedTuple):
    """A draft with its encoded payload, its large parts by address, and the data as a reader will get it."""

    draft: Draft
    body: bytes
    flags: EnvelopeFlags
    parts: dict[bytes, bytes]
    data: Any


class Encoder(NamedTuple):
    """Encodes the drafts of one workspace."""

    codec: Codec
    ids: Ids
    workspace: str
    max_payload: int

    def drafts(self, drafts: Sequence[Draft], owner: Owner) -> list[Prepared]:
        """Encode the drafts. Raises `InvalidInput` for a draft that cannot be stored."""
        if not drafts:
            raise InvalidInput("there is nothing to append", hint="give at least one event")
        return [self.draft(draft, owner) for draft in drafts]

    def draft(self, draft: Draft, owner: Owner) -> Prepared:
        """Encode one draft. Raises `InvalidInput` if it cannot be stored, `PayloadTooLarge` if it is too large."""
        if not isinstance(draft, Draft):
            raise InvalidInput(
                f"a value of type {type(draft).__name__} is not a draft",
                hint="give a list with one duramen.Draft(type, data) per event",
            )
        if type(draft.type) is not str or draft.type not in _good_types:
            draft = replace(draft, type=_note_good(check_name("event type", draft.type)))
        if draft.actor is not None and (actor := check_name("actor", draft.actor)) is not draft.actor:
            draft = replace(draft, actor=actor)
        if draft.cause is not None and (cause := check_cause(draft.cause)) is not draft.cause:
            draft = replace(draft, cause=cause)
        body, parts = self.codec.encode(draft.data, owner.address)
        size = len(body) + sum(map(len, parts.values())) if parts else len(body)
        if size > self.max_payload:
            raise PayloadTooLarge(size, self.max_payload)
        # Decode it now: a payload that cannot be read must not be stored.
        data = self.codec.decode(body, _loader(parts)) if parts else self.codec.decode_whole(body)
        if len(body) <= self.codec.blob_above * _APART_ABOVE:
            return Prepared(draft, body, EnvelopeFlags.PLAIN, parts, data)
        reference = owner.address(body)
        whole = msgspec.msgpack.encode([reference, len(body)])
        return Prepared(draft, whole, EnvelopeFlags.APART, {**parts, reference: body}, data)

    def blobs(self, parts: dict[bytes, bytes], owner: Owner) -> list[Blob]:
        """The large parts as blobs, sorted by address, so that all writers lock them in the same order."""
        ordered = sorted(parts.items())
        return [Blob(address, owner.ref, self._envelope(address, body, owner)) for address, body in ordered]

    def _envelope(self, address: bytes, body: bytes, owner: Owner) -> bytes:
        packed = zstandard.ZstdCompressor(level=3).compress(body)
        flags = EnvelopeFlags.ZSTD if len(packed) < len(body) * 0.95 else EnvelopeFlags.PLAIN
        nonce = self.ids.random(NONCE_BYTES) if owner.data_key else b""
        where = blob_place(self.workspace, address)
        return seal(packed if flags else body, flags, owner.data_key, nonce, where)

    def placing(
        self, session: str, prepared: list[Prepared], owner: Owner, key: str | None, now: int
    ) -> Callable[[Head], list[Record]]:
        """A function from the head of the session to the records that follow it."""
        workspace, random = self.workspace, self.ids.random
        ref, _, salt, data_key = owner
        placed: tuple[Head | None, list[Record]] = (None, [])

        def place(head: Head) -> list[Record]:
            nonlocal placed
            if placed[0] == head:
                return placed[1]  # the same records: sealing them again would need new nonces
            position, previous = head
            first_key = key
            records = []
            for draft, body, flags, _, _ in prepared:
                position += 1
                if data_key is None:
                    payload = _PLAIN + body if flags is EnvelopeFlags.PLAIN else bytes((flags,)) + body
                else:
                    where = payload_place(workspace, session, position)
                    payload = seal(body, flags, data_key, random(NONCE_BYTES), where)
                kind, actor, cause = draft.type, draft.actor, draft.cause
                header = (workspace, session, position, kind, now, actor, cause, first_key, ref)
                previous = event_hash(previous, payload_digest(payload, salt), header)
                records.append(Record(position, kind, now, actor, cause, first_key, ref, payload, None, previous))
                first_key = None
            placed = (head, records)
            return records

        return place


_PLAIN = bytes((EnvelopeFlags.PLAIN,))
_good_types: set[str] = set()


def _note_good(kind: str) -> str:
    """Remember a valid type, and return it. There are few types, so each is checked only once."""
    if len(_good_types) < 1024:
        _good_types.add(kind)
    return kind


def _loader(parts: dict[bytes, bytes]) -> Callable[[BlobRef], Any]:
    def load(ref: BlobRef) -> Any:
        body = parts[ref.address]
        return surrogate_text(body) if ref.text else body

    return load
