"""The persona of the agent, and the profiles of its users. They are not searched: a recollection always contains them.

They are not memories. Each change is an event, with a bookmark on the newest. Only an accepted proposal writes one.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing

from ...journal.events import Draft, Event, check_name
from ...journal.journal import Journal
from ...journal.owners import Owner
from ...ports import Bookmark, BookmarkQuery

PROFILE_CHANGED, PERSONA_CHANGED = "profile.changed", "persona.changed"
_PROFILE, _PERSONA = "profile", "persona"
_NOBODY = "-"


class Persona:
    """The profiles and the persona of one workspace, stored in one session."""

    def __init__(self, journal: Journal, session: str) -> None:
        self._journal = journal
        self._session = session

    async def profile(self, subject: str | None) -> dict[str, str]:
        """The profile of a subject; without a subject, the profile of the workspace. Empty if there is none."""
        if subject is not None:
            subject = check_name("subject", subject)
            if await self._journal.store.subject(self._journal.workspace, subject) is None:
                return {}
        return await self.fields(await self._journal.owner(subject))

    async def fields(self, owner: Owner) -> dict[str, str]:
        """The profile fields of an owner."""
        event = await self._newest(_PROFILE, _whose(owner))
        return {} if event is None else dict(event.data["fields"])

    async def text(self) -> str:
        """The persona; empty if none was accepted yet."""
        event = await self._newest(_PERSONA, _PERSONA)
        return "" if event is None else str(event.data["text"])

    def change(
        self, kind: str, key: str | None, content: str, fields: Mapping[str, str], owner: Owner
    ) -> tuple[Draft, Bookmark]:
        """The event that changes a profile field or the persona, and the bookmark to set on it."""
        if kind == _PERSONA:
            return Draft(PERSONA_CHANGED, {"text": content}), Bookmark(_PERSONA, _PERSONA, 0, 0, owner=owner.ref)
        data = {"field": key, "value": content, "fields": {**fields, str(key): content}}
        return Draft(PROFILE_CHANGED, data), Bookmark(_PROFILE, _whose(owner), 0, 0, owner=owner.ref)

    async def _newest(self, name: str, id: str) -> Event | None:
        async with aclosing(self._journal.bookmarks.find(self._session, BookmarkQuery(name, id), page=1)) as marks:
            async for found in marks:
                events = await self._journal.bookmarks.events(self._session, [found.bookmark.position])
                return events[0] if events and not events[0].erased else None
        return None


def _whose(owner: Owner) -> str:
    """The id of an owner's profile. It does not contain the owner's name."""
    return _NOBODY if owner.name is None or owner.ref is None else owner.ref.hex()
