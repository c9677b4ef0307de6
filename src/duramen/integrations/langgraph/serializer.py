"""Packs LangGraph's data into bytes: values with LangGraph's own serializer, ids and metadata in a compact form."""

from __future__ import annotations

import datetime as dt
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any

import msgspec
from langgraph.checkpoint.base import Checkpoint, CheckpointMetadata
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from ...errors import InvalidInput, UnknownType

_pack = msgspec.msgpack.encode
_unpack = msgspec.msgpack.decode
_KINDS = {"null": 0, "bytes": 1, "bytearray": 2, "msgpack": 3, "json": 4}
"""One byte for each type name of LangGraph's serializer. The numbers are stored: never reuse one."""
_NAMES = {number: kind for kind, number in _KINDS.items()}
_OTHER = 255
_KNOWN = frozenset(["v", "id", "ts", "channel_values", "channel_versions", "versions_seen", "updated_channels"])
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


class ValueSerializer:
    """Converts values to bytes and back with a LangGraph serializer."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde

    def dump(self, value: Any) -> bytes:
        """The bytes of a value. The serializer's type name comes first, as a number if it is a known one."""
        kind, body = self.serde.dumps_typed(value)
        number = _KINDS.get(kind)
        if number is not None:
            return bytes([number]) + body
        name = kind.encode()
        return bytes([_OTHER, len(name)]) + name + body

    def load(self, packed: bytes) -> Any:
        """The value of bytes from `dump`. Raises `UnknownType` if it contains a type that the serializer refuses."""
        number, end = packed[0], 1
        if number != _OTHER:
            name = _NAMES[number]
        else:
            end = 2 + packed[1]
            name = packed[2:end].decode()
        refused: list[str] = []
        token = _refused.set(refused)
        try:
            value = self.serde.loads_typed((name, packed[end:]))
        finally:
            _refused.reset(token)
        if refused:
            raise UnknownType(refused[0], hint="if you trust the type, name it: DuramenSaver(dm, types=[…])")
        return value


def strict_serializer(types: Iterable[type | tuple[str, str]]) -> JsonPlusSerializer:
    """LangGraph's serializer, restricted to plain data, messages, LangGraph's own types and `types`. A type is a class,
    or its module and name."""
    listed = tuple(types)
    for one in listed:
        if not isinstance(one, type) and not (isinstance(one, tuple) and len(one) == 2 and all(map(_is_text, one))):
            raise InvalidInput("`types` has an entry that is not a type", hint="give classes, or (module, name) pairs")
    return JsonPlusSerializer(allowed_msgpack_modules=listed or None)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_refused: ContextVar[list[str] | None] = ContextVar("refused", default=None)


def _note_refused(event: SerdeEvent) -> None:
    """LangGraph's serializer returns the raw parts of a value whose type it refuses. We want an error instead."""
    refused = _refused.get()
    if refused is not None and "blocked" in event["kind"]:
        refused.append(f"{event['module']}.{event['name']}")


register_serde_event_listener(_note_refused)


# -- ids and times: compact if they have the usual form, unchanged otherwise

_ATOMS = frozenset([str, int, float, bool, bytes, type(None)])
_HOLDERS = frozenset([list, tuple, set, frozenset])


@lru_cache(1024)  # each id is packed several times: for its own checkpoint, as parent and as the expected newest
def pack_id(text: str) -> bytes | str:
    """An id in a compact form: sixteen bytes for a UUID, the text itself otherwise."""
    digits = text.replace("-", "")
    if len(digits) != 32 or len(text) != 36:
        return text
    try:
        packed = bytes.fromhex(digits)
    except ValueError:
        return text
    return packed if unpack_id(packed) == text else text


def unpack_id(packed: bytes | str) -> str:
    """The id from `pack_id`."""
    if isinstance(packed, str):
        return packed
    digits = packed.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


