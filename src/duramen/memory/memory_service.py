"""Creates the parts of a workspace's memory and connects them. Callers use the parts directly."""

from __future__ import annotations

from ..journal.journal import Journal
from .catalog.catalog import Catalog
from .catalog.texts import MemoryTexts
from .index.index_cache import IndexCache
from .index.index_codec import IndexCodec
from .index.index_worker import IndexWorker
from .index.workspace_embedder import EmbedderLoader, WorkspaceEmbedder
from .knowledge.consolidation import Consolidation
from .knowledge.contradictions import ContradictionFinder
from .knowledge.model_reader import ModelReader, ModelReaderSettings
from .knowledge.persona import Persona
from .knowledge.policies import Policies
from .knowledge.procedures import Procedures
from .knowledge.proposals import SESSION as PROPOSALS
from .knowledge.proposals import Proposals
from .knowledge.resolution import ContradictionResolver, Decisions
from .knowledge.write_back import WriteBack
from .ranking.candidates import IndexCandidates
from .ranking.retrieval import Retrieval
from .ranking.search import Search
from .ranking.selection import CandidateSource


class MemoryService:
    """The memory of one workspace: one attribute for each part."""

    def __init__(
        self, journal: Journal, load: EmbedderLoader, policies: Policies, model: ModelReaderSettings | None = None
    ) -> None:
        self.journal = journal
        decisions = Decisions(journal)
        self.policies = policies
        self.texts = MemoryTexts(journal)
        self.catalog = Catalog(journal, self.texts, decisions.forget)
        self.codec = IndexCodec(journal, self.texts)
        self.embedder = WorkspaceEmbedder(journal.store, journal.workspace, load)
        self.index_worker = IndexWorker(journal, self.texts, self.codec, self.embedder)
        index_cache = IndexCache(journal, self.texts, self.codec, self.embedder)
        sources: list[CandidateSource] = [IndexCandidates(index_cache)]
        if journal.store.retriever is not None:
            sources.insert(0, Retrieval(journal, self.texts, self.codec, self.embedder, journal.store.retriever))
        self.search = Search(journal, self.texts, self.embedder, self.index_worker, index_cache, sources)
        self.persona = Persona(journal, PROPOSALS)
        self.proposals = Proposals(journal, self.catalog, self.persona)
        self.procedures = Procedures(journal, self.texts, self.catalog, self.search)
        self.contradictions = ContradictionFinder(journal, self.catalog, decisions.made)
        resolver = ContradictionResolver(journal, self.texts, decisions)
        self.consolidation = Consolidation(
            journal, self.texts, self.search, self.contradictions, resolver, self.index_worker
        )
        model_reader = None
        if model is not None:
            model_reader = ModelReader(journal, self.procedures, self.proposals, self.index_worker, model)
        self.write_back = WriteBack(journal, self.procedures, self.proposals, self.index_worker, model_reader)
