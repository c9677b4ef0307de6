"""What waits for a person to decide, and what was decided."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Unpack

from ...errors import InvalidInput
from ...memory.catalog.memory_event import MemoryDetails

if TYPE_CHECKING:
    from ...memory.knowledge.proposals import Proposal
    from ...memory.memory_service import MemoryService


class AsyncProposals:
    """What may be saved once a person accepts it: preferences, what people are, the profile, the persona."""

    def __init__(self, service: Callable[[], MemoryService]) -> None:
        self._service = service

    async def make(
        self,
        content: str,
        *,
        kind: str = "preference",
        subject: str | None = None,
        evidence: str = "",
        reason: str = "",
        source: str | None = None,
        actor: str | None = None,
        accepted: bool = False,
        **details: Unpack[MemoryDetails],
    ) -> Proposal | None:
        """Propose something: a memory, with `kind` "profile" the value of the field `key`, with "persona" who the agent
        is. What is pending or was dismissed before is given as it stands; None if it is known already. With `accepted`
        the person who proposes it has decided."""
        from ...memory.knowledge.proposals import ProposalDraft

        for name, text in (("evidence", evidence), ("reason", reason)):
            if not isinstance(text, str):
                raise InvalidInput(f"{text!r} cannot be `{name}`", hint="give text")
        wanted = ProposalDraft(content, kind, {**details}, evidence, reason, source)
        service = self._service()
        proposal = await service.proposals.make(wanted, subject, actor, accepted)
        if accepted:
            service.index_worker.wake()
        return proposal

    async def get(self, id: str) -> Proposal:
        """A proposal by its id. Raises `UnknownProposal`."""
        return await self._service().proposals.get(id)

    async def list(
        self, state: str = "pending", *, subject: str | None = None, everyone: bool = True
    ) -> AsyncGenerator[Proposal, None]:
        """Proposals that are "pending", "accepted" or "dismissed", newest first: everyone's, or those about a subject
        and those about no one."""
        from ...memory.knowledge.proposals import ProposalState

        if state not in tuple(ProposalState):
            raise InvalidInput(f"{state!r} is not a state of a proposal", hint="say pending, accepted or dismissed")
        everyone = everyone and subject is None
        async for proposal in self._service().proposals.listed(ProposalState(state), subject, everyone):
            yield proposal

    async def accept(
        self, id: str, *, content: str | None = None, title: str | None = None, actor: str | None = None
    ) -> Proposal:
        """Save what was proposed, with other words if `content` gives them: decision and memory in one transaction.
        Raises `ProposalDecided` if it was decided before."""
        service = self._service()
        accepted = await service.proposals.accept(id, content=content, title=title, actor=actor)
        service.index_worker.wake()
        return accepted

    async def dismiss(self, id: str, *, note: str | None = None, actor: str | None = None) -> Proposal:
        """Do not save what was proposed; it does not come back. Raises `ProposalDecided` if it was decided before."""
        return await self._service().proposals.dismiss(id, note=note, actor=actor)
