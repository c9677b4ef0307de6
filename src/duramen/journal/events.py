"""The event: an immutable record of something that happened in a session."""

from __future__ import annotations

import datetime as dt
import enum
from collections.abc import Iterable
from typing import Any

import msgspec

from ..errors import InvalidInput

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MAX_NAME = 512


def moment(time: int) -> dt.datetime:
    """A time in microseconds as a datetime in UTC. A time outside the range of datetime gives its nearest bound."""
    try:
        return _EPOCH + dt.timedelta(microseconds=time)
    except OverflowError:
        return (dt.datetime.max if time > 0 else dt.datetime.min).replace(tzinfo=dt.UTC)


def micros(what: str, value: object) -> int:
    """A datetime in microseconds since 1970. Raises `InvalidInput` unless it is a datetime with a time zone."""
    if not isinstance(value, dt.datetime) or value.utcoffset() is None:
        raise InvalidInput(f"{repr(value)[:80]} cannot be `{what}`", hint="give a datetime with a time zone")
    return (value - _EPOCH) // dt.timedelta(microseconds=1)


class Event(msgspec.Struct, frozen=True, gc=False):
    """What happened, when, by whom and why. The first event of a session has `position` 1.

    `cause` is the position of the event that led to this one, or ``"session#position"`` for an event of another
    session. After the subject was erased, `data` is None and `erased` is True.
    """

    session: str
    position: int
    type: str
    time: int
    actor: str | None
    cause: int | str | None
    key: str | None
    subject: str | None
    data: Any
    hash: bytes
    erased: bool = False

    @property
    def at(self) -> dt.datetime:
        """When the event was appended, in UTC."""
        return moment(self.time)


class Draft(msgspec.Struct, frozen=True):
    """An event to append with `append_all`."""

    type: str
    data: Any = None
    actor: str | None = None
    cause: int | str | None = None


class SessionStatus(enum.StrEnum):
    """The state of a session. It tells a caller whether to start, attach, wait or recover."""

    UNKNOWN = "unknown"
    """The session has no events. Start it."""
    IDLE = "idle"
    """The session has events and never had a run."""
    LIVE = "live"
    """A run is open and a worker holds its lease. Leave it to that worker."""
    PARKED = "parked"
    """An open run waits for a person, a signal or a time."""
    CRASHED = "crashed"
    """A run is open and no worker holds its lease. Resume it."""
    FINISHED = "finished"
    """The last run ended. Its outcome is in the journal."""


RUN_EVENTS: dict[str, SessionStatus] = {
    "run.started": SessionStatus.CRASHED,
    "run.resumed": SessionStatus.CRASHED,
    "run.parked": SessionStatus.PARKED,
    "run.finished": SessionStatus.FINISHED,
    "run.failed": SessionStatus.FINISHED,
    "run.cancelled": SessionStatus.FINISHED,
}
"""The events that open, park and end a run, and the status of the session after each if no lease is held."""


def standing(last_run_event: str | None, any_event: bool, owned: bool) -> SessionStatus:
    """The status of a session. `last_run_event` is the type of its last run event, `owned` whether its lease is
    valid."""
    if not any_event:
        return SessionStatus.UNKNOWN
    if last_run_event is None:
        return SessionStatus.IDLE
    stands = RUN_EVENTS[last_run_event]
    return SessionStatus.LIVE if stands is SessionStatus.CRASHED and owned else stands


def standing_of_run(status: str, wake: int | None, owned: bool, now: int) -> SessionStatus:
    """The status of a session from the row of its last run. `owned` says whether its lease is valid."""
    if status != "open":
        return SessionStatus.FINISHED
    if owned:
        return SessionStatus.LIVE
    return SessionStatus.PARKED if wake is None or wake > now else SessionStatus.CRASHED


def check_name(what: str, name: object) -> str:
    """Return `name`. Raises `InvalidInput` unless it is text of 1 to `MAX_NAME` characters without NUL and lone
    surrogates."""
    if not isinstance(name, str) or not name or len(name) > MAX_NAME or "\0" in name:
        shown = repr(name)[:80]
        raise InvalidInput(
            f"{shown} cannot be the {what}",
            hint=f"use text of 1 to {MAX_NAME} characters without NUL",
        )
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InvalidInput(f"the {what} {name!r} is not valid Unicode", hint="remove lone surrogates") from None
    return name


def check_cause(cause: object) -> int | str | None:
    """Return `cause`. Raises `InvalidInput` unless it is None, a position or "session#position"."""
    if cause is None or (isinstance(cause, int) and not isinstance(cause, bool) and 1 <= cause < 2**63):
        return cause
    if isinstance(cause, str):
        session, mark, position = cause.rpartition("#")
        if mark and session and position.isdecimal():
            return check_name("cause", cause)
    raise InvalidInput(
        f"{repr(cause)[:80]} cannot be the cause",
        hint="give the position of an event in this session, or 'session#position'",
    )


def check_types(types: Iterable[str] | str | None) -> frozenset[str] | None:
    """The event types as a set, or None for all types. Raises `InvalidInput` for a name that cannot be a type."""
    if types is None:
        return None
    if isinstance(types, (str, bytes)) or not isinstance(types, Iterable):
        types = [types]
    return frozenset(check_name("event type", kind) for kind in types)


def check_whole(what: str, value: object, least: int) -> int:
    """Return `value`. Raises `InvalidInput` unless it is a whole number of at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInput(f"{repr(value)[:80]} cannot be `{what}`", hint=f"give a whole number from {least}")
    return value
