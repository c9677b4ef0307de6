"""Envelopes: how a payload or blob lies in the store, compressed or sealed or as it is.

Each subject has a data key of its own, wrapped by the master key. A payload is sealed with AES-256-GCM
with workspace, session and position as associated data: moved to another row, it does not open. A blob is
shared by many rows, so its address takes the place of session and position.
"""

from __future__ import annotations

import base64
import binascii
import enum
import os
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import msgspec

from ..errors import InvalidInput, KeyMissing, WrongKey
from ..ports import Ids, SubjectRow

_pack = msgspec.msgpack.encode
KEY_BYTES = 32
NONCE_BYTES = 12
KeySource = bytes | str | Callable[[], "bytes | str"] | Sequence["bytes | str"]


class EnvelopeFlags(enum.IntFlag):
    """The first byte of an envelope."""

    PLAIN = 0
    SEALED = 1
    ZSTD = 2
    APART = 4  # the payload itself is a blob; what follows is its reference


_FLAGS = [EnvelopeFlags(number) for number in range(8)]
"""Looked up: a state may be made of hundreds of envelopes, and an enumeration takes its time."""
_SEALED = int(EnvelopeFlags.SEALED)


class SystemIds:
    """Unguessable bytes from the operating system."""

    def random(self, size: int) -> bytes:
        return os.urandom(size)


def new_key() -> str:
    """A fresh master key, as text to keep in a secret store."""
    return base64.urlsafe_b64encode(os.urandom(KEY_BYTES)).decode()


def master_keys(source: KeySource | None) -> tuple[bytes, ...]:
    """The master keys of a setting: the first one wraps, all of them unwrap. None means none; anything else
    that holds no key is refused, because data would be left unsealed."""
    if source is None:
        return ()
    given: Any = source() if callable(source) else source
    if isinstance(given, str):
        given = [part for part in given.split(",") if part.strip()]
    elif isinstance(given, (bytes, bytearray)):
        given = [given]
    keys = tuple(_key_bytes(key) for key in given) if isinstance(given, (list, tuple)) else ()
    if not keys:
        raise _no_key()
    return keys


def _key_bytes(key: object) -> bytes:
    if isinstance(key, str):
        text = key.strip()
        try:
            key = bytes.fromhex(text) if len(text) == 64 else base64.urlsafe_b64decode(text)
        except (ValueError, binascii.Error):
            key = b""
    if not isinstance(key, (bytes, bytearray)) or len(key) != KEY_BYTES:
        raise _no_key()
    return bytes(key)


def _no_key() -> InvalidInput:
    return InvalidInput(
        "a key is 32 bytes, as bytes, hex or base64",
        hint="make one with duramen.new_key() and keep it in your secret store",
    )


def key_id(master: bytes) -> bytes:
    """A name for a master key that tells nothing about it."""
    return blake2b(master, digest_size=8, person=b"duramen.key.id").digest()


@lru_cache(maxsize=1024)
def _cipher(key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


class Keyring:
    """The master keys of a handle. Without any, nothing is sealed."""

    def __init__(self, masters: Iterable[bytes], ids: Ids) -> None:
        self._ids = ids
        self._masters = {key_id(master): master for master in masters}
        self._current = next(iter(self._masters), None)

    def __bool__(self) -> bool:
        return self._current is not None

    def with_current(self, master: bytes) -> Keyring:
        """A ring whose first key is `master`, the others still opening what they wrapped."""
        return Keyring([master, *self._masters.values()], self._ids)

    def new_subject(self, workspace: str, name: str) -> SubjectRow:
        """A subject with a fresh salt and, if there is a master key, a fresh data key."""
        ref, salt = self._ids.random(16), self._ids.random(32)
        if self._current is None:
            return SubjectRow(ref, name, salt, None, None)
        return self.wrap(workspace, SubjectRow(ref, name, salt, None, None), self._ids.random(KEY_BYTES))

    def wrap(self, workspace: str, subject: SubjectRow, data_key: bytes) -> SubjectRow:
        """The subject with its data key under the current master key."""
        if self._current is None:
            raise KeyMissing("there is no master key to wrap with", hint="give open() a key")
        nonce = self._ids.random(NONCE_BYTES)
        cipher = _cipher(self._masters[self._current])
        wrapped = nonce + cipher.encrypt(nonce, data_key, _pack((workspace, subject.ref)))
        return subject._replace(wrapped=wrapped, master=self._current)

    def is_current(self, subject: SubjectRow) -> bool:
        """Whether the subject's data key lies under the current master key."""
        return subject.master == self._current

    def unwrap(self, workspace: str, subject: SubjectRow) -> bytes | None:
        """The subject's data key; None for a subject that was never sealed."""
        if subject.wrapped is None or subject.master is None:
            return None
        master = self._masters.get(subject.master)
        if master is None:
            _refuse(bool(self._masters), workspace)
        nonce, sealed = subject.wrapped[:NONCE_BYTES], subject.wrapped[NONCE_BYTES:]
        opened = _open(master or b"", nonce, sealed, _pack((workspace, subject.ref)))
        if opened is None:
            raise WrongKey("a data key does not open under its master key", hint="restore the subject's row")
        return opened


def _refuse(any_key: bool, workspace: str) -> None:
    if any_key:
        raise WrongKey(
            f"workspace {workspace!r} is sealed under another key than those given",
            hint="give the key it was written with; while rotating, give both, the new one first",
        )
    raise KeyMissing(
        f"workspace {workspace!r} is sealed and no key was given",
        hint="pass key=… to open(), or set DURAMEN_KEY",
    )


def _open(key: bytes, nonce: bytes, sealed: bytes, where: bytes) -> bytes | None:
    from cryptography.exceptions import InvalidTag

    try:
        opened: bytes = _cipher(key).decrypt(nonce, sealed, where)
    except (InvalidTag, ValueError):
        return None
    return opened


def seal(body: bytes, flags: EnvelopeFlags, data_key: bytes | None, nonce: bytes, where: bytes) -> bytes:
    """An envelope around `body`, sealed if there is a data key; `where` is what it is bound to."""
    if data_key is None:
        return bytes((flags,)) + body
    head = bytes((flags | EnvelopeFlags.SEALED,))
    sealed: bytes = _cipher(data_key).encrypt(nonce, body, head + where)
    return head + nonce + sealed


def unseal(envelope: bytes, data_key: bytes | None, where: bytes) -> tuple[EnvelopeFlags, bytes]:
    """What an envelope holds. Raises ValueError if it was changed or moved, `KeyMissing` without
    the key that it needs."""
    if not envelope:
        raise ValueError("an empty envelope")
    first = envelope[0]
    flags = _FLAGS[first] if first < len(_FLAGS) else EnvelopeFlags(first)
    if not first & _SEALED:
        return flags, envelope[1:]
    if data_key is None:
        raise KeyMissing("the payload is sealed and its key is not here", hint="pass key=… to open()")
    nonce, sealed = envelope[1 : 1 + NONCE_BYTES], envelope[1 + NONCE_BYTES :]
    opened = _open(data_key, nonce, sealed, envelope[:1] + where)
    if opened is None:
        raise ValueError("the sealed payload does not open in this place")
    return flags, opened


def payload_place(workspace: str, session: str, position: int) -> bytes:
    """What a sealed payload is bound to."""
    return _pack((workspace, session, position))


def blob_place(workspace: str, address: bytes) -> bytes:
    """What a sealed blob is bound to."""
    return _pack((workspace, address))
