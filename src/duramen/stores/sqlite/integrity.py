"""The check of everything that the hash chain does not cover."""

from __future__ import annotations

from typing import Any

import apsw

from ..common.row_checksum import mismatches
from .memories import M
from .rows import column
from .sql import Q


def damage(connection: apsw.Connection) -> list[str]:
    """What is wrong outside the chains: the file itself, orphans, gaps, rows that do not match their checksums."""
    found = [text for text in column(connection, "PRAGMA integrity_check(10)") if text != "ok"]
    for what, query in (
        ("an event belongs to no session", Q.orphan_events),
        ("a blob belongs to no subject", Q.orphan_blobs),
        ("a bookmark points to nothing, or a chunk belongs to no session", Q.orphan_bookmarks),
        ("a memory points to nothing, or what is searched belongs to no memory", M.orphan_memories),
        ("two memories stand for one", M.doubled_memories),
        ("the feed contradicts the order of a session", Q.disorder),
        ("events are missing: the numbers of the feed have a gap", Q.gap),
    ):
        if connection.execute(query).fetchone() is not None:
            found.append(what)
    for kind, query in (
        ("session", Q.all_sessions),
        ("subject", Q.all_subjects),
        ("lease", Q.all_leases),
        ("cursor", Q.all_cursors),
        ("run", Q.all_runs),
        ("bookmark", Q.all_bookmarks),
        ("chunk", Q.all_chunks),
        ("audience", M.all_audiences),
        ("memory", M.all_memories),
        ("index entry", M.all_index_entries),
        ("segment", M.all_segments),
        ("count of recalls", M.all_recalls),
        ("generation", M.all_generations),
    ):
        rows: Any = connection.execute(query)
        found += [f"the {kind} {name!r} does not match its checksum" for name in mismatches(rows)]
    return found
