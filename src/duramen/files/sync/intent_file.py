"""Records which files a sync is about to write, so that the next sync knows the files of a killed one.

A killed sync leaves files that its manifest does not list. If the person of such a file is erased before the next sync,
the file must go. Without a record, it would look like a file of another store that someone copied here.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import blake2b

import msgspec

from .manifest_file import FOLDER, read_private, trouble, write_private

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


class IntentFile:
    """The record of a folder. The caller holds the sync lock."""

    def __init__(self, root: str) -> None:
        self._path = os.path.join(root, FOLDER, _NAME)

    def load(self) -> WriteIntents:
        """What a killed sync was about to write. Empty if the last sync ended."""
        try:
            return _decode(read_private(self._path))
        except (OSError, msgspec.DecodeError, ValueError):
            return WriteIntents()

    def save(self, before: WriteIntents, files: Mapping[str, tuple[str, str, str]], days: Iterable[str]) -> None:
        """Record files (memory, owner and text by path) and days durably, in addition to those `before`, which may not
        have been processed."""
        intents = WriteIntents(before.key or secrets.token_hex(32), dict(before.files), sorted({*before.days, *days}))
        for path, (memory, owner, text) in files.items():
            intents.files[path] = WriteIntent(memory, owner, intents.digest(text))
        with trouble(self._path, "write"):
            write_private(f"{self._path}.new", os.O_TRUNC, _encode(intents))
            os.replace(f"{self._path}.new", self._path)
            folder_fd = os.open(os.path.dirname(self._path), os.O_RDONLY)
            try:
                os.fsync(folder_fd)
            finally:
                os.close(folder_fd)

    def remove(self) -> None:
        """Remove the record, because the manifest lists what was written."""
        for path in (self._path, f"{self._path}.new"):
            with trouble(path, "remove"), suppress(FileNotFoundError):
                os.unlink(path)
