"""A disk for SQLite that can lose power.

SQLite reads and writes through a file layer (a VFS). This one holds each file in memory: the content that the last
sync made durable, and the changes since then. A power cut keeps the durable content and a random part of the changes.

    with PowerLossDisk(seed=7) as disk:
        disk.cut_at(12)
        connection = apsw.Connection("journal.db", vfs=disk.vfs_name)
        ...                                   # the twelfth change raises PowerCut
        disk.survivors(directory)             # the files after the reboot

It follows the rules of POSIX and of SQLite's own unix layer:

- A write survives completely, not at all, or in some of its 512-byte sectors. The order of writes is not guaranteed.
- A sync makes the file's changes and its directory entry durable.
- Creating or deleting a file can be undone until its directory is synced. A delete that asks for it syncs the
  directory, and so does the first sync of a journal or write-ahead log that was opened for creation.

Locks and the shared memory of the write-ahead log come from the system and use an empty scratch file, so several
connections of one process work as usual. Open encrypted databases via `"multipleciphers-" + disk.vfs_name`.
"""

from __future__ import annotations

import itertools
import math
import os
import shutil
import tempfile
import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from random import Random
from typing import TYPE_CHECKING, Literal, Self, get_args

import apsw

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["DiskCall", "DiskError", "PowerCut", "PowerLossDisk"]

DiskCall = Literal["xWrite", "xSync", "xTruncate", "xDelete"]
"""The calls that change the disk. They are counted, and the power can be cut at each of them."""

DiskError = Literal["full", "ioerr"]
"""The error of a failing call: the disk is full, or an I/O error."""

_SECTOR = 512
_NO_FAULT = (math.inf, apsw.SQLITE_OK)
_SYSTEM_VFS = "win32" if os.name == "nt" else "unix"
_JOURNALS = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_SUPER_JOURNAL | apsw.SQLITE_OPEN_WAL
_SCRATCH_FLAGS = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
_IOERR_CODES = {"xWrite": apsw.SQLITE_IOERR_WRITE, "xSync": apsw.SQLITE_IOERR_FSYNC}


class PowerCut(apsw.IOError):
    """The machine is off. `Connection.close` may raise this too, but still closes the connection."""

    result = extendedresult = apsw.SQLITE_IOERR


