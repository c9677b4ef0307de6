"""What a workspace remembers beyond its sessions."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

from ...errors import InvalidInput
from ...journal.events import Event, check_name, check_whole, micros, moment
from ...journal.journal import Journal
from ...memory.catalog.memory_event import MemoryDetails
from ...memory.loader import MemoryLoader
from ...ports import MemoryQuery, Model
from ..options import ALL, RecallOptions, Scope, check_options, model_of
from .memory_snapshot import AsyncMemorySnapshot
from .procedures import AsyncProcedures
from .proposals import AsyncProposals

if TYPE_CHECKING:
    from ...execution.engine.run_outline import RunOutline
    from ...files.sync.import_export import MemoriesExported, MemoriesImported
    from ...memory.catalog.memory_event import MemoryInput
    from ...memory.catalog.records import ForgetReport, Memory, Recalled
    from ...memory.extraction.extract import Extraction
    from ...memory.knowledge.contradictions import Contradiction
    from ...memory.knowledge.resolution import Merged
    from ...memory.memory_service import MemoryService
    from ...memory.ranking.neighbours import Relation

_CENTURY = 100 * 366 * 86_400


class AsyncMemories:
    """What is remembered in a workspace: by agents, about persons, from runs."""

    def __init__(self, journal: Journal, memory: MemoryLoader, learn: Callable[[str], Awaitable[RunOutline]]) -> None:
        self._journal = journal
        self._memory = memory
        self.procedures = AsyncProcedures(memory.load, learn)
        """How things are done."""
        self.proposals = AsyncProposals(memory.load)
        """What waits for a person to decide, and what was decided."""

    @property
    def _service(self) -> MemoryService:
        return self._memory.load()

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
        """Remember something; durable on return, and found by its words at once. Its vector follows in the background,
        unless it shall be `fresh`: then it is there on return, too."""
        from ...memory.catalog.catalog import HOME

        memory = await self._service.catalog.remember(
            HOME, content, kind, details, subject=subject, actor=actor, cause=cause
        )
        await self._service.index_worker.index_new(wait=fresh)
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
        """Remember several things in one go: all of them or none, durable on return, with one sync. Each is a text, or
        a dict with its `content` and the options of `remember`; options given here hold for all that say nothing
        else. At most 1,000 in a call."""
        from ...memory.catalog.catalog import HOME

        memories = await self._service.catalog.remember_all(
            HOME, contents, kind, details, subject=subject, actor=actor, cause=cause
        )
        await self._service.index_worker.index_new(wait=fresh)
        return memories

    async def recall(self, query: str, **options: Unpack[RecallOptions]) -> Recalled:
        """What is known that fits a query, best first: by words, meaning, time, importance and neighbourhood."""
        return await self._recall(query, None, options)

    async def _recall(self, query: str, at: int | None, options: RecallOptions) -> Recalled:
        check_options("recall", options, RecallOptions)
        if not isinstance(query, str) or not query.strip():
            raise InvalidInput("there is nothing to search for", hint="give text")
        from ...memory.ranking.selection import SearchRequest

        service = self._service
        audiences = await self._audiences(options)
        kinds = _kinds(options.get("kinds"))
        request = SearchRequest(
            query,
            audiences,
            limit=_limit(options.get("limit", 10)),
            kinds=None if kinds is None else frozenset(kinds),
            metadata=_metadata(options.get("metadata")),
            since=_time("since", options.get("since")),
            until=_time("until", options.get("until")),
            threshold=_share("threshold", options.get("threshold", 0.0)),
            diversity=_share("diversity", options.get("diversity", 0.0)),
            at=at,
            **_weighed(options.get("half_life")),
        )
        found = await service.search.find(request)
        return service.policies.with_notes(found, moment(self._journal.clock.now()))

    async def _audiences(self, whose: Scope) -> tuple[bytes, ...] | None:
        everyone: object = whose.get("everyone", False)
        if not isinstance(everyone, bool):
            raise InvalidInput(f"{everyone!r} cannot be `everyone`", hint="say True or False")
        if everyone:
            return None
        return await self._service.catalog.audiences(whose.get("subject"), whose.get("session"))

    async def get(self, id: str) -> Memory:
        """A memory by its id. Raises `UnknownMemory`."""
        await self._service.index_worker.flush_recalls()
        return await self._service.catalog.get(id)

    async def confirm(self, id: str, *, actor: str | None = None) -> Memory:
        """A person checked a memory and it still holds: it counts as fresh again. Raises `UnknownMemory`."""
        return await self._service.catalog.confirm(id, actor=actor)

    async def profile(self, subject: str | None = None) -> dict[str, str]:
        """The fields that are known of a person, or of the one that the workspace is for. Only accepted proposals
        (`kind` "profile") change them. They are not memories: each recollection begins with them."""
        return await self._service.persona.profile(subject)

    async def persona(self) -> str:
        """Who the agent is: a text that each turn begins with. It changes by accepted proposals (`kind` "persona")
        alone."""
        return await self._service.persona.text()

    async def history(self, id: str) -> list[Memory]:
        """Every version of a memory: when it was said, what it replaced and what replaced it; oldest first."""
        return await self._service.catalog.history(id)

    async def neighbours(self, name: str, *, limit: int = 20, **whose: Unpack[Scope]) -> list[Relation]:
        """Who and what a name stands next to: the relations that memories state in plain English ("Ada lives in Rome"),
        and as "with" the names that they mention next to it; newest first, each once, with its newest source."""
        from ...memory.ranking.neighbours import neighbours

        check_options("neighbours", whose, Scope)
        if not isinstance(name, str) or not name.strip():
            raise InvalidInput("there is no name to look for", hint="give text")
        return await neighbours(self._service.search, name, await self._audiences(whose), _limit(limit))

    async def list(
        self, *, kinds: str | Iterable[str] | None = None, limit: int = ALL, **whose: Unpack[Scope]
    ) -> AsyncGenerator[Memory, None]:
        """What is remembered, in the order in which it was."""
        async for memory in self._list(None, kinds, limit, whose):
            yield memory

    async def _list(
        self, at: int | None, kinds: str | Iterable[str] | None, limit: int, whose: Scope
    ) -> AsyncGenerator[Memory, None]:
        check_options("list", whose, Scope)
        query = MemoryQuery(await self._audiences(whose), kinds=_kinds(kinds), at=at, limit=_limit(limit))
        await self._service.index_worker.flush_recalls()  # what was recalled until now is shown
        async for memory in self._service.catalog.listed(query):
            yield memory

    async def forget(self, id: str, *, actor: str | None = None) -> ForgetReport:
        """Remove a memory with every text that said it, its words and its vector. The report counts what went."""
        return await self._service.catalog.forget(id, actor=actor)

    async def forget_before(
        self,
        time: dt.datetime,
        *,
        kinds: str | Iterable[str] | None = None,
        actor: str | None = None,
        **whose: Unpack[Scope],
    ) -> ForgetReport:
        """Forget what was last said before a time. The report counts what went."""
        check_options("forget_before", whose, Scope)
        before, chosen = micros("time", time), _kinds(kinds)
        return await self._service.catalog.forget_before(before, chosen, await self._audiences(whose), actor=actor)

    def as_of(self, when: dt.datetime | Event) -> AsyncMemorySnapshot:
        """What was known at a time, or when an event happened."""
        return AsyncMemorySnapshot(self, when.time if isinstance(when, Event) else micros("when", when))

    async def extract(self, text: str, *, model: Model | str | None = None, speaker: str | None = None) -> Extraction:
        """The facts that a text states, each with its kind, key, confidence and the words that say it; nothing is
        stored. With a model its answer is checked: a fact that is not in the text, or cannot be used otherwise, is
        skipped with the reason. Without one the plain patterns of `session.turn` decide. Raises `ModelFailed`."""
        from ...memory.extraction.extract import extract

        if not isinstance(text, str) or not text.strip():
            raise InvalidInput("there is no text to read", hint="give text")
        if speaker is not None:
            check_name("speaker", speaker)
        return await extract(text, model_of(model), speaker, self._memory.settings.suspicious)

    async def consolidate(
        self, *, model: Model | str | None = None, limit: int = 50, **whose: Unpack[Scope]
    ) -> Sequence[Merged]:
        """Merge memories that say the same in nearly the same words: the newer one stays, the older one ends. With a
        model contradictions are resolved, too, at most `limit` of them: it is asked whether the newer one holds, the
        older one, both, or one statement in place of both, and each decision is journaled with its reason. Run it now
        and then; it may be stopped anywhere. Raises `ModelFailed`; what was decided before stays decided."""
        check_options("consolidate", whose, Scope)
        most, asked = _limit(limit), model_of(model)
        return await self._service.consolidation.run(await self._audiences(whose), asked, most)

    async def write_back(self, session: str | None = None) -> int:
        """Keep what is worth keeping of turns and runs that have ended, now instead of in the background; with a
        session also what its last turn left, which may not have ended, and what the handle's model has not read yet. Returns
        how many turns were looked at."""
        write_back = self._service.write_back
        done = await write_back.catch_up()
        if session is not None:
            head = await self._journal.reader.head(check_name("session", session))
            done += bool(await write_back.write_turn(session, head.position))
            await write_back.read_with_model(session, head.position)
        return done

    async def contradictions(self, *, limit: int = 100, **whose: Unpack[Scope]) -> Sequence[Contradiction]:
        """Pairs of current memories that cannot both hold, the newest first: a person lives in two cities, a number
        differs, one denies what the other says. Found in plain English without a model, for precision: what is listed
        is nearly always one, and not all of them are listed."""
        check_options("contradictions", whose, Scope)
        most, audiences = _limit(limit), await self._audiences(whose)
        return (await self._service.contradictions.find(audiences))[:most]

    async def waiting(self) -> int:
        """How many memories have no vector yet."""
        return await self._service.index_worker.count_waiting()

    async def catch_up(self) -> None:
        """Make the vectors that are missing, now."""
        await self._service.index_worker.catch_up()

    async def reindex(self) -> AsyncGenerator[tuple[int, int], None]:
        """Make every vector again with this handle's embedder, while the old ones are searched, and search the new ones
        at the end. Gives how many are done and how many are left, batch by batch; stopped anywhere, the next call goes
        on where it was."""
        async for step in self._service.index_worker.reindex():
            yield step
        self._service.search.clear()

    async def file_text(self, id: str) -> str:
        """The text of a memory's file, to be changed and given to `edit`. Raises `UnknownMemory`."""
        from ...files.sync.memory_edit import MemoryEdit

        return await MemoryEdit(self._journal, self._service).text(id)

    async def edit(self, id: str, text: str, *, actor: str | None = None) -> Memory:
        """Replace a memory by what the text of its file says, as if a person had edited the file: what it says of people
        is proposed and accepted. Raises `UnknownMemory`, `FileMalformed` with the line, `InvalidInput`."""
        from ...files.sync.memory_edit import MemoryEdit

        return await MemoryEdit(self._journal, self._service).apply(id, text, actor)

    async def import_from(
        self,
        path: str | PathLike[str],
        format: str,
        *,
        subject: str | None = None,
        actor: str | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> MemoriesImported:
        """Remember what stands in a folder, or a file, of another's: `format` "claude" (a memory folder of Claude
        Code), "openclaw", "basic-memory" or "jsonl". Preferences and identity count as accepted by the one who
        imports them. Doing it again changes nothing; bad files are reported with their line, and the rest is imported."""
        from ...files.sync.import_export import ImportExport, checked_path

        if subject is not None:
            check_name("subject", subject)
        exchange = ImportExport(self._journal, self._service)
        return await exchange.import_from(checked_path(path), format, subject, actor, progress)

    async def export_to(
        self,
        path: str | PathLike[str],
        format: str,
        *,
        progress: Callable[[str, int, int], None] | None = None,
        **whose: Unpack[Scope],
    ) -> MemoriesExported:
        """Write memories to a folder in another's format: what was imported from such files goes where it was, word by
        word. Other files there stay."""
        from ...files.sync.import_export import ImportExport, checked_path

        check_options("export_to", whose, Scope)
        everyone, subject = whose.get("everyone", False), whose.get("subject")
        memories = self._service.catalog.listed(MemoryQuery(await self._audiences(whose), limit=ALL))
        return await ImportExport(self._journal, self._service).export_to(
            checked_path(path), format, memories, lambda owner: everyone or owner in (None, subject), progress
        )


def _time(what: str, value: object) -> int | None:
    return None if value is None else micros(what, value)


def _weighed(half_life: object) -> dict[str, Any]:
    """The weights of a search that are not the usual ones."""
    if half_life is None:
        return {}
    from ...memory.ranking.rank import DEFAULT

    seconds = half_life.total_seconds() if isinstance(half_life, dt.timedelta) else half_life
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 1 <= seconds <= _CENTURY:
        hint = "give seconds or a timedelta, from a second to a century"
        raise InvalidInput(f"{half_life!r} cannot be `half_life`", hint=hint)
    return {"weights": replace(DEFAULT, half_life_days=seconds / 86_400)}


def _share(what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise InvalidInput(f"{value!r} cannot be `{what}`", hint="give a number from 0 to 1")
    return float(value)


def _limit(value: object) -> int:
    return min(check_whole("limit", value, 1), ALL)


def _kinds(kinds: str | Iterable[str] | None) -> tuple[str, ...] | None:
    if kinds is None:
        return None
    if isinstance(kinds, bytes) or not isinstance(kinds, Iterable):
        raise InvalidInput(f"{kinds!r} cannot be `kinds`", hint="give a kind, or several")
    return tuple(check_name("kind", kind) for kind in ([kinds] if isinstance(kinds, str) else kinds))


def _metadata(value: object) -> Mapping[str, Any] | None:
    if value is not None and not isinstance(value, Mapping):
        raise InvalidInput(f"{value!r} cannot be `metadata`", hint="give a dict with the values to look for")
    return value
