"""Returns the full value that a context shows only as a digest, and defines the `fetch` tool for models."""

from __future__ import annotations

from typing import Any

from ...errors import InvalidInput, shown
from ...journal.journal import Journal
from .content_blocks import text_of
from .conversation import EntryKind, is_well_formed, reference

_PARTS = {EntryKind.MESSAGE.value: "content", EntryKind.RESULT.value: "output", EntryKind.CALL.value: "arguments"}


async def fetch(journal: Journal, session: str, place: str | int, *, start: int, length: int | None) -> Any:
    """The full value behind a reference, or `length` characters of it from `start`. A value that is neither text nor
    bytes is cut as JSON. Raises `InvalidInput` for an unknown or erased reference."""
    position = _position(place)
    for name, value in (("start", start), ("length", length)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise InvalidInput(f"`{name}` cannot be {shown(value)}", hint="give a whole number from 0")
    head = await journal.reader.head(session)
    if not 1 <= position <= head.position:
        raise InvalidInput(
            f"session {shown(session)} has no event {reference(position)}",
            hint="copy the reference from the digest; it looks like #17",
        )
    (event,) = await journal.reader.events(session, position, position, None)
    if event.erased:
        raise InvalidInput(f"event {reference(position)} was erased", hint="erased data cannot be restored")
    part = _PARTS.get(event.type)
    whole = event.data[part] if part is not None and is_well_formed(EntryKind(event.type), event.data) else event.data
    if start == 0 and length is None:
        return whole
    body = whole if isinstance(whole, (str, bytes)) else text_of(whole)
    return body[start : None if length is None else start + length]


def _position(place: str | int) -> int:
    known = isinstance(place, str) or (isinstance(place, int) and not isinstance(place, bool) and 0 < place < 10**18)
    text = str(place).strip().removeprefix("#") if known else ""
    if not text.isdecimal() or len(text) > 18:
        raise InvalidInput(
            f"{shown(place)} is not a reference", hint="copy the reference from the digest; it looks like #17"
        )
    return int(text)


FETCH: dict[str, Any] = {
    "name": "fetch",
    "description": (
        "Returns the full text of something that the context shows only as a digest. Use it when the digest is not "
        "enough. Read long outputs in parts."
    ),
    "input_schema": {
        "type": "object",
        "properties": {
            "reference": {"type": "string", "description": "The reference in the digest, such as #17."},
            "start": {"type": "integer", "description": "The index of the first character, from 0.", "minimum": 0},
            "length": {"type": "integer", "description": "The maximum number of characters.", "minimum": 1},
        },
        "required": ["reference"],
    },
}
"""The definition of the `fetch` tool in Anthropic's format."""


def fetch_tool(form: str) -> dict[str, Any]:
    """The definition of the `fetch` tool in the format of a provider: "anthropic" or "openai"."""
    if form == "anthropic":
        return FETCH
    if form == "openai":
        function = {"name": FETCH["name"], "description": FETCH["description"], "parameters": FETCH["input_schema"]}
        return {"type": "function", "function": function}
    raise InvalidInput(f"unknown tool format {shown(form)}", hint='choose "anthropic" or "openai"')
