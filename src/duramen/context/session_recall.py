"""Recall for a session: its progress, its episodes and the workspace's memories, as one text for a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import DuramenError, InvalidInput
from ..journal.events import check_name, check_whole, moment
from ..journal.journal import Journal
from ..memory.loader import MemoryLoader
from .services import Services
from .window.content_blocks import text_of
from .window.fetch import fetch

if TYPE_CHECKING:
    from ..memory.memory_service import MemoryService
    from ..memory.recollection import Recollection

_MOST = 1_000_000
"""The largest effective `limit` of a search."""

_LEAST_BUDGET = 100
"""The smallest `budget`. The tags and headings of an empty recollection take most of it."""

_PENDING = 5
"""How many pending proposals are shown, newest first."""

_DECIDED_BY_PEOPLE = ("preference", "identity")
"""Kinds of memory that a model may propose but not save."""


class SessionRecall:
    """Recall for one session, and the memory tools that a model calls in it."""

    def __init__(self, journal: Journal, session: str, services: Services, memory: MemoryLoader) -> None:
        self._journal = journal
        self._session = session
        self._services = services
        self._memory = memory

    async def recall(
        self, query: str, *, budget: int, subject: str | None, limit: int, recent: int, explain: bool = False
    ) -> Recollection:
        """Return what the session knows that matches a query, in at most `budget` tokens.

        `limit` is the number of memories to find, `recent` the number of episodes to add. Raises `InvalidInput` for an
        empty query or a number out of range.
        """
        from ..memory.knowledge.proposals import ProposalState
        from ..memory.ranking.selection import SearchRequest
        from ..memory.recollection import recollect
        from .tokens.counters import counter_for

        check_whole("budget", budget, _LEAST_BUDGET, 2**31)
        check_whole("recent", recent, 0)
        check_whole("limit", limit, 1)
        if not isinstance(query, str) or not query.strip():
            raise InvalidInput("the query is empty or not text", hint="give the text to search for")
        service, episodes = self._memory.load(), self._services.episodes
        audiences = await service.catalog.audiences(subject, self._session)
        now = moment(self._journal.clock.now())
        found = await service.search.find(SearchRequest(query, audiences, limit=min(limit, _MOST)))
        recalled = service.policies.with_notes(found, now)
        lately = await episodes.last(self._session, recent) if recent else []
        return recollect(
            await service.procedures.add_matching(query, audiences, recalled),
            await episodes.working(self._session),
            [one.line for one in lately],
            now=now,
            counter=counter_for(self._services.window.counter),
            budget=budget,
            policy=self._memory.settings.suspicious,
            policies=service.policies,
            standing=await service.procedures.standing(audiences),
            profile=await service.persona.profile(subject),
            pending=[one async for one in service.proposals.listed(ProposalState.PENDING, subject, False)][:_PENDING],
            explain=explain,
        )

    async def use_tool(self, name: str, arguments: object, subject: str | None) -> str:
        """Execute a model's call of a memory tool and return the text for the model. A failure is returned as text,
        not raised."""
        try:
            if name == "fetch":
                return await self._fetch(arguments)
            return await self._use(name, arguments, subject)
        except DuramenError as error:
            return f"That did not work: {error}"

    async def _fetch(self, arguments: object) -> str:
        given = arguments if isinstance(arguments, dict) else {}
        found = await fetch(
            self._journal,
            self._session,
            given.get("reference", ""),
            start=given.get("start", 0),
            length=given.get("length"),
        )
        return text_of(found)

    async def _use(self, name: str, arguments: object, subject: str | None) -> str:
        from ..memory.delimiters import reference, referred
        from ..memory.tools import arguments_of

        given = arguments_of(name, arguments)
        if name == "recall":
            limit = given.get("limit", 10)
            return (await self.recall(given["query"], budget=2000, subject=subject, limit=limit, recent=0)).text
        service = self._memory.load()
        if name == "remember":
            content, kind = given.pop("content"), given.pop("kind", "fact")
            if kind in _DECIDED_BY_PEOPLE:
                return await _propose(service, content, kind, given, subject)
            memory = await service.catalog.remember(
                self._session, content, kind, given, subject=subject, actor="assistant", cause=None
            )
            await service.index_worker.index_new(wait=False)
            return f"Remembered as {reference(memory.source)}."
        source = referred(check_name("ref", given["ref"]))
        memory = await service.catalog.by_source(source, self._session, subject)
        await service.catalog.forget(memory.id, actor="assistant")
        return f"Forgotten: {reference(memory.source)}."


async def _propose(
    service: MemoryService, content: str, kind: str, details: dict[str, Any], subject: str | None
) -> str:
    from ..memory.knowledge.proposals import ProposalDraft

    wanted = ProposalDraft(content, kind, details, "", "the model proposed it", None)
    proposal = await service.proposals.make(wanted, subject, "assistant", False)
    if proposal is None:
        return "That is already known."
    if proposal.state == "dismissed":
        return "That was proposed before, and the user dismissed it."
    return "Proposed. It is not saved until the user accepts it."
