"""The wheel contains each file of the package. `make dist` also builds, installs and runs it."""

from __future__ import annotations

from hatchling.builders.wheel import WheelBuilder
from programs.paths import ROOT

SOURCE = ROOT / "src"


def test_the_wheel_contains_each_file_of_the_package() -> None:
    files = {path.relative_to(SOURCE).as_posix() for path in (SOURCE / "duramen").rglob("*") if path.is_file()}
    packed = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert {name for name in files if "__pycache__" not in name} == packed
    assert {"duramen/py.typed", "duramen/__init__.pyi", "duramen/stores/sqlite/queries.sql"} <= packed