class PowerLossDisk:
    """One flat directory of files in memory, whose power can be cut at any change.

    Only the last part of a path is used. Equal seeds, calls and variants give equal survivors, apart from the random
    salts of SQLite. Close the disk, or leave its `with` block, after its connections are closed.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        self._power = _Power()
        self._directory = _Directory()
        self._scratch = Path(tempfile.mkdtemp(prefix="duramen-powerloss-"))
        self._remove_scratch = weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
        self.vfs_name = self._scratch.name
        self._vfs = _PowerLossVFS(self.vfs_name, self._power, self._directory, self._scratch)

    @classmethod
    def load(cls, directory: Path | str, seed: int = 0) -> Self:
        """Create a disk on which the files in `directory` are durable, as after a reboot."""
        disk = cls(seed)
        for path in sorted(Path(directory).iterdir()):
            disk._directory.put_durable(path.name, path.read_bytes())
        return disk

    @property
    def calls(self) -> int:
        """How many changing calls (see `DiskCall`) SQLite has made so far, including failed ones."""
        return self._power.made.total()

    @property
    def is_off(self) -> bool:
        """Whether the power was cut."""
        return self._power.off

    def cut_at(self, call_number: int) -> None:
        """Cut the power at the `call_number`-th changing call, counted from 1 over the life of the disk.

        That call and every later call of any kind raise `PowerCut`. `survivors` decides whether the change of that
        call reached the disk. A sync that was cut made nothing durable.
        """
        self._power.cut_at = call_number

    def fail(self, call: Literal["xWrite", "xSync"], error: DiskError, after: int = 0) -> None:
        """Let `after` more calls of this kind succeed, then fail each one, without effect, until `heal`.

        "full" raises `apsw.FullError`. "ioerr" raises `apsw.IOError` with the extended code of that call.
        """
        code = apsw.SQLITE_FULL if error == "full" else _IOERR_CODES[call]
        self._power.faults[call] = (self._power.made[call] + after, code)

    def heal(self) -> None:
        """Let all calls succeed again. This does not end a power cut."""
        self._power.faults.clear()

    def survivors(self, directory: Path | str, variant: int = 0) -> Path:
        """Write the files that could survive a power failure at the last call into `directory`, and return it.

        Each `variant` is another possible outcome of the same power failure. Raises `FileExistsError` if `directory`
        is not empty: SQLite would read an old log as part of the outcome.
        """
        target = Path(directory)
        target.mkdir(parents=True, exist_ok=True)
        if any(target.iterdir()):
            raise FileExistsError(f"{target} is not empty; use a separate directory for each outcome")
        chance = Random(f"{self._seed}/{self.calls}/{variant}")
        for name, content in self._directory.after_power_loss(chance).items():
            (target / name).write_bytes(content)
        return target

    def close(self) -> None:
        """Unregister the VFS and remove the scratch file. Close all connections first."""
        self._vfs.unregister()
        self._remove_scratch()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Power:
    """Counts changing calls and decides which of them fail."""

    def __init__(self) -> None:
        self.made: Counter[DiskCall] = Counter(dict.fromkeys(get_args(DiskCall), 0))
        self.off = False
        self.cut_at = math.inf
        self.faults: dict[DiskCall, tuple[float, int]] = {}  # the last call that succeeds, the code of later ones
        self._counting = threading.Lock()

    def require(self) -> None:
        """Raise `PowerCut` if the machine is off."""
        if self.off:
            raise PowerCut("the machine is off")

    def count(self, call: DiskCall) -> None:
        """Count a call that is about to change the disk. Raises the error that `fail` set for it."""
        self.require()
        # Other threads count too, and a lost increment would move the cut.
        with self._counting:
            self.made[call] += 1
        last, code = self.faults.get(call, _NO_FAULT)
        if self.made[call] > last:
            raise apsw.exception_for(code)

    def may_fail_here(self) -> None:
        """Called in the middle of a changing call. Raises `PowerCut` if the power fails during this call."""
        if self.made.total() >= self.cut_at:
            self.off = True
            raise PowerCut(f"power cut at call {self.made.total()}")


@dataclass(frozen=True, slots=True)
class _Write:
    offset: int
    data: bytes

    def apply(self, image: bytearray) -> None:
        image.extend(bytes(max(0, self.offset - len(image))))
        image[self.offset : self.offset + len(self.data)] = self.data

    def sectors(self) -> list[_Write]:
        """The parts of the write that reach the disk independently of each other."""
        end = self.offset + len(self.data)
        # Parts end at sector boundaries of the file, so the first and the last part may be short.
        inner = range(self.offset - self.offset % _SECTOR + _SECTOR, end, _SECTOR)
        parts = itertools.pairwise([self.offset, *inner, end])
        return [_Write(start, self.data[start - self.offset : stop - self.offset]) for start, stop in parts]


@dataclass(frozen=True, slots=True)
class _Truncate:
    size: int

    def apply(self, image: bytearray) -> None:
        del image[self.size :]
        image.extend(bytes(self.size - len(image)))

    def sectors(self) -> list[_Truncate]:
        return [self]


_Change = _Write | _Truncate


def _surviving(changes: Sequence[_Change], chance: Random) -> list[_Change]:
    """A random choice of the unsynced changes that reached the disk. Torn writes are included in part."""
    match chance.choice(["none", "all", "prefix", "subset"]) if changes else "none":
        case "none":
            return []
        case "all":
            return list(changes)
        case "prefix":
            length = chance.randrange(len(changes))
            return [*changes[:length], *_torn(changes[length], chance)]
        case _:
            fates = (chance.choice([[change], [], _torn(change, chance)]) for change in changes)
            return list(itertools.chain.from_iterable(fates))


def _torn(change: _Change, chance: Random) -> list[_Change]:
    return [sector for sector in change.sectors() if chance.random() < 0.5]


class _FileImage:
    """The content of one file: the current content, the durable content and the unsynced changes."""

    def __init__(self, content: bytes = b"") -> None:
        self.current = bytearray(content)
        self._durable = bytearray(content)
        self._unsynced: list[_Change] = []

    def change(self, change: _Change) -> None:
        """Apply a change. It is visible at once and durable after the next `sync`."""
        change.apply(self.current)
        self._unsynced.append(change)

    def sync(self) -> None:
        """Make all changes so far durable."""
        for change in self._unsynced:
            change.apply(self._durable)
        self._unsynced.clear()

    def after_power_loss(self, chance: Random) -> bytes:
        """A possible content of the file after a power loss now."""
        image = bytearray(self._durable)
        for change in _surviving(self._unsynced, chance):
            change.apply(image)
        return bytes(image)


class _Directory:
    """The names and their files, now and after a power loss."""

    def __init__(self) -> None:
        self._entries: dict[str, _FileImage] = {}
        self._durable: dict[str, _FileImage] = {}
        self._unsynced: dict[str, list[_FileImage | None]] = {}

    def get(self, name: str) -> _FileImage | None:
        return self._entries.get(name)

    def put_durable(self, name: str, content: bytes) -> None:
        """Add a file that is durable."""
        self._entries[name] = self._durable[name] = _FileImage(content)

    def create(self, name: str) -> _FileImage:
        """Create an empty file. A power loss may remove its name until the entry is settled."""
        image = self._entries[name] = _FileImage()
        self._unsynced.setdefault(name, []).append(image)
        return image

    def delete(self, name: str) -> None:
        """Remove a name. A power loss may restore it until the directory is synced."""
        del self._entries[name]
        self._unsynced.setdefault(name, []).append(None)

    def settle(self, name: str, image: _FileImage) -> None:
        """Make the entry durable if `name` still belongs to `image`."""
        if self._entries.get(name) is image:
            self._durable[name] = image
            self._unsynced.pop(name, None)

    def sync(self) -> None:
        """Make all entries and all deletions durable."""
        self._durable = dict(self._entries)
        self._unsynced.clear()

    def after_power_loss(self, chance: Random) -> dict[str, bytes]:
        """A possible set of files after a power loss now."""
        found: dict[str, bytes] = {}
        # Sorted, so that the same seed gives the same survivors.
        for name in sorted(self._durable.keys() | self._unsynced.keys()):
            # A file system keeps the order of changes to one name, so the state after any of them can survive.
            history = [self._durable.get(name), *self._unsynced.get(name, [])]
            image = chance.choice(history)
            if image is not None:
                found[name] = image.after_power_loss(chance)
        return found


class _PowerLossVFS(apsw.VFS):
    """Opens, deletes and finds files on the disk. Time, sleep and randomness come from the system."""

    def __init__(self, name: str, power: _Power, directory: _Directory, scratch: Path) -> None:
        super().__init__(name, base=_SYSTEM_VFS)
        self._power = power
        self._directory = directory
        self._scratch = scratch

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        self._power.require()
        flags[1] = flags[0]
        if name is None:  # a temporary file has no name, so it cannot survive
            return _DiskFile("", _FileImage(), flags[0], self)
        key = _key(name.filename() if isinstance(name, apsw.URIFilename) else name)
        image = self._directory.get(key)
        if image is None:
            if not flags[0] & apsw.SQLITE_OPEN_CREATE:
                raise apsw.CantOpenError(f"no file {key!r} on this disk")
            image = self._directory.create(key)
        return _DiskFile(key, image, flags[0], self)

    def xFullPathname(self, name: str) -> str:
        return f"/{_key(name)}"

    def xAccess(self, pathname: str, flags: int) -> bool:
        self._power.require()
        image = self._directory.get(_key(pathname))
        # SQLite's unix layer treats an empty file as missing, so that an empty journal is ignored.
        return image is not None and (flags != apsw.SQLITE_ACCESS_EXISTS or len(image.current) > 0)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        self._power.count("xDelete")
        key = _key(filename)
        if self._directory.get(key) is None:
            raise apsw.exception_for(apsw.SQLITE_IOERR_DELETE_NOENT)
        self._directory.delete(key)
        self._power.may_fail_here()
        if syncdir:
            self._directory.sync()


class _DiskFile(apsw.VFSFile):
    """An open file. A database file uses the locks and shared memory of a scratch file with the same name."""

    def __init__(self, key: str, image: _FileImage, flags: int, vfs: _PowerLossVFS) -> None:
        self._has_scratch = bool(flags & apsw.SQLITE_OPEN_MAIN_DB)
        if self._has_scratch:
            super().__init__(_SYSTEM_VFS, str(vfs._scratch / key), [_SCRATCH_FLAGS, 0])
        self._key = key
        self._image = image
        self._power = vfs._power
        self._directory = vfs._directory
        self._owes_directory_sync = bool(flags & _JOURNALS and flags & apsw.SQLITE_OPEN_CREATE)

    def xRead(self, amount: int, offset: int) -> bytes:
        self._power.require()
        return bytes(self._image.current[offset : offset + amount])

    def xFileSize(self) -> int:
        self._power.require()
        return len(self._image.current)

    def xWrite(self, data: Buffer, offset: int) -> None:
        self._power.count("xWrite")
        self._image.change(_Write(offset, bytes(data)))
        self._power.may_fail_here()

    def xTruncate(self, newsize: int) -> None:
        self._power.count("xTruncate")
        self._image.change(_Truncate(newsize))
        self._power.may_fail_here()

    def xSync(self, flags: int) -> None:
        self._power.count("xSync")
        self._power.may_fail_here()
        self._image.sync()
        self._directory.settle(self._key, self._image)
        if self._owes_directory_sync:
            self._directory.sync()
            self._owes_directory_sync = False

    def xFileControl(self, op: int, ptr: int) -> bool:
        return self._has_scratch and super().xFileControl(op, ptr)

    def xDeviceCharacteristics(self) -> int:
        # As in the unix layer: a torn write does not damage the bytes next to it.
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE


def _key(path: str) -> str:
    return PurePath(path).name
