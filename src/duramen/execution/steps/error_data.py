"""Converts errors to plain data and back, so that a failed step raises the same error after a restart."""

from __future__ import annotations

import datetime as dt
import sys
from typing import Any

from ...errors import DuramenError, InvalidInput, StepFailed, shown
from ...journal.codec import Codec

_PLAIN = Codec()
_MOST_TEXT = 4000


def error_to_data(error: BaseException) -> dict[str, Any]:
    """The stored form of an error: its class and message, and its arguments and attributes if they are plain data."""
    kind = type(error)
    data: dict[str, Any] = {"type": kind.__qualname__, "module": kind.__module__, "message": str(error)[:_MOST_TEXT]}
    if _is_storable(error.args):
        data["args"] = list(error.args)
        facts = {name: value for name, value in vars(error).items() if name != "__notes__"}
        if facts and _is_storable(facts):
            data["facts"] = facts
    return data


def _is_storable(value: Any) -> bool:
    try:
        return len(_PLAIN.encode(value, lambda body: body)[0]) < 16 * _MOST_TEXT
    except (DuramenError, RecursionError):
        return False


def error_from_data(data: dict[str, Any]) -> Exception:
    """Rebuild an error. Imports no module and calls no `__init__`. Returns `StepFailed` if the error's class is not
    loaded or cannot be rebuilt."""
    kind: Any = sys.modules.get(data["module"])
    for part in data["type"].split("."):
        kind = getattr(kind, part, None)
    if not isinstance(kind, type) or not issubclass(kind, Exception) or "args" not in data:
        return StepFailed(data["type"], data["message"])
    try:
        error: Exception = kind.__new__(kind, *data["args"])
        error.args = tuple(data["args"])
        error.__dict__.update(data.get("facts", {}))
        str(error)
    except Exception:  # noqa: BLE001 - the class cannot be rebuilt this way
        return StepFailed(data["type"], data["message"])
    return error


def retry_after(error: BaseException, now: int) -> float | None:
    """Seconds that the remote service asked to wait; None if it did not ask. Read from `RateLimited`, from an attribute
    `retry_after`, or from an HTTP response with status 429 or 503 and a Retry-After header."""
    given = getattr(error, "retry_after", None)
    if isinstance(given, (int, float)) and not isinstance(given, bool) and given >= 0:
        return float(given)
    response = getattr(error, "response", None)
    status: Any = (
        getattr(response, "status_code", None) or getattr(error, "status", None) or getattr(error, "code", None)
    )
    if status not in (429, 503):
        return None
    headers: Any = getattr(response, "headers", None) or getattr(error, "headers", None)
    text = headers.get("retry-after") or headers.get("Retry-After") if hasattr(headers, "get") else None
    return None if text is None else _seconds(str(text), now)


def _seconds(text: str, now: int) -> float | None:
    try:
        return max(0.0, float(text))
    except ValueError:
        pass
    from email.utils import parsedate_to_datetime  # a slow import (30 ms) that most processes never need

    try:
        when = parsedate_to_datetime(text)
    except (ValueError, TypeError):
        return None
    when = when if when.tzinfo else when.replace(tzinfo=dt.UTC)
    return max(0.0, when.timestamp() - now / 1e6)


def refuse_bool(answer: Any, step: str) -> None:
    """Raise `InvalidInput` if a check returned a bool, which does not contain the step's result."""
    if isinstance(answer, bool):
        raise InvalidInput(
            f"the check of step {shown(step)} returned {answer}",
            hint="return None if the step did not happen, and its result (or duramen.Happened(result)) if it did",
        )
