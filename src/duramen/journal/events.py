"""The event: an immutable record of something that happened in a session."""

from __future__ import annotations

import datetime as dt
import enum
import os
from collections.abc import Iterable
from typing import Any

import msgspec

from ..errors import InvalidInput, shown

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MAX_NAME = 512
LARGEST = 2**63 - 1
"""The largest whole number that a store can hold."""
_MAX_PATH = 4095
LONGEST = 100 * 366 * 24 * 3600
"""The longest time that an argument may give, in seconds."""


def moment(time: int) -> dt.datetime:
    """A time in microseconds as a datetime in UTC. A time outside the range of datetime gives its nearest bound."""
    try:
        return _EPOCH + dt.timedelta(microseconds=time)
    except OverflowError:
        return (dt.datetime.max if time > 0 else dt.datetime.min).replace(tzinfo=dt.UTC)


def micros(what: str, value: object) -> int:
    """A datetime in microseconds since 1970. Raises `InvalidInput` unless it is a datetime with a time zone."""
    if not isinstance(value, dt.datetime) or value.utcoffset() is None:
        raise InvalidInput(f"`{what}` cannot be {shown(value)}", hint="give a datetime with a time zone")
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
    """Return `name` as a plain str: a `StrEnum` member, for example, becomes its value. Raises `InvalidInput` unless it
    is text of 1 to `MAX_NAME` characters without NUL and lone surrogates."""
    if not isinstance(name, str) or not name or len(name) > MAX_NAME or "\0" in name:
        raise InvalidInput(
            f"the {what} cannot be {shown(name)}",
            hint=f"use text of 1 to {MAX_NAME} characters without NUL",
        )
    if not name.isascii():
        try:
            name.encode()
        except UnicodeEncodeError:
            raise InvalidInput(
                f"the {what} {shown(name)} is not valid Unicode", hint="remove lone surrogates"
            ) from None
    return name if type(name) is str else str.__str__(name)


def check_cause(cause: object) -> int | str | None:
    """Return `cause`. Raises `InvalidInput` unless it is None, a position or "session#position"."""
    if cause is None:
        return None
    if isinstance(cause, int) and not isinstance(cause, bool) and 1 <= cause <= LARGEST:
        return int(cause)
    if isinstance(cause, str):
        session, mark, position = cause.rpartition("#")
        if mark and session and position.isdecimal():
            return check_name("cause", cause)
    raise InvalidInput(
        f"the cause cannot be {shown(cause)}",
        hint="give the position of an event in this session, or 'session#position'",
    )


def check_types(types: Iterable[str] | str | None) -> frozenset[str] | None:
    """The event types as a set, or None for all types. Raises `InvalidInput` for a name that cannot be a type."""
    if types is None:
        return None
    if isinstance(types, (str, bytes)) or not isinstance(types, Iterable):
        types = [types]
    return frozenset(check_name("event type", kind) for kind in types)


def check_whole(what: str, value: object, least: int, most: int | None = None) -> int:
    """Return `value`. Raises `InvalidInput` unless it is a whole number of at least `least`, and at most `most`."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least or (most is not None and value > most):
        upto = "" if most is None else f" to {most}"
        raise InvalidInput(f"`{what}` cannot be {shown(value)}", hint=f"give a whole number from {least}{upto}")
    return int(value)


def check_seconds(what: str, value: object, *, above: bool = False) -> float:
    """Return `value`. Raises `InvalidInput` unless it is a number of seconds from 0 to 100 years; with `above`, more
    than 0."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 <= value <= LONGEST or (above and value == 0):  # type: ignore[operator]
        hint = f"give a number of seconds {'above' if above else 'from'} 0, at most 100 years"
        raise InvalidInput(f"`{what}` cannot be {shown(value)}", hint=hint)
    return value  # type: ignore[return-value]


def check_flag(what: str, value: object) -> bool:
    """Return `value`. Raises `InvalidInput` unless it is True or False."""
    if not isinstance(value, bool):
        raise InvalidInput(f"`{what}` cannot be {shown(value)}", hint="give True or False")
    return value


def check_function(what: str, value: object) -> None:
    """Raise `InvalidInput` unless the value can be called."""
    if not callable(value):
        raise InvalidInput(f"`{what}` cannot be {shown(value)}", hint="give a function")


def check_path(value: object, hint: str) -> str:
    """Return a path as text. Raises `InvalidInput` unless the operating system can use it as a path."""
    path = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    try:
        usable = isinstance(path, str) and bool(path) and "\0" not in path and len(os.fsencode(path)) <= _MAX_PATH
    except UnicodeEncodeError:
        usable = False
    if not usable:
        raise InvalidInput(f"{shown(value)} is not a path", hint=hint)
    return str(path)


def check_text(what: str, value: object) -> str:
    """Return `value` as a plain str. Raises `InvalidInput` unless it is text. It may be empty or long."""
    if not isinstance(value, str):
        raise InvalidInput(f"`{what}` cannot be {shown(value)}", hint="give text")
    return value if type(value) is str else str.__str__(value)
