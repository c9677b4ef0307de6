"""The short way for plain events: about nobody, encoded already, few. All else takes the long way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from ..crash_points import reach
from ..ports import Head, Lane, Plain, Store
from .chain import linking
from .encoder import Prepared
from .events import Draft
from .sealing import Form

_MOST = 2
_REMEMBERED = 1000
_FORM = Form.PLAIN
_PREFIX = bytes((_FORM,))
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


class PlainLane:
    """A store's lane to the end of one session, for what is plain."""

    __slots__ = ("_append",)

    def __init__(self, lane: Lane) -> None:
        self._append = lane.append

    def append(self, now: int, events: Sequence[Prepared | Plain]) -> Head | None:
        """Where the session stands once they are durable; None if nothing was stored: take the long way."""
        if len(events) > _MOST:
            return None
        for event in events:
            if type(event) is not tuple:
                return None
        reach("append.encoded")
        return self._append(now, events)  # type: ignore[arg-type]  # all of them are plain


class Lanes:
    """Lanes to the sessions that a journal was last asked for, for appends without a fence."""

    def __init__(self, store: Store, workspace: str) -> None:
        self._store = store
        self._workspace = workspace
        self._known: dict[str, PlainLane | None] = {}

    def to(self, session: str, fence: int | None) -> PlainLane | None:
        """A new one, where the store has lanes."""
        found = self._store.lane(self._workspace, session, fence, linking(self._workspace, session))
        return None if found is None else PlainLane(found)

    def free(self, session: str) -> PlainLane | None:
        """One without a fence."""
        try:
            return self._known[session]
        except KeyError:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            lane = self._known[session] = self.to(session, None)
            return lane


def plain(ready: Prepared) -> Plain | None:
    """An event for a lane; None if there is more to it than a type and a payload."""
    draft, body, form, parts, _ = ready
    if parts or form is not _FORM or draft.actor is not None or draft.cause is not None:
        return None
    return draft.type, _PREFIX + body
