"""The erasure of a subject."""

from __future__ import annotations

from ...crash_points import reach
from ...ports import Erase, Erasure, Head, Record
from .append import add_records, lock_head, read_records
from .connection import Connection
from .memories import forget_owned
from .sql import Q


def is_committed(connection: Connection, workspace: str, erased: Erasure) -> bool:
    """Whether an erasure was committed, that is, whether its tombstones are stored."""
    return bool(erased.tombstones) and all(
        [stored.hash for stored in read_records(connection, (workspace, session), record.position, record.position)]
        == [record.hash]
        for session, record in erased.tombstones.items()
    )


def erase(connection: Connection, request: Erase) -> Erasure:
    """Remove all data of a subject and append the tombstones, inside the open transaction."""
    reach("erase.begun")
    workspace, ref = request.workspace, request.ref
    payloads = size = 0
    tombstones: dict[str, Record] = {}
    heads: dict[str, Head] = {}
    # Delete the subject first: this waits for running appends about it, and new ones fail.
    connection.execute(Q.delete_subject, (workspace, ref))
    sessions = connection.execute(Q.sessions_of_subject, {"workspace": workspace, "ref": ref}).fetchall()
    for (session,) in sessions:
        held = connection.execute(Q.payloads_of_subject, (workspace, session, ref), binary=True).fetchall()
        rows = [(request.digest(payload), workspace, session, position) for position, payload in held]
        connection.cursor().executemany(Q.erase_payload, rows)
        payloads, size = payloads + len(held), size + sum(len(payload) for _, payload in held)
        head = lock_head(connection, workspace, session)
        if head is not None and held:
            heads[session] = head
            tombstones[session] = request.tombstone(session, head, len(held))
    gone = connection.execute(Q.delete_blobs_of, (workspace, ref)).fetchall()
    marks = connection.execute(Q.delete_bookmarks_of, (workspace, ref)).fetchall()
    chunks = connection.execute(Q.delete_chunks_of, (workspace, ref)).fetchall()
    memories, vectors, indexed = forget_owned(connection, workspace, ref)
    reach("erase.removed")
    for session, record in tombstones.items():
        add_records(connection, (workspace, session), heads[session], [record])
    size += indexed + sum(row[0] for row in (*gone, *marks, *chunks))
    return Erasure(payloads, len(gone), len(marks), size, tombstones, memories, vectors)
