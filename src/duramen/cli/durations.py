"""Times and durations as text."""

from __future__ import annotations

import datetime as dt

from .json_format import iso_time

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)


def iso_datetime(when: dt.datetime | None) -> str | None:
    """A time in the format of the JSON output."""
    return None if when is None else iso_time((when - _EPOCH) // _MICROSECOND)


def utc_second(when: dt.datetime) -> str:
    """A time in UTC, to the second."""
    return f"{when:%Y-%m-%d %H:%M:%S}"


def format_duration(micros: int) -> str:
    """A duration in one or two units, such as "3 m 05 s"."""
    if micros < 1000:
        return f"{micros} µs" if micros >= 0 else "0 µs"
    if micros < 10_000:
        return f"{micros / 1000:.1f} ms"
    if micros < 1_000_000:
        return f"{micros // 1000} ms"
    seconds = micros / 1e6
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, seconds = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} m {seconds:02} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} m" if hours < 48 else f"{hours // 24} d {hours % 24} h"


def format_elapsed(start: dt.datetime, end: dt.datetime) -> str:
    """The duration from one time to another."""
    return format_duration((end - start) // _MICROSECOND)
