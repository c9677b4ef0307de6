"""Several memories said at once: what is said of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...errors import InvalidInput
from .memory_event import remembered

MOST = 1_000
"""Memories in one append: more would keep other writers waiting, and nobody could say how far it is."""
Said = str | Mapping[str, Any]
"""A text, or a dict with its `content` and whatever else is said of it."""


def all_remembered(contents: Iterable[Said], kind: str, details: Mapping[str, Any], now: int) -> list[dict[str, Any]]:
    """The data of an event for each. What is said of one counts before what is said of all. Raises `InvalidInput` with
    the place of the one that cannot be remembered."""
    if isinstance(contents, (str, bytes, Mapping)) or not isinstance(contents, Iterable):
        raise InvalidInput(
            f"{type(contents).__name__} is not several memories", hint="give a list; `remember` takes one memory"
        )
    every = list(contents)
    if len(every) > MOST:
        raise InvalidInput(f"{len(every):,} memories are too many at once", hint=f"give at most {MOST:,} in a call")
    return [_remembered(place, said, kind, details, now) for place, said in enumerate(every)]


def _remembered(place: int, said: Said, kind: str, details: Mapping[str, Any], now: int) -> dict[str, Any]:
    own: dict[str, Any] = (
        {"content": said} if isinstance(said, str) else dict(said) if isinstance(said, Mapping) else {}
    )
    if "content" not in own:
        raise InvalidInput(f"at place {place}: there is no content", hint='give text, or {"content": text, …}')
    content, kind = own.pop("content"), own.pop("kind", kind)
    try:
        return remembered(content, kind, {**details, **own}, now)
    except InvalidInput as error:
        raise InvalidInput(f"at place {place}: {error.message}", hint=error.hint) from None
