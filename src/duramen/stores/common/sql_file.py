"""Loads queries and migrations from `.sql` files. Above each query are its name and a comment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from ...errors import NotAStore, StoreReadOnly

_NAMED = re.compile(r"^-- name: (\w+)\n((?:--[^\n]*\n)*)(.*?)(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)

Migrations = Sequence[tuple[int, str]]
"""Schema versions and the scripts that create them, in order."""


def load_queries(path: Path) -> SimpleNamespace:
    """The queries of a file, by name."""
    found = {name: body.strip().rstrip(";") for name, _, body in _NAMED.findall(path.read_text(encoding="utf-8"))}
    return SimpleNamespace(**found)


def load_migrations(folder: Path) -> Migrations:
    """The migrations of a folder, sorted by their numbers."""
    files = sorted(folder.glob("[0-9]*.sql"))
    return [(int(file.name.split("_")[0]), file.read_text(encoding="utf-8")) for file in files]


def refuse_outdated(version: int, current: int, where: str) -> None:
    """Raise `NotAStore` or `StoreReadOnly` if a read-only handle would have to migrate the schema."""
    if version == 0:
        raise NotAStore(
            f"{where} holds no journal", hint="check the address, or open it once for writing to create the journal"
        )
    if version < current:
        raise StoreReadOnly(
            f"{where} has schema version {version}, but version {current} is needed",
            hint="open it once for writing, which migrates it",
        )
