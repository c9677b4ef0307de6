"""Proposals: what a person has to decide before it is saved."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import TYPE_CHECKING, Unpack

from ...errors import InvalidInput, shown
from ...memory.catalog.memory_event import MemoryDetails

if TYPE_CHECKING:
    from ...memory.knowledge.proposals import Proposal
    from ...memory.memory_service import MemoryService


class AsyncProposals:
    """What waits for the decision of a person: preferences, identity, profile and persona.

    `dm.memory.proposals` holds it. A proposal is saved once a person accepts it.
    """

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
        """Propose a memory, a field of a profile, or the persona. Returns the proposal; None if the content is
        already known.

        A proposal that is pending, or was dismissed before, is returned unchanged.

        Args:
            content: the text or value to save.
            kind: the kind of the memory; "profile" for the profile field `key`; "persona" for the text that describes
                the agent.
            subject: the person that it is about.
            evidence: the words that it is based on.
            reason: why it is proposed.
            source: the event that it comes from, as "session#position".
            actor: who proposes it.
            accepted: the actor accepts it in the same transaction.
            **details: see `MemoryDetails`.
        """
        from ...memory.knowledge.proposals import ProposalDraft

        for name, text in (("evidence", evidence), ("reason", reason)):
            if not isinstance(text, str):
                raise InvalidInput(f"`{name}` cannot be {shown(text)}", hint="give text")
        wanted = ProposalDraft(content, kind, {**details}, evidence, reason, source)
        service = self._service()
        proposal = await service.proposals.make(wanted, subject, actor, accepted)
        if accepted:
            service.index_worker.wake()
        return proposal

    async def get(self, id: str) -> Proposal:
        """Return a proposal by its id. Raises `UnknownProposal`."""
        return await self._service().proposals.get(id)

    async def list(
        self, state: str = "pending", *, subject: str | None = None, everyone: bool = True
    ) -> AsyncGenerator[Proposal, None]:
        """Iterate over proposals in a state, newest first.

        Args:
            state: "pending", "accepted" or "dismissed".
            subject: only those about this person and those about no person.
            everyone: all of them. With False and without a subject: only those about no person.
        """
        from ...memory.knowledge.proposals import ProposalState

        if state not in tuple(ProposalState):
            raise InvalidInput(
                f"{shown(state)} is not a state of a proposal", hint="give pending, accepted or dismissed"
            )
        everyone = everyone and subject is None
        async for proposal in self._service().proposals.listed(ProposalState(state), subject, everyone):
            yield proposal

    async def accept(
        self, id: str, *, content: str | None = None, title: str | None = None, actor: str | None = None
    ) -> Proposal:
        """Save what was proposed, and return the proposal. Decision and memory are stored in one transaction.

        Args:
            id: the id of the proposal.
            content: save this text instead.
            title: a short heading for the memory.
            actor: who decides.

        Raises:
            UnknownProposal: there is no proposal with this id.
            ProposalDecided: it was accepted or dismissed before.
        """
        service = self._service()
        accepted = await service.proposals.accept(id, content=content, title=title, actor=actor)
        service.index_worker.wake()
        return accepted

    async def dismiss(self, id: str, *, note: str | None = None, actor: str | None = None) -> Proposal:
        """Dismiss a proposal, and return it. The same content is not proposed again.

        Raises `UnknownProposal`, or `ProposalDecided` if it was accepted or dismissed before.
        """
        return await self._service().proposals.dismiss(id, note=note, actor=actor)
