"""The parts of memory put together: catalog, texts, vectors, search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from ..errors import EmbedderFailed
from ..journal.events import moment
from ..journal.journal import Journal
from ..ports import Model
from .catalog.batch import Said
from .catalog.catalog import HOME, Catalog
from .catalog.records import Memory, Recalled
from .catalog.texts import Texts
from .extraction.model_reader import Reader
from .index.index_worker import IndexWorker
from .index.workspace_embedder import Embedding, Load
from .knowledge.consolidation import Consolidating, Merged
from .knowledge.contradictions import Contradicting
from .knowledge.persona import Persona
from .knowledge.policies import Policies
from .knowledge.procedures import PROCEDURE, Procedures
from .knowledge.proposals import SESSION as PROPOSALS
from .knowledge.proposals import Proposals
from .knowledge.resolution import Decisions, Resolving
from .knowledge.write_back import WriteBack
from .ranking.retrieval import Retrieval
from .ranking.search import Search
from .ranking.selection import Wanted

_OFFERED = 3
"""How many procedures are offered beside what was found."""


class MemoryService:
    """The memory of one workspace."""

    def __init__(self, journal: Journal, load: Load, policies: Policies, reader: Reader | None = None) -> None:
        texts = Texts(journal)
        self._journal = journal
        self.texts = texts
        self.embedding = Embedding(journal.store, journal.workspace, load)
        decisions = Decisions(journal)
        self.catalog = Catalog(journal, texts, decisions.forget)
        self.indexing = IndexWorker(journal, texts, self.embedding)
        retriever = journal.store.retriever
        source = None if retriever is None else Retrieval(journal, texts, self.embedding, retriever)
        self.searching = Search(journal, texts, self.embedding, self.indexing, source)
        self.procedures = Procedures(journal, texts, self.catalog)
        self.consolidating = Consolidating(journal, texts, self.searching)
        self.persona = Persona(journal, PROPOSALS)
        self.proposals = Proposals(journal, self.catalog, self.persona)
        self.policies = policies
        self.writing = WriteBack(journal, self.procedures, self.proposals, self.indexing, reader)
        self.contradicting = Contradicting(journal, self.catalog, decisions.made)
        self.resolving = Resolving(journal, texts, decisions)

    async def remember(
        self,
        session: str | None,
        content: str,
        kind: str,
        details: Mapping[str, Any],
        subject: str | None,
        actor: str | None,
        cause: int | str | None,
        fresh: bool,
    ) -> Memory:
        """Remember something at the end of a session, or outside any."""
        memory = await self.catalog.remember(
            session or HOME, content, kind, details, subject=subject, actor=actor, cause=cause
        )
        await self._index(fresh)
        return memory

    async def remember_all(
        self,
        session: str | None,
        contents: Iterable[Said],
        kind: str,
        details: Mapping[str, Any],
        subject: str | None,
        actor: str | None,
        cause: int | str | None,
        fresh: bool,
    ) -> list[Memory]:
        """Remember several things at once."""
        memories = await self.catalog.remember_all(
            session or HOME, contents, kind, details, subject=subject, actor=actor, cause=cause
        )
        await self._index(fresh)
        return memories

    async def _index(self, fresh: bool) -> None:
        if fresh:
            await self._caught_up()
        else:
            self.indexing.wake()

    async def _caught_up(self) -> None:
        try:
            await self.indexing.catch_up()
        except EmbedderFailed as failure:
            failure.add_note("The memory is stored, and found by its words; its vector follows.")
            raise

    async def consolidate(self, audiences: tuple[bytes, ...] | None, model: Model | None, most: int) -> list[Merged]:
        """Merge what says the same; with a model, resolve what disagrees, too."""
        done = [merged async for merged in self.consolidating.merge(audiences)]
        if model is not None:
            found = [*await self.contradicting.listed(audiences), *await self.consolidating.near(audiences)]
            done += [merged async for merged in self.resolving.resolve(found, model, most)]
            self.indexing.wake()
        return done

    async def search(
        self, query: str, audiences: tuple[bytes, ...] | None, *, kinds: Iterable[str] | None, **rest: Any
    ) -> Recalled:
        """The best memories for a query."""
        chosen = None if kinds is None else frozenset(kinds)
        found = await self.searching.search(Wanted(query, audiences, kinds=chosen, **rest))
        self.indexing.start()
        return found

    def noted(self, found: Recalled) -> Recalled:
        """What was found, with a note on each hit that is stale."""
        now = moment(self._journal.clock.now())
        notes = [self.policies.freshness(hit.memory, now) for hit in found.hits]
        if not any(notes):
            return found
        return replace(found, hits=tuple(replace(hit, note=note) for hit, note in zip(found.hits, notes, strict=True)))

    async def offered(self, query: str, audiences: tuple[bytes, ...], found: Recalled) -> Recalled:
        """What was found, with the procedures that fit the query, if there were so many facts that none was found."""
        held = await self.searching.holding.held(audiences)
        none = all(audience.kinds.find(PROCEDURE) < 0 for audience in held)
        if none or any(hit.memory.kind == PROCEDURE for hit in found):
            return found
        ways = await self.search(query, audiences, kinds=[PROCEDURE], limit=_OFFERED)
        return replace(found, hits=(*found.hits, *(hit for hit in ways if hit.likeness > 0)))

    async def standing(self, audiences: tuple[bytes, ...]) -> list[Memory]:
        """The standing procedures in some audiences, oldest first."""
        return await self.searching.having({"standing": True}, audiences, PROCEDURE)
