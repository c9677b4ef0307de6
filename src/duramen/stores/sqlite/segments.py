"""Segments: changes of an audience packed together, and what is read beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import apsw

from ...ports import Segment
from ..common.row_checksum import checksum
from .memories import M, find_pids, read_generations

T = TypeVar("T")


class Packing:
    """The chunk of the store that keeps segments."""

    async def _read(self, work: Callable[[apsw.Connection], T]) -> T:
        raise NotImplementedError

    async def _write(self, work: Callable[[apsw.Connection], T]) -> T:
        raise NotImplementedError

    async def segments(self, workspace: str, audience: bytes, generation: int) -> list[Segment]:
        def work(connection: apsw.Connection) -> list[Segment]:
            pid = find_pids(connection, workspace, [audience]).get(audience, -1)
            rows: Any = connection.execute(M.read_segments, (generation, pid))
            return [Segment(*fields) for *fields, check in rows if checksum(generation, pid, *fields) == check]

        return await self._read(work)

    async def segment_spans(self, workspace: str, generation: int) -> list[tuple[bytes, int, int]]:
        values = {"workspace": workspace, "generation": generation}

        def work(connection: apsw.Connection) -> list[tuple[bytes, int, int]]:
            rows: Any = connection.execute(M.segment_spans, values)
            return list(rows)

        return await self._read(work)

    async def put_segment(self, workspace: str, audience: bytes, generation: int, segment: Segment, seen: int) -> bool:
        def work(connection: apsw.Connection) -> bool:
            pid = find_pids(connection, workspace, [audience]).get(audience)
            if pid is None or all(one.number != generation for one in read_generations(connection, workspace)):
                return False
            late = {"pid": pid, "seen": seen, "first": segment.first, "last": segment.last}
            if connection.execute(M.forgotten_since, late).fetchone() is not None:
                return False
            connection.execute(M.drop_overlapping, (generation, pid, segment.upto, segment.after))
            *fields, body = segment
            check = checksum(generation, pid, *segment)
            connection.execute(M.put_segment, (generation, pid, *fields, check, body))
            return True

        return await self._write(work)

    async def recalls(self, workspace: str, audience: bytes) -> dict[int, int]:
        def work(connection: apsw.Connection) -> dict[int, int]:
            pid = find_pids(connection, workspace, [audience]).get(audience, -1)
            rows: Any = connection.execute(M.read_recalls, (pid,))
            return dict(rows)

        return await self._read(work)
