"""Prints the tests of each promise in docs/promises.md. Fails if a built promise has no test, or a test names none."""

from __future__ import annotations

import io
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| ([A-Z]\d+) \| (.+?) \|.*\| (built|planned) \|$", re.MULTILINE)


def read_promises() -> dict[str, tuple[str, str]]:
    """The text and the state of each promise in the table, by id."""
    page = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    return {name: (text, state) for name, text, state in ROW.findall(page)}


class Collector:
    """Counts the tests of each promise."""

    def __init__(self) -> None:
        self.tests: dict[str, int] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            for mark in item.iter_markers("promise"):
                for name in mark.args:
                    self.tests[name] = self.tests.get(name, 0) + 1


def main() -> int:
    collector = Collector()
    with redirect_stdout(io.StringIO()) as printed:
        code = pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", str(ROOT / "tests")], [collector])
    if code != pytest.ExitCode.OK:
        print(printed.getvalue())
        return int(code)
    table = read_promises()
    for name, (text, state) in table.items():
        count = collector.tests.get(name, 0)
        print(f"{name:>4}  {state:7}  {f'{count} tests' if count else '-':>9}  {text}")
    built = [name for name, (_, state) in table.items() if state == "built"]
    print(f"\n{len(built)} of {len(table)} promises are built and tested; the others are planned")
    unknown = sorted(collector.tests.keys() - table.keys())
    untested = [name for name in built if name not in collector.tests]
    if unknown:
        print(f"tests name unknown promises: {', '.join(unknown)}")
    if untested:
        print(f"promises marked as built have no test: {', '.join(untested)}")
    return 1 if unknown or untested else 0


if __name__ == "__main__":
    sys.exit(main())
