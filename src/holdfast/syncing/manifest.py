"""What the last sync left: which file holds which memory, how each looked, and how far the store was read.

It makes the next sync look only at what changed. It is no truth: without it everything is compared anew, and only
deleted files are not known as such.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from ..errors import FileError, InvalidInput
from ..filelock import alone_with
from ..files.walking import Signature

FOLDER = ".holdfast"
_NAME = "manifest"
_FORM = 1


class Filed(msgspec.Struct, array_like=True):
    """A file that holds a memory: which, its line in the index, how the file looked, and when the memory expires."""

    number: int
    id: str
    line: str
    seen: tuple[int, int, int, int]
    expires: int | None = None


class Day(msgspec.Struct, array_like=True):
    """A line of a daily log: when, and what."""

    time: int
    line: str


class Manifest(msgspec.Struct):
    """What the last sync left. `owed` are memories whose files could not be written: the next sync tries again."""

    workspace: str
    form: int = _FORM
    pools: dict[str, int] = {}
    files: dict[str, Filed] = {}
    days: dict[str, dict[str, Day]] = {}
    soul: str = ""
    owed: list[int] = []

    def path_of(self, number: int) -> str | None:
        """The file of a memory."""
        return self.by_number().get(number)

    def by_number(self) -> dict[int, str]:
        """The files, by the numbers of the memories in them."""
        return {one.number: path for path, one in self.files.items()}


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Manifest).decode


def seen(signature: Signature) -> tuple[int, int, int, int]:
    """A signature as it is noted."""
    return signature.size, signature.mtime, signature.inode, signature.ctime


@contextmanager
def alone_in(root: str) -> Iterator[None]:
    """Inside, no other sync works on the folder."""
    folder = os.path.join(root, FOLDER)
    try:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        if os.path.islink(folder):
            raise FileError(f"{folder} is a symbolic link", hint="put a real folder there")
        with alone_with(os.path.join(folder, "lock")):
            yield
    except OSError as error:
        raise FileError(f"cannot use {folder}: {error.strerror}", hint="look at its rights and the disk") from error


def load(root: str, workspace: str) -> tuple[Manifest, bytes]:
    """The manifest of a folder, and as it is stored; an empty one if there is none, or none that can be read. Raises
    `InvalidInput` if the folder is another workspace's."""
    try:
        with open(os.path.join(root, FOLDER, _NAME), "rb", opener=_careful) as file:
            stored = file.read()
            found = _decode(stored)
    except (OSError, msgspec.DecodeError, ValueError):
        return Manifest(workspace), b""
    if found.workspace != workspace:
        raise InvalidInput(
            f"{root} holds the files of workspace {found.workspace!r}",
            hint="give each workspace a folder of its own: tenants do not share one",
        )
    return (found, stored) if found.form == _FORM else (Manifest(workspace), b"")


def _careful(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def save(root: str, manifest: Manifest, stored: bytes) -> None:
    """Replace the manifest, whole and durably, unless it says what is stored."""
    encoded = _encode(manifest)
    if encoded == stored:
        return
    folder = os.path.join(root, FOLDER)
    draft = os.path.join(folder, f"{_NAME}.new")  # under the lock there is one writer
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with open(handle, "wb") as file:
            file.write(encoded)
            file.flush()
            os.fsync(handle)
        os.replace(draft, os.path.join(folder, _NAME))
    except OSError as error:
        raise FileError(f"cannot write {folder}: {error.strerror}", hint="look at its rights and the disk") from error
