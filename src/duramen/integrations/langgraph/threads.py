"""Stores LangGraph's threads as sessions. The implementation of the saver, for the sync and the async API."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    PendingWrite,
    get_checkpoint_metadata,
)

from ...checkpoints.checkpoints import ANYTHING, Checkpoints, StoredCheckpoint
from ...checkpoints.manifest import Fields
from ...errors import CheckpointConflict, CheckpointDamaged, InvalidInput
from ...journal.journal import Journal
from .channels import FieldDecoder, FieldEncoder, SavedLists
from .config_position import GRAPH, ConfigPosition, expected_newest, parse_config
from .pending_writes import pack_writes, unpack_writes
from .serializer import ValueSerializer, long_id, pack_note, short_id, unpack_id, unpack_metadata, unpack_note

CHECKPOINT = "graph.checkpoint"
WRITES = "graph.writes"
_log = logging.getLogger("duramen.langgraph")


class Threads:
    """The threads of one workspace. One serializer converts all values."""

    def __init__(
        self,
        journal: Journal,
        checkpoints: Checkpoints,
        saved_lists: SavedLists,
        serializer: ValueSerializer,
        *,
        refuse: bool,
    ) -> None:
        self._journal = journal
        self._checkpoints = checkpoints
        self._saved_lists = saved_lists
        self._serializer = serializer
        self._refuse = refuse

    # -- writing

    async def put(self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata) -> RunnableConfig:
        """Save a checkpoint after the configured one and return its configuration. Raises `CheckpointConflict` if
        another run saved one first."""
        place = parse_config(config)
        id = short_id(checkpoint["id"])
        untouched = metadata.get("source") == "input"  # no node has run since the values were loaded
        encoder = FieldEncoder(self._serializer, self._saved_lists.lists(place.thread, place.name), untouched=untouched)
        fields = encoder.fields(checkpoint["channel_values"])
        note = pack_note(checkpoint, get_checkpoint_metadata(config, metadata), place.id, self._serializer)
        after = expected_newest(config, metadata) if self._refuse else ANYTHING
        await self._save(place, fields, note, id, after)
        self._saved_lists.saved(place.thread, place.name, id, encoder.lists)
        return place._replace(id=checkpoint["id"]).config()

    async def _save(self, place: ConfigPosition, fields: Fields, note: dict[str, Any], id: str, after: Any) -> None:
        thread, name = place.thread, place.name
        if isinstance(after, str):
            after = short_id(after)
        try:
            await self._checkpoints.save(thread, name, fields, note, id=id, type=CHECKPOINT, after=after, like=GRAPH)
        except CheckpointConflict as conflict:
            expected, found = (one and long_id(one) for one in (conflict.expected, conflict.found))
            raise CheckpointConflict(thread, name, expected, found) from None

    async def put_writes(self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: str, path: str) -> None:
        """Attach a task's writes to a checkpoint. Raises `InvalidInput` if the configuration has no checkpoint_id."""
        place = parse_config(config)
        if place.id is None:
            raise InvalidInput(
                "the configuration has no checkpoint_id", hint="pass put_writes() the id of the checkpoint"
            )
        data, fields = pack_writes(writes, task, path, self._serializer)
        checkpoint = short_id(place.id)
        await self._checkpoints.attach(
            place.thread, place.name, checkpoint, data, type=WRITES, fields=fields, can_wait=True
        )

    # -- reading

    async def get(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint with the configured id, or the newest one. None if there is none."""
        place = parse_config(config)
        asked = None if place.id is None else short_id(place.id)
        saved = await self._checkpoints.load(place.thread, place.name, id=asked)
        if saved is None:
            return None
        for damage in saved.skipped:
            _log.warning("skipped a damaged checkpoint: %s", damage)
        return await self._tuple(place, saved, asked=place.id or "")

    async def tuples(
        self,
        config: RunnableConfig | None,
        filter: Mapping[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> AsyncGenerator[CheckpointTuple, None]:
        """The checkpoints of a namespace, a thread or all threads, newest first. `before` may be a checkpoint of
        another namespace, because LangGraph's ids sort by time."""
        configurable = (config or {}).get("configurable") or {}
        id, upto = configurable.get("checkpoint_id"), ((before or {}).get("configurable") or {}).get("checkpoint_id")
        given = 0
        async for place, saved in self._found(config):
            if limit is not None and given >= limit:
                return
            here = long_id(saved.id)
            if (id and here != id) or (upto and here >= upto) or not self._matches(saved, filter):
                continue
            filled = await self._filled(saved)
            if filled is not None:
                given += 1
                yield await self._tuple(place, filled)

    async def _filled(self, saved: StoredCheckpoint) -> StoredCheckpoint | None:
        """A checkpoint with its values; None if they are damaged or were removed meanwhile."""
        try:
            filled = await self._checkpoints.load_fields(saved)
        except CheckpointDamaged as damage:
            _log.warning("skipped a damaged checkpoint: %s", damage)
            return None
        return None if filled.fields is None else filled

    async def _found(
        self, config: RunnableConfig | None
    ) -> AsyncGenerator[tuple[ConfigPosition, StoredCheckpoint], None]:
        """The checkpoints that a configuration selects, newest first, without their values."""
        places = await self._places(config)
        if len(places) == 1:
            async for saved in self._checkpoints.list(places[0].thread, places[0].name):
                yield places[0], saved
            return
        every = [(place, saved) for place in places async for saved in self._checkpoints.list(place.thread, place.name)]
        for place, saved in sorted(every, key=lambda one: long_id(one[1].id), reverse=True):
            yield place, saved

    async def _places(self, config: RunnableConfig | None) -> list[ConfigPosition]:
        if config is None:
            return [place async for thread in self.all() for place in await self.namespaces(thread)]
        place = parse_config(config)
        if (config.get("configurable") or {}).get("checkpoint_ns") is None:
            return await self.namespaces(place.thread)
        return [place]

    async def all(self) -> AsyncGenerator[str, None]:
        """The ids of all sessions, including those without a graph."""
        async for row in self._journal.sessions():
            yield row.session

    async def namespaces(self, thread: str) -> list[ConfigPosition]:
        """The namespaces of a thread."""
        names = await self._checkpoints.names(thread, GRAPH)
        return [ConfigPosition(thread, name.removeprefix(GRAPH), None) for name in names]

    def _matches(self, saved: StoredCheckpoint, filter: Mapping[str, Any] | None) -> bool:
        if not filter:
            return True
        metadata = unpack_metadata(saved.note, self._serializer)
        return all(metadata.get(key) == wanted for key, wanted in filter.items())

    async def _tuple(self, place: ConfigPosition, saved: StoredCheckpoint, asked: str | None = None) -> CheckpointTuple:
        decoder = FieldDecoder(self._serializer)
        channel_values = decoder.values(saved.fields or {})
        if asked is not None:
            self._saved_lists.loaded(place.thread, place.name, saved.id, decoder.lists)
        parent, id = saved.note.get("parent"), long_id(saved.id)
        return CheckpointTuple(
            place._replace(id=id).config(asked if self._refuse else None),
            unpack_note(saved.note, id, channel_values, self._serializer),
            unpack_metadata(saved.note, self._serializer),
            None if parent is None else place._replace(id=unpack_id(parent)).config(),
            await self._pending(place, saved),
        )

    async def _pending(self, place: ConfigPosition, saved: StoredCheckpoint) -> list[PendingWrite]:
        """The writes attached to a checkpoint. None of them if one is damaged: their tasks will run again."""
        try:
            calls = await self._checkpoints.attachments(place.thread, place.name, saved.id)
        except CheckpointDamaged as damage:
            _log.warning("skipped damaged writes: %s", damage)
            return []
        return unpack_writes(calls, self._serializer)
