"""Segments, and the recall counts that are loaded with them."""

from __future__ import annotations

from ...ports import Segment
from ..common.row_checksum import checksum
from .connection import Connection, Work
from .memories import M, lock_audiences, read_generations


class Segments:
    """Implements the methods of `MemoryStore` for segments, and `recalls`."""

    def __init__(self, do: Work, write: Work) -> None:
        self._do, self._write = do, write

    async def segments(self, workspace: str, audience: bytes, generation: int) -> list[Segment]:
        def work(connection: Connection) -> list[Segment]:
            rows = connection.execute(M.read_segments, (workspace, audience, generation), binary=True)
            return [Segment(*fields[3:]) for *fields, check in rows if checksum(*fields) == check]

        return await self._do(work)

    async def segment_spans(self, workspace: str, generation: int) -> list[tuple[bytes, int, int]]:
        def work(connection: Connection) -> list[tuple[bytes, int, int]]:
            rows = connection.execute(M.segment_spans, (workspace, generation), binary=True)
            return [(audience, after, upto) for audience, after, upto in rows]

        return await self._do(work)

    async def put_segment(self, workspace: str, audience: bytes, generation: int, segment: Segment, seen: int) -> bool:
        def work(connection: Connection) -> bool:
            there = read_generations(connection, M.keep_generations, workspace)
            (index,) = lock_audiences(connection, workspace, [audience]).values()
            place = index.place  # locked, so no memory is forgotten before the segment is stored
            if all(one.number != generation for one in there):
                return False
            late = (*place, seen, segment.first, segment.last)
            if connection.execute(M.forgotten_since, late).fetchone() is not None:
                return False
            fields = (*place, generation, *segment)
            connection.execute(M.drop_overlapping, (*place, generation, segment.upto, segment.after))
            connection.execute(M.put_segment, (*fields, checksum(*fields)))
            return True

        return await self._write(work)

    async def recalls(self, workspace: str, audience: bytes) -> dict[int, int]:
        return await self._do(
            lambda connection: dict(connection.execute(M.read_recalls, (workspace, audience), binary=True).fetchall())
        )
