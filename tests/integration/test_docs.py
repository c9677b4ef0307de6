"""Every Python block in the README and the docs runs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from programs.paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
BLOCKS = [
    pytest.param(block, id=f"{page.name}-{number}")
    for page in PAGES
    for number, block in enumerate(BLOCK.findall(page.read_text(encoding="utf-8")), 1)
]
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_runs(block: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block], cwd=tmp_path, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(CODE.sub("", page.read_text(encoding="utf-8"))):
        assert (page.parent / target).exists(), target


def test_the_table_of_counts_is_the_measured_one() -> None:
    tool = [sys.executable, str(ROOT / "tools" / "token_corpus.py")]
    done = subprocess.run(tool, capture_output=True, text=True, check=True)
    page = (ROOT / "docs" / "guides" / "context.md").read_text(encoding="utf-8")
    assert [row for row in done.stdout.splitlines()[2:] if row not in page] == []
