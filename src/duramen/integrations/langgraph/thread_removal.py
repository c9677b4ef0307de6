"""Removes and copies LangGraph's threads. A removal deletes the payloads; the events stay in the journal."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from ...checkpoints.checkpoints import Checkpoints, StoredCheckpoint
from ...errors import InvalidInput, shown
from .channels import SavedLists, fields_from_stored
from .config_position import ConfigPosition, thread_id
from .serializer import ValueSerializer, short_id, unpack_id, unpack_metadata
from .threads import CHECKPOINT, WRITES, Threads

_COUNTERS = "counters_since_delta_snapshot"
"""LangGraph's metadata key for channels that are not stored in full: their values are in the writes since a
snapshot."""


class ThreadRemoval:
    """Removes, prunes and copies the threads of a `Threads`."""

    def __init__(
        self, threads: Threads, checkpoints: Checkpoints, saved_lists: SavedLists, serializer: ValueSerializer
    ) -> None:
        self._threads = threads
        self._checkpoints = checkpoints
        self._saved_lists = saved_lists
        self._serializer = serializer

    async def delete(self, thread: str, reason: str = "delete_thread") -> None:
        """Remove all checkpoints and writes of a thread."""
        session = thread_id(thread)
        self._saved_lists.forget(session)
        places = await self._threads.namespaces(session)
        for place in {ConfigPosition(session, "", None), *places}:  # there may be writes without a checkpoint
            await self._checkpoints.drop(place.thread, place.name, None, reason=reason)

    async def delete_runs(self, runs: Iterable[str]) -> None:
        """Remove the checkpoints of these runs, with their writes, from all threads. Reads every checkpoint."""
        doomed = set(runs)
        if not doomed:
            return
        async for thread in self._threads.all():
            for place in await self._threads.namespaces(thread):
                ids = [one.id for one in await self._all(place) if self._metadata(one).get("run_id") in doomed]
                await self._drop(place, ids, "delete_for_runs")

    async def copy(self, source: str, target: str) -> None:
        """Copy the checkpoints and writes of one thread to another, oldest first."""
        target = thread_id(target)
        for place in await self._threads.namespaces(thread_id(source)):
            for saved in reversed(await self._all(place)):
                fields = fields_from_stored((await self._checkpoints.load_fields(saved)).fields or {})
                await self._checkpoints.save(target, place.name, fields, saved.note, id=saved.id, type=CHECKPOINT)
                for call in await self._checkpoints.attachments(place.thread, place.name, saved.id):
                    fields = fields_from_stored(call.fields or {})
                    await self._checkpoints.attach(target, place.name, saved.id, call.data, type=WRITES, fields=fields)

    async def prune(self, threads: Iterable[str], strategy: str) -> None:
        """Keep the newest checkpoint of each namespace of these threads, or none."""
        if strategy not in ("keep_latest", "delete"):
            raise InvalidInput(f"strategy cannot be {shown(strategy)}", hint='use "keep_latest" or "delete"')
        for thread in threads:
            if strategy == "delete":
                await self.delete(thread, "prune")
                continue
            for place in await self._threads.namespaces(thread_id(thread)):
                every = await self._all(place)
                needed = await self._needed(every)
                await self._drop(place, [one.id for one in every if one.id not in needed], "prune")

    async def _needed(self, every: list[StoredCheckpoint]) -> set[str]:
        """The newest checkpoint, and the earlier ones whose writes it needs for channels that are not stored in
        full."""
        known = {one.id: one for one in every}
        needed: set[str] = set()
        current = every[0] if every else None
        missing = set(self._metadata(current).get(_COUNTERS) or ()) if current is not None else set()
        while current is not None:
            needed.add(current.id)
            if missing:
                missing -= set((await self._checkpoints.load_fields(current)).fields or ())
            parent = current.note.get("parent")
            current = known.get(short_id(unpack_id(parent))) if missing and parent is not None else None
        return needed

    async def _all(self, place: ConfigPosition) -> list[StoredCheckpoint]:
        return [saved async for saved in self._checkpoints.list(place.thread, place.name)]

    def _metadata(self, saved: StoredCheckpoint) -> dict[str, Any]:
        metadata: dict[str, Any] = unpack_metadata(saved.note, self._serializer)
        return metadata

    async def _drop(self, place: ConfigPosition, ids: Collection[str], reason: str) -> None:
        if ids:
            self._saved_lists.forget(place.thread)
            await self._checkpoints.drop(place.thread, place.name, ids, reason=reason)