@lru_cache(1024)
def short_id(id: str) -> str:
    """The id of a checkpoint in the journal: 22 characters for a UUID."""
    packed = pack_id(id)
    return urlsafe_b64encode(packed).decode().rstrip("=") if isinstance(packed, bytes) else f".{id}"


def long_id(short: str) -> str:
    """The id from `short_id`."""
    return short[1:] if short.startswith(".") else unpack_id(urlsafe_b64decode(f"{short}=="))


def _pack_time(text: str) -> int | str:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        return text
    if moment.tzinfo is None:
        return text
    micros = (moment - _EPOCH) // _MICROSECOND
    return micros if _unpack_time(micros) == text else text


def _unpack_time(packed: int | str) -> str:
    return (_EPOCH + packed * _MICROSECOND).isoformat() if isinstance(packed, int) else packed


# -- everything in a checkpoint except the values of its channels


def pack_note(
    checkpoint: Checkpoint, metadata: CheckpointMetadata, parent: str | None, serializer: ValueSerializer
) -> dict[str, Any]:
    """The data that is stored with a checkpoint. Metadata is stored as plain data, so that people can read it and
    credentials in it are found."""
    versions = checkpoint.get("channel_versions") or {}
    places = {channel: place for place, channel in enumerate(versions)}
    seen = {
        node: [part for channel, version in one.items() for part in (places.get(channel, channel), version)]
        for node, one in (checkpoint.get("versions_seen") or {}).items()
    }
    updated = checkpoint.get("updated_channels")
    updated_places = None if updated is None else [places.get(channel, channel) for channel in updated]
    book: list[Any] = [checkpoint["v"], _pack_time(checkpoint["ts"]), versions, seen, updated_places]
    more = {key: value for key, value in checkpoint.items() if key not in _KNOWN}
    if more or "updated_channels" not in checkpoint:
        book += [serializer.dump(more), "updated_channels" in checkpoint]
    note: dict[str, Any] = {"book": _pack(book), "metadata": _plain(metadata, serializer)}
    if parent is not None:
        note["parent"] = pack_id(parent)
    return note


def unpack_note(
    note: Mapping[str, Any], id: str, channel_values: dict[str, Any], serializer: ValueSerializer
) -> Checkpoint:
    """The checkpoint from `pack_note`, with the values of its channels."""
    v, ts, versions, seen, updated, *rest = _unpack(note["book"])
    channels = list(versions)
    named = {node: _paired(flat, channels) for node, flat in seen.items()}
    more, has_updated = (serializer.load(rest[0]), rest[1]) if rest else ({}, True)
    checkpoint = {
        "v": v,
        "ts": _unpack_time(ts),
        "id": id,
        "channel_values": channel_values,
        "channel_versions": versions,
        "versions_seen": named,
        **more,
    }
    if has_updated:
        checkpoint["updated_channels"] = None if updated is None else [_name(place, channels) for place in updated]
    return checkpoint  # type: ignore[return-value]


def unpack_metadata(note: Mapping[str, Any], serializer: ValueSerializer) -> Any:
    """The metadata from `pack_note`."""
    metadata = note["metadata"]
    return serializer.load(metadata) if isinstance(metadata, bytes) else metadata


def _paired(flat: list[Any], channels: list[str]) -> dict[str, Any]:
    return {_name(place, channels): version for place, version in zip(flat[::2], flat[1::2], strict=True)}


def _name(place: Any, channels: list[str]) -> str:
    return channels[place] if isinstance(place, int) else place


def _plain(metadata: CheckpointMetadata, serializer: ValueSerializer) -> Any:
    """The metadata itself if the journal can store it, its serialized form otherwise."""
    return dict(metadata) if is_plain(metadata) else serializer.dump(metadata)


def is_plain(value: Any) -> bool:
    """Whether a value consists only of built-in types, at every level."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if kind is dict:
        return all(type(name) in _ATOMS and is_plain(inner) for name, inner in value.items())
    return kind in _HOLDERS and all(map(is_plain, value))
