"""Encoding of the library's own small events."""

from __future__ import annotations

from typing import Any

import msgspec

from .encoder import Prepared
from .events import Draft
from .sealing import Form

Plain = tuple[str, bytes]
_PREFIX = bytes((Form.PLAIN,))
_encode = msgspec.msgpack.Encoder().encode


def jot(kind: str, data: dict[str, Any]) -> Plain:
    """Encode an event of the library's own making: small plain data that needs no redaction and no second look."""
    return kind, _PREFIX + _encode(data)


def prepared(event: Prepared | Plain) -> Prepared:
    """An event for the long way."""
    if isinstance(event, Prepared):
        return event
    kind, payload = event
    return Prepared(Draft(kind), payload[1:], Form.PLAIN, {}, None)
