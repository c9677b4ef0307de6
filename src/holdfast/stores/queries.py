"""Queries from `.sql` files: each has a name and a sentence above it."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

_NAMED = re.compile(r"^-- name: (\w+)\n((?:--[^\n]*\n)*)(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)


def load_queries(path: Path) -> SimpleNamespace:
    """The queries of a file, by name."""
    found = {name: body.strip().rstrip(";") for name, _, body in _NAMED.findall(path.read_text(encoding="utf-8"))}
    return SimpleNamespace(**found)


def load_migrations(folder: Path) -> list[tuple[int, str]]:
    """The numbered migrations of a folder, in order: (version, script)."""
    files = sorted(folder.glob("[0-9]*.sql"))
    return [(int(file.name.split("_")[0]), file.read_text(encoding="utf-8")) for file in files]
