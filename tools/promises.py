"""Prints which promises of docs/promises.md have tests. Fails if a test names an unknown promise."""

from __future__ import annotations

import io
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| ([A-Z]\d+) \| (.+?) \|", re.MULTILINE)


def read_promises() -> dict[str, str]:
    """The promises of docs/promises.md, by id."""
    return dict(ROW.findall((ROOT / "docs" / "promises.md").read_text(encoding="utf-8")))


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
    tested = [name for name in table if name in collector.tests]
    for name, text in table.items():
        count = collector.tests.get(name, 0)
        print(f"{name:>4}  {f'{count} tests' if count else '-':>9}  {text}")
    print(f"\n{len(tested)} of {len(table)} promises have tests")
    unknown = sorted(collector.tests.keys() - table.keys())
    if unknown:
        print(f"tests name unknown promises: {', '.join(unknown)}")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
