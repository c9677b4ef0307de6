"""The writes of a graph's tasks. They are attached to a checkpoint until the next checkpoint includes them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from langgraph.checkpoint.base import WRITES_IDX_MAP, PendingWrite

from ...checkpoints.checkpoints import Attachment
from ...checkpoints.manifest import Fields
from .channels import FieldDecoder, FieldEncoder, serialize_short_lists
from .serializer import ValueSerializer, pack_id, unpack_id


def pack_writes(
    writes: Sequence[tuple[str, Any]], task: str, path: str, serializer: ValueSerializer
) -> tuple[dict[str, Any], Fields]:
    """The writes of one call: their description, and the fields of their values."""
    data: dict[str, Any] = {"task": pack_id(task), "channels": [channel for channel, _ in writes]}
    if path:
        data["path"] = path
    named = {str(number): serializer.named(channel, value) for number, (channel, value) in enumerate(writes)}
    fields = FieldEncoder(serializer).fields(named)
    return data, serialize_short_lists(fields)


def unpack_writes(calls: Iterable[Attachment], serializer: ValueSerializer) -> list[PendingWrite]:
    """The writes of these calls, in the order in which LangGraph applies them.

    A write has an index in its task. The first write at an index counts, because a task that runs again writes the same
    values. Errors, interrupts and answers have fixed indexes, at which the last write counts.
    """
    rows: dict[tuple[str, int], tuple[str, str, Any]] = {}
    for call in calls:
        task, path = unpack_id(call.data["task"]), call.data.get("path", "")
        written = FieldDecoder(serializer).values(call.fields or {})
        for number, channel in enumerate(call.data["channels"]):
            place = WRITES_IDX_MAP.get(channel, number)
            if place < 0 or (task, place) not in rows:
                rows[task, place] = (path, channel, written[str(number)])
    ordered = sorted(rows.items(), key=lambda row: (row[1][0], *row[0]))
    return [(task, channel, value) for (task, _), (_, channel, value) in ordered]
