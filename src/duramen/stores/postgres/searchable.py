"""Search rows, by which PostgreSQL searches memories itself.

Code that writes, ends or forgets a memory does the same to its search row, in the same transaction and under the same
lock on its audience.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from ...ports import MemoryRow, SearchFields
from ..common.row_checksum import checksum, expect_intact
from ..common.sql_file import load_queries
from .connection import Connection

S = load_queries(Path(__file__).parent / "retrieval.sql")
EPISODE = "episode"
DRAWS = 1024
"""The column `draw` is a number below this one."""
DRAWN = 128
"""Rows with a `draw` below this are in the sample, which is one row in eight. They have an index."""
_pack = msgspec.msgpack.encode
_HIDDEN = SearchFields(b"", 0, None, None)


def completed(query: str, fragments: Mapping[str, str]) -> str:
    """A query with its placeholders, which are words in capitals, replaced. Placeholders in fragments are not."""
    return re.sub(r"\b(?:" + "|".join(fragments) + r")\b", lambda found: fragments[found[0]], query)


def draw(number: int) -> int:
    """A pseudo-random number below `DRAWS`, always the same for a memory."""
    return ((number & 0xFFFFF) * 2654435761 >> 10) % DRAWS


def secret_of(connection: Connection, workspace: str) -> bytes | None:
    """The secret with which the words of a workspace are hashed. None if it has none yet."""
    row = connection.execute(S.find_secret, (workspace,), binary=True).fetchone()
    if row is None:
        return None
    expect_intact("the secret of a workspace", row[1], workspace, row[0])
    return bytes(row[0])


def made_secret(connection: Connection, workspace: str) -> bytes:
    """The secret of a workspace. Creates it if there is none. If two processes create one, both get the first."""
    found = secret_of(connection, workspace)
    if found is None:
        drawn: Any = connection.execute(S.draw_secret, binary=True).fetchone()
        connection.execute(S.add_secret, (workspace, drawn[0], checksum(workspace, drawn[0])))
        found = secret_of(connection, workspace)
    assert found is not None, "secrets are never removed"
    return found


def keys(secret: bytes, generation: int, audience: bytes | None, terms: Iterable[int]) -> list[int]:
    """Terms as they are indexed, for one audience or, with None, for the workspace. So the index itself selects by
    audience. If two terms get the same number, there is a useless candidate, but no wrong result, because candidates
    are ranked by their own words."""
    hashing = blake2b(_pack((generation, audience)), digest_size=4, key=secret, person=b"duramen.words")
    found = []
    for term in terms:
        one = hashing.copy()
        one.update(term.to_bytes(4, "big"))
        found.append(int.from_bytes(one.digest(), "big", signed=True))
    return found


def written_bits(code: bytes | None) -> str | None:
    """A code as a PostgreSQL bit string."""
    return f"{int.from_bytes(code, 'big'):0{8 * len(code)}b}" if code else None


def columns(
    workspace: str, secret: bytes, generation: int, row: MemoryRow, search_fields: SearchFields | None
) -> tuple[Any, ...]:
    """The columns of the search row of a memory. Without `search_fields` the memory is sealed."""
    given = search_fields or _HIDDEN
    numbers = array("I", given.terms)
    terms = keys(secret, generation, row.audience, numbers) + keys(secret, generation, None, numbers)
    place = (row.session, row.position) if row.kind == EPISODE else (None, None)
    opens = row.begins if row.begins > row.recorded else None
    code = written_bits(given.code)
    check = checksum(workspace, generation, row.audience, row.number, search_fields is None, given.length, terms, code)
    head = (workspace, generation, row.audience, row.number, row.kind, *place, row.begins, opens, row.ends, row.expires)
    return (*head, search_fields is None, draw(row.number), given.length, given.metadata, terms, code, check)


def put(
    connection: Connection, workspace: str, generation: int, rows: Iterable[tuple[MemoryRow, SearchFields | None]]
) -> None:
    """Write the search rows of memories. Memories that are not current are skipped."""
    current = [(row, search_fields) for row, search_fields in rows if row.closed is None and row.id]
    if current:
        secret = made_secret(connection, workspace)
        made = [columns(workspace, secret, generation, row, search_fields) for row, search_fields in current]
        connection.cursor().executemany(S.put_searchable, made)


def follow(connection: Connection, workspace: str, audience: bytes, rows: Sequence[MemoryRow]) -> None:
    """Apply changes of memories to their search rows: delete those that are no longer current, and update the end of
    the others."""
    gone = [row.number for row in rows if row.closed is not None or not row.id]
    if gone:
        connection.execute(S.drop_searchable, {"workspace": workspace, "audience": audience, "numbers": gone})
    dated = [
        {"workspace": workspace, "audience": audience, "number": row.number, "ends": row.ends, "expires": row.expires}
        for row in rows
        if row.closed is None and row.id
    ]
    if dated:
        connection.cursor().executemany(S.date_searchable, dated)


def drop_others(connection: Connection, workspace: str, generation: int) -> None:
    """Delete the search rows of all generations except one."""
    connection.execute(S.drop_generation_searchable, (workspace, generation))
    connection.execute(S.drop_generation_searched, (workspace, generation))
