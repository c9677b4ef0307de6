"""What the sessions of a handle have beside their journal: a context window, checkpoints, progress, hand-off."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from ..checkpoints.checkpoints import Checkpoints
from ..checkpoints.state import StateCheckpoints
from ..errors import InvalidInput
from ..journal.journal import Journal
from .episode_policy import EpisodePolicy
from .window.content_blocks import text_of
from .window.conversation import Kind, is_well_formed, reference
from .window.settings import Window

if TYPE_CHECKING:
    from .context_builder import ContextBuilder

_PARTS = {Kind.MESSAGE.value: "content", Kind.RESULT.value: "output", Kind.CALL.value: "arguments"}


class Services:
    """One for each handle: what they remember is shared by its sessions."""

    def __init__(self, journal: Journal, window: Window, episodes: EpisodePolicy) -> None:
        self._journal = journal
        self.window = window
        self.checkpoints = Checkpoints(journal)
        self.states = StateCheckpoints(journal, self.checkpoints)
        self._episodes = episodes
        self._builder: ContextBuilder | None = None
        self._making = threading.Lock()

    @property
    def builder(self) -> ContextBuilder:
        """Everything that a model's context needs."""
        return self._builder or self.load()

    def load(self) -> ContextBuilder:
        """Import that, which takes a while: not before there is a session that may want it, for runs do not."""
        with self._making:
            if self._builder is None:
                from .context_builder import ContextBuilder

                self._builder = ContextBuilder(self._journal, self.checkpoints, self._episodes)
            return self._builder

    def forget(self) -> None:
        """Drop what is remembered of texts and states from memory: somebody was erased."""
        self.checkpoints.forget()
        if self._builder is not None:
            self._builder.forget()

    async def fetch(self, session: str, place: str | int, *, start: int, length: int | None) -> Any:
        """The whole of what was masked, by its reference; a piece of it, if it is text or bytes."""
        position = _position(place)
        for name, value in (("start", start), ("length", length)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
                raise InvalidInput(f"{value!r} cannot be `{name}`", hint="give a whole number from 0")
        head = await self._journal.reader.head(session)
        if not 1 <= position <= head.position:
            raise InvalidInput(
                f"session {session!r} has no event {reference(position)}",
                hint="references look like #17: copy it whole",
            )
        (event,) = await self._journal.reader.events(session, position, position, None)
        if event.erased:
            raise InvalidInput(f"what {reference(position)} referred to was erased", hint="it cannot be brought back")
        part = _PARTS.get(event.type)
        whole = event.data[part] if part is not None and is_well_formed(Kind(event.type), event.data) else event.data
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
