"""Sealing: the envelopes around stored payloads and blobs, and the keys that seal them.

Each subject has its own data key, which is encrypted ("wrapped") with the master key. A payload is sealed with
AES-256-GCM, with workspace, session and position as associated data, so it cannot be decrypted in another row. Many
rows share a blob, so a blob uses its address instead of session and position.
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

from ..errors import InvalidInput, KeyMissing, WrongKey, shown
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
    APART = 4  # the payload is in a blob, and the envelope contains its reference


_FLAGS = [EnvelopeFlags(number) for number in range(8)]
"""A table, because calling EnvelopeFlags() is slow and a state may consist of hundreds of envelopes."""
_SEALED = int(EnvelopeFlags.SEALED)


class SystemIds:
    """Random bytes from the operating system."""

    def random(self, size: int) -> bytes:
        return os.urandom(size)


def new_key() -> str:
    """A new random master key, as text. Keep it in a secret store."""
    return base64.urlsafe_b64encode(os.urandom(KEY_BYTES)).decode()


def master_keys(source: KeySource | None) -> tuple[bytes, ...]:
    """The master keys in a setting. The first one wraps data keys, and all of them unwrap. None means no key. Any other
    setting without a key raises `InvalidInput`, because data would be stored unsealed."""
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
        "the key is not 32 bytes, given as bytes, hex or base64",
        hint="create a key with duramen.new_key() and keep it in a secret store",
    )


def key_id(master: bytes) -> bytes:
    """The id of a master key. It reveals nothing about the key."""
    return blake2b(master, digest_size=8, person=b"duramen.key.id").digest()


@lru_cache(maxsize=1024)
def _cipher(key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key)


class Keyring:
    """The master keys of a handle. Without a master key, data is not sealed."""

    def __init__(self, masters: Iterable[bytes], ids: Ids) -> None:
        self._ids = ids
        self._masters = {key_id(master): master for master in masters}
        self._current = next(iter(self._masters), None)

    def __bool__(self) -> bool:
        return self._current is not None

    def with_current(self, master: bytes) -> Keyring:
        """A keyring whose current key is `master`. The other keys still unwrap what they wrapped."""
        return Keyring([master, *self._masters.values()], self._ids)

    def new_subject(self, workspace: str, name: str) -> SubjectRow:
        """A subject with a new salt and, if there is a master key, a new data key."""
        ref, salt = self._ids.random(16), self._ids.random(32)
        if self._current is None:
            return SubjectRow(ref, name, salt, None, None)
        return self.wrap(workspace, SubjectRow(ref, name, salt, None, None), self._ids.random(KEY_BYTES))

    def wrap(self, workspace: str, subject: SubjectRow, data_key: bytes) -> SubjectRow:
        """The subject with its data key wrapped by the current master key. Raises `KeyMissing` if there is none."""
        if self._current is None:
            raise KeyMissing("there is no master key to wrap a data key with", hint="pass key=… to open()")
        nonce = self._ids.random(NONCE_BYTES)
        cipher = _cipher(self._masters[self._current])
        wrapped = nonce + cipher.encrypt(nonce, data_key, _pack((workspace, subject.ref)))
        return subject._replace(wrapped=wrapped, master=self._current)

    def is_current(self, subject: SubjectRow) -> bool:
        """Whether the current master key wraps the subject's data key."""
        return subject.master == self._current

    def unwrap(self, workspace: str, subject: SubjectRow) -> bytes | None:
        """The subject's data key, or None for a subject without one. Raises `KeyMissing` or `WrongKey` if no master key
        unwraps it."""
        if subject.wrapped is None or subject.master is None:
            return None
        master = self._masters.get(subject.master)
        if master is None:
            _refuse(bool(self._masters), workspace)
        nonce, sealed = subject.wrapped[:NONCE_BYTES], subject.wrapped[NONCE_BYTES:]
        opened = _open(master or b"", nonce, sealed, _pack((workspace, subject.ref)))
        if opened is None:
            raise WrongKey(
                "a data key cannot be decrypted with its master key", hint="restore the subject's row from a backup"
            )
        return opened


def _refuse(any_key: bool, workspace: str) -> None:
    if any_key:
        raise WrongKey(
            f"workspace {shown(workspace)} is sealed with another key",
            hint="pass the key that it was written with; while rotating keys, pass both, the new one first",
        )
    raise KeyMissing(
        f"workspace {shown(workspace)} is sealed and no key was given",
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
    """An envelope around `body`. It is sealed if there is a data key. `where` is the associated data of the seal."""
    if data_key is None:
        return bytes((flags,)) + body
    head = bytes((flags | EnvelopeFlags.SEALED,))
    sealed: bytes = _cipher(data_key).encrypt(nonce, body, head + where)
    return head + nonce + sealed


def unseal(envelope: bytes, data_key: bytes | None, where: bytes) -> tuple[EnvelopeFlags, bytes]:
    """The flags and the body of an envelope. Raises ValueError if it was changed or moved, and `KeyMissing` if it is
    sealed and there is no data key."""
    if not envelope:
        raise ValueError("the envelope is empty")
    first = envelope[0]
    flags = _FLAGS[first] if first < len(_FLAGS) else EnvelopeFlags(first)
    if not first & _SEALED:
        return flags, envelope[1:]
    if data_key is None:
        raise KeyMissing("the payload is sealed and no key was given", hint="pass key=… to open()")
    nonce, sealed = envelope[1 : 1 + NONCE_BYTES], envelope[1 + NONCE_BYTES :]
    opened = _open(data_key, nonce, sealed, envelope[:1] + where)
    if opened is None:
        raise ValueError("the sealed payload cannot be decrypted: it was changed, or moved from another row")
    return flags, opened


def payload_place(workspace: str, session: str, position: int) -> bytes:
    """The associated data of a sealed payload."""
    return _pack((workspace, session, position))


def blob_place(workspace: str, address: bytes) -> bytes:
    """The associated data of a sealed blob."""
    return _pack((workspace, address))
