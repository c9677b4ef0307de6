"""The parts of memory put together: catalog, texts, vectors, search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..journal.journal import Journal
from .catalog import HOME, Catalog
from .embedding import Embedding, Load
from .indexing import Indexing
from .items import Memory, Recalled
from .searching import Searching, Wanted
from .texts import Texts


class Mind:
    """The memory of one workspace."""

    def __init__(self, journal: Journal, load: Load) -> None:
        texts = Texts(journal)
        self.embedding = Embedding(journal.store, journal.workspace, load)
        self.catalog = Catalog(journal, texts)
        self.indexing = Indexing(journal, texts, self.embedding)
        self.searching = Searching(journal, texts, self.embedding, self.indexing)

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
        if fresh:
            await self.indexing.catch_up()
        else:
            self.indexing.wake()
        return memory

    async def search(
        self, query: str, pools: tuple[bytes, ...] | None, *, kinds: Iterable[str] | None, **rest: Any
    ) -> Recalled:
        """The best memories for a query."""
        chosen = None if kinds is None else frozenset(kinds)
        found = await self.searching.search(Wanted(query, pools, kinds=chosen, **rest))
        self.indexing.start()
        return found
