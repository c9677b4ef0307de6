"""The integrity check of the SQL stores: everything that the hash chain does not cover."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any

from .row_checksum import mismatches

_RULES = {
    "orphan_events": "an event belongs to no session",
    "orphan_blobs": "a blob belongs to no subject",
    "orphan_bookmarks": "a bookmark points to no event, or a chunk belongs to no session",
    "orphan_memories": "a memory points to no event, or an index entry belongs to no memory",
    "disorder": "the feed contradicts the order of a session",
}
_ROWS = {
    "all_sessions": "session",
    "all_subjects": "subject",
    "all_leases": "lease",
    "all_cursors": "cursor",
    "all_runs": "run",
    "all_bookmarks": "bookmark",
    "all_chunks": "chunk",
    "all_audiences": "audience",
    "all_memories": "memory",
    "all_index_entries": "index entry",
    "all_segments": "segment",
    "all_recalls": "recall count of memory",
    "all_generations": "generation",
}


def find_damage(
    execute: Callable[[str], Iterable[Any]],
    queries: Iterable[SimpleNamespace],
    rules: Mapping[str, str],
    rows: Mapping[str, str] | None = None,
) -> list[str]:
    """One sentence for each broken rule and for each row that does not match its checksum.

    A rule is the name of a query that returns a row if the rule is broken, and the sentence for it. A query for `rows`
    returns (name, checksum, fields …). A store adds its own rules and rows to those that all SQL stores have.
    """
    texts = {name: text for one in queries for name, text in vars(one).items()}
    broken = [sentence for name, sentence in {**_RULES, **rules}.items() if list(execute(texts[name]))]
    for query, kind in {**_ROWS, **(rows or {})}.items():
        broken += [f"the {kind} {name!r} does not match its checksum" for name in mismatches(execute(texts[query]))]
    return broken
