"""The integrity check of the SQLite store."""

from __future__ import annotations

import apsw

from ..common.integrity import find_damage
from .memories import M
from .rows import column
from .sql import Q

_RULES = {
    "doubled_memories": "two current memories have the same id, or hold at the same time under one key",
    "gap": "events are missing: the numbers of the feed have a gap",
}


def damage(connection: apsw.Connection) -> list[str]:
    """See `Store.damage`. It includes SQLite's own check of the file."""
    file = [text for text in column(connection, "PRAGMA integrity_check(10)") if text != "ok"]
    return file + find_damage(connection.execute, (Q, M), _RULES)
