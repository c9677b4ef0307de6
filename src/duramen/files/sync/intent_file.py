"""Records which files a sync is about to write, so that the next sync knows the files of a killed one.

A killed sync leaves files that its manifest does not list. If the person of such a file is erased before the next sync,
the file must go. Without a record, it would look like a file of another store that someone copied here.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from hashlib import blake2b

import msgspec

from .state_folder import StateFolder

_NAME = "writing"


class WriteIntent(msgspec.Struct, array_like=True):
    """A file to be written: the id of its memory, the reference of its subject, and a keyed hash of its text."""

    memory: str
    owner: str
    digest: str


class WriteIntents(msgspec.Struct):
    """What a sync is about to write: memory files by path, and the days of logs. `key` is the key of the hashes."""

    key: str = ""
    files: dict[str, WriteIntent] = {}
    days: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.files or self.days)

    def digest(self, text: str) -> str:
        """The keyed hash of a text."""
        return blake2b(text.encode(), digest_size=16, key=bytes.fromhex(self.key)).hexdigest()


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(WriteIntents).decode


def load_intents(folder: StateFolder) -> WriteIntents:
    """What a killed sync was about to write. Empty if the last sync ended."""
    try:
        return _decode(folder.read(_NAME))
    except (OSError, msgspec.DecodeError, ValueError):
        return WriteIntents()


def save_intents(
    folder: StateFolder, before: WriteIntents, files: Mapping[str, tuple[str, str, str]], days: Iterable[str]
) -> None:
    """Record files (memory, owner and text by path) and days durably, in addition to those `before`, which may not have
    been processed."""
    intents = WriteIntents(before.key or secrets.token_hex(32), dict(before.files), sorted({*before.days, *days}))
    for path, (memory, owner, text) in files.items():
        intents.files[path] = WriteIntent(memory, owner, intents.digest(text))
    folder.replace(_NAME, _encode(intents))


def remove_intents(folder: StateFolder) -> None:
    """Remove the record, because the manifest lists what was written."""
    folder.remove(_NAME)
