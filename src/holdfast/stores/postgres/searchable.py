"""Rows by which PostgreSQL searches memories itself. They go with the traces: whoever writes, ends or forgets a memory
does the same to its row here, in the same transaction and under the same lock, that on its pool."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from ...ports import MemoryRow, Sought
from ..queries import load_queries
from ..rowcheck import checksum
from .connection import Connection

S = load_queries(Path(__file__).parent / "seeking.sql")
EPISODE = "episode"
DRAWS = 1024
DRAWN = 128
"""Of so many draws those below this one have an index: one row in eight is quickly found by chance."""
_pack = msgspec.msgpack.encode
_HIDDEN = Sought(b"", 0, None, None)


def completed(query: str, parts: Mapping[str, str]) -> str:
    """A query with its marks, which are words in capitals, replaced; what replaces them is left as it is."""
    return re.sub(r"\b(?:" + "|".join(parts) + r")\b", lambda found: parts[found[0]], query)


def draw(number: int) -> int:
    """By chance, but the same for a number each time."""
    return ((number & 0xFFFFF) * 2654435761 >> 10) % DRAWS


def keys(workspace: str, generation: int, pool: bytes | None, terms: Iterable[int]) -> list[int]:
    """Terms as they are indexed, for one pool or (None) for the workspace: so the index itself holds the filter. Two
    that fall on one number cost a candidate, no more: candidates are ranked by their own words."""
    place = (workspace, generation) if pool is None else (workspace, generation, pool)
    salt = crc32(_pack(place))
    return [_signed(term ^ salt) for term in terms]


def _signed(number: int) -> int:
    return number - 2**32 if number >= 2**31 else number


def written_bits(code: bytes | None) -> str | None:
    """A code as PostgreSQL writes it."""
    return f"{int.from_bytes(code, 'big'):0{8 * len(code)}b}" if code else None


def columns(workspace: str, generation: int, row: MemoryRow, sought: Sought | None) -> tuple[Any, ...]:
    """The row of a memory; without `sought`, that it is there and sealed."""
    given = sought or _HIDDEN
    numbers = array("I", given.terms)
    terms = keys(workspace, generation, row.pool, numbers) + keys(workspace, generation, None, numbers)
    place = (row.session, row.position) if row.kind == EPISODE else (None, None)
    opens = row.begins if row.begins > row.recorded else None
    code = written_bits(given.code)
    check = checksum(workspace, generation, row.pool, row.number, sought is None, given.length, terms, code)
    head = (workspace, generation, row.pool, row.number, row.kind, *place, row.begins, opens, row.ends, row.expires)
    return (*head, sought is None, draw(row.number), given.length, given.metadata, terms, code, check)


def put(
    connection: Connection, workspace: str, generation: int, rows: Iterable[tuple[MemoryRow, Sought | None]]
) -> None:
    """Make memories searchable: those that are current."""
    made = [columns(workspace, generation, row, sought) for row, sought in rows if row.closed is None and row.id]
    if made:
        connection.cursor().executemany(S.put_searchable, made)


def follow(connection: Connection, workspace: str, pool: bytes, rows: Sequence[MemoryRow]) -> None:
    """Memories that were there have changed: what is current no longer goes, the others may end at another time."""
    gone = [row.number for row in rows if row.closed is not None or not row.id]
    if gone:
        connection.execute(S.drop_searchable, {"workspace": workspace, "pool": pool, "numbers": gone})
    dated = [
        {"workspace": workspace, "pool": pool, "number": row.number, "ends": row.ends, "expires": row.expires}
        for row in rows
        if row.closed is None and row.id
    ]
    if dated:
        connection.cursor().executemany(S.date_searchable, dated)


def drop_others(connection: Connection, workspace: str, generation: int) -> None:
    """Of all generations only this one is left."""
    connection.execute(S.drop_generation_searchable, (workspace, generation))
    connection.execute(S.drop_generation_searched, (workspace, generation))
