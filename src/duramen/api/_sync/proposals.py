"""What people decide about themselves, blocking: the same code, stepped by hand. See `duramen.aio_proposals`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Unpack

from ...memory.catalog.memory_event import MemoryDetails
from ...runtime import drive, drive_iterator
from .._async.proposals import AsyncProposals

if TYPE_CHECKING:
    from ...memory.knowledge.proposals import Proposal


class Proposals:
    """What may be saved once a person accepts it: preferences, what people are, the profile, the persona."""

    def __init__(self, core: AsyncProposals) -> None:
        self._core = core

    def make(
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
        return drive(
            self._core.make(
                content,
                kind=kind,
                subject=subject,
                evidence=evidence,
                reason=reason,
                source=source,
                actor=actor,
                accepted=accepted,
                **details,
            )
        )

    def get(self, id: str) -> Proposal:
        """A proposal by its id. Raises `UnknownProposal`."""
        return drive(self._core.get(id))

    def list(self, state: str = "pending", *, subject: str | None = None, everyone: bool = True) -> Iterator[Proposal]:
        """Proposals that are "pending", "accepted" or "dismissed", newest first: everyone's, or those about a subject
        and about nobody."""
        return drive_iterator(self._core.list(state, subject=subject, everyone=everyone))

    def accept(
        self, id: str, *, content: str | None = None, title: str | None = None, actor: str | None = None
    ) -> Proposal:
        """Save what was proposed, with other words if `content` gives them: decision and memory in one transaction.
        Raises `ProposalDecided` if somebody has decided."""
        return drive(self._core.accept(id, content=content, title=title, actor=actor))

    def dismiss(self, id: str, *, note: str | None = None, actor: str | None = None) -> Proposal:
        """Do not save what was proposed; it does not come back. Raises `ProposalDecided` if somebody has decided."""
        return drive(self._core.dismiss(id, note=note, actor=actor))
