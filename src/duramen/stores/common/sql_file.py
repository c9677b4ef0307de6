"""Queries from `.sql` files: each has a name and a sentence above it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from ...errors import NotAStore, StoreReadOnly

_NAMED = re.compile(r"^-- name: (\w+)\n((?:--[^\n]*\n)*)(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)

Migrations = Sequence[tuple[int, str]]
"""Versions and the scripts that lead to them, in order."""


def load_queries(path: Path) -> SimpleNamespace:
    """The queries of a file, by name."""
    found = {name: body.strip().rstrip(";") for name, _, body in _NAMED.findall(path.read_text(encoding="utf-8"))}
    return SimpleNamespace(**found)


def load_migrations(folder: Path) -> Migrations:
    """The numbered migrations of a folder, in order: (version, script)."""
    files = sorted(folder.glob("[0-9]*.sql"))
    return [(int(file.name.split("_")[0]), file.read_text(encoding="utf-8")) for file in files]


def refuse_outdated(version: int, current: int, where: str) -> None:
    """A store that may only be read cannot be brought up to date: say so."""
    if version == 0:
        raise NotAStore(f"{where} holds no journal", hint="check the address; a journal is made by its first writer")
    if version < current:
        raise StoreReadOnly(
            f"{where} has schema version {version} and needs {current}", hint="open it once with the right to write"
        )
