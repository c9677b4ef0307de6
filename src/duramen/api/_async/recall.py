"""What a session remembers and recalls, and the tools that give both to a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Unpack

from ...context.services import Services
from ...context.window.content_blocks import text_of
from ...context.window.fetch import fetch, fetch_tool
from ...errors import DuramenError, InvalidInput
from ...journal.events import check_name, moment
from ...journal.journal import Journal
from ...memory.catalog.memory_event import MemoryDetails
from .memories import AsyncMemories

if TYPE_CHECKING:
    from ...memory.catalog.memory_event import MemoryInput
    from ...memory.catalog.records import Memory
    from ...memory.recollection import Recollection

_RECENT = 10
_PENDING = 5
"""So many of the newest proposals are shown that nobody has decided about."""


_DECIDED_BY_PEOPLE = ("preference", "identity")
"""What a model may propose, and not save."""


class AsyncRecall:
    """The part of a session that remembers beyond itself."""

    id: str
    _journal: Journal
    _services: Services
    _memory: AsyncMemories

    async def remember(
        self,
        content: str,
        *,
        kind: str = "fact",
        subject: str | None = None,
        actor: str | None = None,
        cause: int | str | None = None,
        fresh: bool = False,
        **details: Unpack[MemoryDetails],
    ) -> Memory:
        """Remember something beyond this session, as one of its events. See `dm.memory.remember`."""
        service = self._memory.service
        memory = await service.catalog.remember(
            self.id, content, kind, details, subject=subject, actor=actor, cause=cause
        )
        await service.index_worker.index_new(wait=fresh)
        return memory

    async def remember_all(
        self,
        contents: Iterable[MemoryInput],
        *,
        kind: str = "fact",
        subject: str | None = None,
        actor: str | None = None,
        cause: int | str | None = None,
        fresh: bool = False,
        **details: Unpack[MemoryDetails],
    ) -> list[Memory]:
        """Remember several things beyond this session, as its events. See `dm.memory.remember_all`."""
        service = self._memory.service
        memories = await service.catalog.remember_all(
            self.id, contents, kind, details, subject=subject, actor=actor, cause=cause
        )
        await service.index_worker.index_new(wait=fresh)
        return memories

    async def recall(
        self,
        query: str,
        *,
        budget: int = 2000,
        subject: str | None = None,
        limit: int = 20,
        recent: int = _RECENT,
        explain: bool = False,
    ) -> Recollection:
        """What this session knows that fits a query, within a budget of tokens: what is under way, what happened
        lately, what is known (to everybody, of the subject, to this session) and how things are done. For a system
        prompt or the first message. With `explain` the text says what each score is made of, as `hit.parts` does."""
        from ...context.tokens.counters import counter_for
        from ...memory.knowledge.proposals import ProposalState
        from ...memory.recollection import recollect

        for name, value, least in (("budget", budget, 50), ("recent", recent, 0)):
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InvalidInput(f"{value!r} cannot be `{name}`", hint=f"give a whole number from {least}")
        service = self._memory.service
        audiences = await service.catalog.audiences(subject, self.id)
        recalled = await self._memory.recall(query, subject=subject, session=self.id, limit=limit)
        lately = await self._services.episodes.last(self.id, recent) if recent else []
        return recollect(
            await service.procedures.add_matching(query, audiences, recalled),
            await self._services.episodes.working(self.id),
            [one.line for one in lately],
            now=moment(self._journal.clock.now()),
            counter=counter_for(self._services.window.counter),
            budget=budget,
            policy=self._memory.suspicious,
            policies=service.policies,
            standing=await service.procedures.standing(audiences),
            profile=await service.persona.profile(subject),
            pending=[one async for one in service.proposals.listed(ProposalState.PENDING, subject, False)][:_PENDING],
            explain=explain,
        )

    def memory_tools(self, form: str = "anthropic") -> list[dict[str, Any]]:
        """The tools with which a model recalls, remembers, forgets and fetches what was masked, as a provider
        ("anthropic" or "openai") wants them. `use_memory_tool` carries a call out."""
        from ...memory.tools import memory_tools

        return [*memory_tools(form), fetch_tool(form)]

    async def use_memory_tool(self, name: str, arguments: dict[str, Any], *, subject: str | None = None) -> str:
        """What a call of a memory tool gives back, as text for the model. What cannot be done is said in the text, so
        that the model can do better."""
        from ...memory.injection import reference, referred
        from ...memory.tools import arguments_of

        try:
            if name == "fetch":
                given = arguments if isinstance(arguments, dict) else {}
                fetched = await fetch(
                    self._journal,
                    self.id,
                    given.get("reference", ""),
                    start=given.get("start", 0),
                    length=given.get("length"),
                )
                return text_of(fetched)
            given = arguments_of(name, arguments)
            if name == "recall":
                found = await self.recall(given["query"], subject=subject, limit=given.get("limit", 10), recent=0)
                return found.text
            if name == "remember" and given.get("kind") in _DECIDED_BY_PEOPLE:
                return await self._propose(given, subject)
            if name == "remember":
                memory = await self.remember(
                    given.pop("content"), kind=given.pop("kind", "fact"), subject=subject, actor="assistant", **given
                )
                return f"Remembered as {reference(memory.source)}."
            source = referred(check_name("ref", given["ref"]))
            memory = await self._memory.service.catalog.by_source(source, self.id, subject)
            await self._memory.forget(memory.id, actor="assistant")
        except DuramenError as error:
            return f"That did not work: {error}"
        return f"Forgotten: {reference(memory.source)}."

    async def _propose(self, given: dict[str, Any], subject: str | None) -> str:
        proposal = await self._memory.proposals.make(
            given.pop("content"),
            kind=given.pop("kind"),
            subject=subject,
            reason="the model proposed it",
            actor="assistant",
            **given,
        )
        if proposal is None:
            return "That is known already."
        if proposal.state == "dismissed":
            return "That was proposed before, and the user did not want it saved."
        return "Proposed. It is not saved until the user accepts it."
