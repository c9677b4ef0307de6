"""Builds the wheel and the sdist into `dist/`, checks both, and tests each in an empty virtual environment.

Nothing is uploaded. docs/releasing.md describes a release.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"
PACKAGE = ROOT / "src" / "duramen"
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}


class DistError(Exception):
    """The distribution cannot be released."""


def run(*command: str | Path, cwd: Path = ROOT, extra: dict[str, str] | None = None) -> None:
    subprocess.run(command, cwd=cwd, env=ENVIRONMENT | (extra or {}), check=True)


def build() -> tuple[Path, Path]:
    """The new wheel and sdist. The wheel is built from the sdist."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", DIST, ROOT)
    wheel, sdist = next(DIST.glob("*.whl")), next(DIST.glob("*.tar.gz"))
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    return wheel, sdist


def check_version(wheel: Path) -> str:
    """The version of the wheel. Raises `DistError` if the current commit has a release tag with another version."""
    version = wheel.name.split("-")[1]
    describe = ["git", "describe", "--exact-match", "--tags", "--match", "v[0-9]*"]
    try:
        tagged = subprocess.run(describe, cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return version
    if tagged.returncode == 0 and tagged.stdout.strip() != f"v{version}":
        raise DistError(
            f"The commit has the tag {tagged.stdout.strip()}, but the version is {version}. "
            "Commit or remove your changes, then build again."
        )
    return version


def check_contents(wheel: Path, sdist: Path) -> None:
    """Raises `DistError` unless each file of the package is in the wheel and in the sdist."""
    files = {path.relative_to(PACKAGE.parent) for path in PACKAGE.rglob("*") if path.is_file()}
    wanted = {path.as_posix() for path in files if "__pycache__" not in path.parts}
    with zipfile.ZipFile(wheel) as archive:
        missing = wanted - set(archive.namelist())
    with tarfile.open(sdist) as archive:
        missing |= wanted - {name.partition("/src/")[2] for name in archive.getnames()}
    if missing:
        raise DistError(f"These files are missing from the wheel or the sdist: {', '.join(sorted(missing))}.")


def check_install(archive: Path) -> None:
    """Installs the file without extras into an empty environment and runs `tools/smoke_test.py` there."""
    print(f"{archive.name}:", flush=True)
    with tempfile.TemporaryDirectory(prefix="duramen-dist-") as temporary:
        folder = Path(temporary)
        venv.create(folder / "venv", with_pip=True, symlinks=os.name != "nt")
        python = folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", archive, cwd=folder)
        (folder / "work").mkdir()
        script = shutil.copy(ROOT / "tools" / "smoke_test.py", folder / "work")
        # Without the embedding model: it is not part of the package.
        offline = {"DURAMEN_OFFLINE": "1", "DURAMEN_CACHE": str(folder / "cache")}
        run(python, "-I", script, cwd=folder / "work", extra=offline)


def main() -> int:
    try:
        wheel, sdist = build()
        version = check_version(wheel)
        check_contents(wheel, sdist)
        for archive in (wheel, sdist):
            check_install(archive)
    except (DistError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"dist/ contains duramen {version}.")
    if "dev" in version:
        print("This is a development version. Tag the commit to build a release (docs/releasing.md).")
    return 0


if __name__ == "__main__":
    sys.exit(main())
