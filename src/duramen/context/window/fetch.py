"""`fetch`: the whole of what a context shows only as a digest, and the tool with which a model asks for it."""

from __future__ import annotations

from typing import Any

from ...errors import InvalidInput
from ...journal.journal import Journal
from .content_blocks import text_of
from .conversation import EntryKind, is_well_formed, reference

_PARTS = {EntryKind.MESSAGE.value: "content", EntryKind.RESULT.value: "output", EntryKind.CALL.value: "arguments"}


async def fetch(journal: Journal, session: str, place: str | int, *, start: int, length: int | None) -> Any:
    """The whole of what was masked, by its reference; a piece of it, if it is text or bytes."""
    position = _position(place)
    for name, value in (("start", start), ("length", length)):
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            raise InvalidInput(f"{value!r} cannot be `{name}`", hint="give a whole number from 0")
    head = await journal.reader.head(session)
    if not 1 <= position <= head.position:
        raise InvalidInput(
            f"session {session!r} has no event {reference(position)}",
            hint="references look like #17: copy it whole",
        )
    (event,) = await journal.reader.events(session, position, position, None)
    if event.erased:
        raise InvalidInput(f"what {reference(position)} referred to was erased", hint="it cannot be brought back")
    part = _PARTS.get(event.type)
    whole = event.data[part] if part is not None and is_well_formed(EntryKind(event.type), event.data) else event.data
    if start == 0 and length is None:
        return whole
    body = whole if isinstance(whole, (str, bytes)) else text_of(whole)
    return body[start : None if length is None else start + length]


def _position(place: str | int) -> int:
    text = str(place).strip().removeprefix("#")
    if not text.isdecimal() or len(text) > 18 or isinstance(place, bool):
        raise InvalidInput(f"{place!r} is no reference", hint="references look like #17: copy it whole")
    return int(text)


FETCH: dict[str, Any] = {
    "name": "fetch",
    "description": (
        "Gives back the whole of something that the context shows only as a digest. Use it when the digest is not "
        "enough; read long outputs piece by piece."
    ),
    "input_schema": {
        "type": "object",
        "properties": {
            "reference": {"type": "string", "description": "The reference in the digest, such as #17."},
            "start": {"type": "integer", "description": "The first character wanted, from 0.", "minimum": 0},
            "length": {"type": "integer", "description": "How many characters at most.", "minimum": 1},
        },
        "required": ["reference"],
    },
}
"""The tool with which a model fetches what was masked, in Anthropic's form."""


def fetch_tool(form: str) -> dict[str, Any]:
    """The tool with which a model fetches what was masked, as a provider wants it."""
    if form == "anthropic":
        return FETCH
    if form == "openai":
        function = {"name": FETCH["name"], "description": FETCH["description"], "parameters": FETCH["input_schema"]}
        return {"type": "function", "function": function}
    raise InvalidInput(f"{form!r} is no form of a tool", hint='say "anthropic" or "openai"')
