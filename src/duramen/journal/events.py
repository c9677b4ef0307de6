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
    """A time in microseconds as a datetime in UTC; the nearest that a calendar has."""
    try:
        return _EPOCH + dt.timedelta(microseconds=time)
    except OverflowError:
        return (dt.datetime.max if time > 0 else dt.datetime.min).replace(tzinfo=dt.UTC)


def micros(what: str, value: object) -> int:
    """A datetime in microseconds. Raises `InvalidInput` for what is none, or has no time zone."""
    if not isinstance(value, dt.datetime) or value.utcoffset() is None:
        raise InvalidInput(f"{value!r} cannot be `{what}`", hint="give a datetime with a time zone")
    return (value - _EPOCH) // dt.timedelta(microseconds=1)


class Event(msgspec.Struct, frozen=True, gc=False):
    """What happened, when, by whom and why. `position` counts from 1 in its session.

    `cause` is the position of the event that led to this one, or ``"session#position"`` if it lies in
    another session. `data` is None and `erased` true once its subject was erased.
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
        """When it was journaled, in UTC."""
        return moment(self.time)


class Draft(msgspec.Struct, frozen=True):
    """An event that is still to be appended, for `append_all`."""

    type: str
    data: Any = None
    actor: str | None = None
    cause: int | str | None = None


class SessionStatus(enum.StrEnum):
    """What to do with a session id: start, attach, wait, recover, or leave alone."""

    UNKNOWN = "unknown"
    """Nothing is journaled under this id: a fresh start."""
    IDLE = "idle"
    """There are events, but no run is open."""
    LIVE = "live"
    """A run is open and its owner's lease is good: leave it to the owner."""
    PARKED = "parked"
    """A run waits for a person, a signal or a time."""
    CRASHED = "crashed"
    """A run is open and nobody owns it: resume it."""
    FINISHED = "finished"
    """The last run ended; its outcome is in the journal."""


RUN_EVENTS: dict[str, SessionStatus] = {
    "run.started": SessionStatus.CRASHED,
    "run.resumed": SessionStatus.CRASHED,
    "run.parked": SessionStatus.PARKED,
    "run.finished": SessionStatus.FINISHED,
    "run.failed": SessionStatus.FINISHED,
    "run.cancelled": SessionStatus.FINISHED,
}
"""The events that open, park and end a run, and how a session stands after each without an owner."""


def standing(last_run_event: str | None, any_event: bool, owned: bool) -> SessionStatus:
    """How a session stands, from its last run event and whether its lease is good."""
    if not any_event:
        return SessionStatus.UNKNOWN
    if last_run_event is None:
        return SessionStatus.IDLE
    stands = RUN_EVENTS[last_run_event]
    return SessionStatus.LIVE if stands is SessionStatus.CRASHED and owned else stands


def standing_of_run(status: str, wake: int | None, owned: bool, now: int) -> SessionStatus:
    """How a session stands whose last run is in the catalog."""
    if status != "open":
        return SessionStatus.FINISHED
    if owned:
        return SessionStatus.LIVE
    return SessionStatus.PARKED if wake is None or wake > now else SessionStatus.CRASHED


def check_name(what: str, name: object) -> str:
    """`name`, if it can be one: text, not empty, not too long, no NUL."""
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
            raise InvalidInput(f"the {what} {name!r} is not valid Unicode", hint="drop lone surrogates") from None
    return name


def check_cause(cause: object) -> int | str | None:
    """`cause`, if it can be one: a position, or "session#position"."""
    if cause is None or (isinstance(cause, int) and not isinstance(cause, bool) and 1 <= cause < 2**63):
        return cause
    if isinstance(cause, str):
        session, mark, position = cause.rpartition("#")
        if mark and session and position.isdecimal():
            return check_name("cause", cause)
    raise InvalidInput(
        f"{cause!r} cannot be the cause",
        hint="give the position of an event in this session, or 'session#position'",
    )


def check_types(types: Iterable[str] | str | None) -> frozenset[str] | None:
    """A set of event types from one, several or none."""
    if types is None:
        return None
    if isinstance(types, (str, bytes)) or not isinstance(types, Iterable):
        types = [types]
    return frozenset(check_name("event type", kind) for kind in types)


def check_whole(what: str, value: object, least: int) -> int:
    """A whole number that is at least `least`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise InvalidInput(f"{value!r} cannot be `{what}`", hint=f"give a whole number from {least}")
    return value
