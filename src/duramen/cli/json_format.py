"""The JSON format of `--json` and `export`.

Plain data stays unchanged. Other values become an object with a marker key: `{"$bytes": base64}`, or
`{"$type": name, "value": …}`. Registered classes also have a `version`. A mapping with a marker key of its own, or
with keys that are not text, becomes `{"$type": "dict", "value": [[key, value], …]}`, so that no value is ambiguous.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
import uuid
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path, PurePath
from typing import Any
from zoneinfo import ZoneInfo

from ..errors import UnknownType
from ..journal.codec import Unregistered
from ..journal.events import Event
from .terminal_text import visible

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MARKERS = frozenset(["$type", "$bytes"])


def json_text(value: Any, indent: int | None = None) -> str:
    """JSON that is safe to print: control and format characters inside texts are escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    return "\n".join(map(visible, text.split("\n"))) if indent is not None else visible(text)


def event_fields(session: str, event: Event) -> dict[str, Any]:
    """An event as a self-contained JSON object. `origin` is the session that recorded it. It differs from `session` for
    events that a fork shares with its parent."""
    return {
        "session": session,
        "origin": event.session,
        "position": event.position,
        "type": event.type,
        "time": iso_time(event.time),
        "actor": event.actor,
        "cause": event.cause,
        "key": event.key,
        "subject": event.subject,
        "data": json_value(event.data),
        "hash": event.hash.hex(),
        "erased": event.erased,
    }


def iso_time(micros: int) -> str:
    """Microseconds since 1970 as an ISO date and time in UTC."""
    try:
        at = _EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError:  # an event from a clock with a wrong date must still be shown
        return f"{micros} microseconds"
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def json_value(value: Any) -> Any:
    """A journaled value as data that JSON can represent."""
    kind = type(value)
    if value is None or kind is str or kind is bool:
        return value
    if kind is dict:
        return _mapping(value)
    if kind is list:
        return [json_value(item) for item in value]
    if kind is int:
        return value if value.bit_length() <= 64 else _typed("int", hex(value))
    if kind is float:
        return value if math.isfinite(value) else _typed("float", repr(value))
    if kind is bytes:
        return {"$bytes": base64.b64encode(value).decode()}
    return _other(value, kind)


def _typed(name: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"$type": name, **more, "value": value}


def _mapping(value: dict[Any, Any]) -> dict[str, Any]:
    if all(type(key) is str for key in value) and value.keys().isdisjoint(_MARKERS):
        return {key: json_value(item) for key, item in value.items()}
    return _typed("dict", [[json_value(key), json_value(item)] for key, item in value.items()])


def _other(value: Any, kind: type) -> dict[str, Any]:
    encode = _ENCODERS.get(kind)
    if encode is not None:
        return encode(value)
    if isinstance(value, Unregistered):
        return _typed(value.name, json_value(value.fields), version=value.version)
    if isinstance(value, PurePath):
        return _typed("Path" if isinstance(value, Path) else "PurePath", str(value))
    raise UnknownType(kind.__qualname__, hint="this is a bug in duramen: please report it")


def _sorted(name: str) -> Callable[[Any], dict[str, Any]]:
    """Encodes a set in an order that is the same in every process."""
    return lambda items: _typed(name, sorted((json_value(item) for item in items), key=json.dumps))


def _datetime(value: dt.datetime) -> dict[str, Any]:
    zone = {"zone": value.tzinfo.key} if isinstance(value.tzinfo, ZoneInfo) else {}
    fold = {"fold": value.fold} if value.fold else {}
    return _typed("datetime", value.isoformat(), **zone, **fold)


def _timedelta(span: dt.timedelta) -> dict[str, Any]:
    parts = {"days": span.days, "seconds": span.seconds, "microseconds": span.microseconds}
    return _typed("timedelta", parts)


_ENCODERS: dict[type, Callable[[Any], dict[str, Any]]] = {
    tuple: lambda items: _typed("tuple", [json_value(item) for item in items]),
    set: _sorted("set"),
    frozenset: _sorted("frozenset"),
    dt.datetime: _datetime,
    dt.date: lambda value: _typed("date", value.isoformat()),
    dt.time: lambda value: _typed("time", value.isoformat()),
    dt.timedelta: _timedelta,
    Decimal: lambda value: _typed("Decimal", str(value)),
    uuid.UUID: lambda value: _typed("UUID", str(value)),
    complex: lambda value: _typed("complex", [json_value(value.real), json_value(value.imag)]),
}
