"""The long-term memory of a workspace."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, Unpack

from ...errors import InvalidInput, shown
from ...journal.events import Event, check_function, check_name, check_text, check_whole, micros, moment
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
    """The long-term memory of a workspace, as `dm.memory`.

    Each memory has a kind, such as "fact" or "preference", and is visible to the workspace, to one subject or to one
    session.
    """

    def __init__(self, journal: Journal, memory: MemoryLoader, learn: Callable[[str], Awaitable[RunOutline]]) -> None:
        self._journal = journal
        self._memory = memory
        self.procedures = AsyncProcedures(memory.load, learn)
        """Procedures: how tasks are done."""
        self.proposals = AsyncProposals(memory.load)
        """Proposals: what a person has to decide before it is saved."""

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
        """Store a memory and return it; durable on return.

        Search by words finds it at once. Its vector, for search by meaning, is computed in the background. If the
        same content is stored again, the memory counts as confirmed.

        Args:
            content: the text.
            kind: "fact", "preference", "identity", "blocker", "reference", or a kind of your own.
            subject: the person that it is about. `erase` removes it.
            actor: who stores it.
            cause: the event that led to it: a position, or "session#position".
            fresh: compute the vector before the call returns.
            **details: see `MemoryDetails`.
        """
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
        """Store several memories in one transaction and return them; durable on return.

        Args:
            contents: at most 1,000 texts or dicts. A dict has a `content` and may override `kind` and the details.
            kind: the kind of those that do not name one.
            subject: the person that they are about. `erase` removes them.
            actor: who stores them.
            cause: the event that led to them: a position, or "session#position".
            fresh: compute the vectors before the call returns.
            **details: the details of those that do not override them. See `MemoryDetails`.
        """
        from ...memory.catalog.catalog import HOME

        memories = await self._service.catalog.remember_all(
            HOME, contents, kind, details, subject=subject, actor=actor, cause=cause
        )
        await self._service.index_worker.index_new(wait=fresh)
        return memories

    async def recall(self, query: str, **options: Unpack[RecallOptions]) -> Recalled:
        """Search memories and return the hits, best first. See `RecallOptions`.

        The score combines words, meaning, time, importance and related names. `missing` in the result names what the
        search had to do without, such as the embedder.
        """
        return await self._recall(query, None, options)

    async def _recall(self, query: str, at: int | None, options: RecallOptions) -> Recalled:
        check_options("recall", options, RecallOptions)
        if not isinstance(query, str) or not query.strip():
            raise InvalidInput("the query is empty or is not text", hint="give text to search for")
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
            raise InvalidInput(f"`everyone` cannot be {shown(everyone)}", hint="give True or False")
        if everyone:
            return None
        return await self._service.catalog.audiences(whose.get("subject"), whose.get("session"))

    async def get(self, id: str) -> Memory:
        """Return a memory by its id. Raises `UnknownMemory`."""
        await self._service.index_worker.flush_recalls()
        return await self._service.catalog.get(id)

    async def confirm(self, id: str, *, actor: str | None = None) -> Memory:
        """Record that a memory is still true, so that it counts as fresh again. Returns it. Raises `UnknownMemory`."""
        return await self._service.catalog.confirm(id, actor=actor)

    async def profile(self, subject: str | None = None) -> dict[str, str]:
        """Return the profile of a person, by field; without a subject, the profile of the user of this workspace.

        Only accepted proposals of the kind "profile" change it. Profiles are not searched: each recollection begins
        with them.
        """
        return await self._service.persona.profile(subject)

    async def persona(self) -> str:
        """Return the text that describes the agent; "" if there is none. Each turn begins with it.

        Only accepted proposals of the kind "persona" change it.
        """
        return await self._service.persona.text()

    async def history(self, id: str) -> list[Memory]:
        """Return every version of a memory, oldest first: when it was recorded, what it replaced and what replaced
        it.

        Raises `UnknownMemory`.
        """
        return await self._service.catalog.history(id)

    async def neighbours(self, name: str, *, limit: int = 20, **whose: Unpack[Scope]) -> list[Relation]:
        """Return what memories say about a name: the relations between this name and other names, newest first.

        Relations are read from plain English ("Ada lives in Rome"). Names that are only mentioned together have the
        relation "with". Each relation is listed once, with its newest source.
        """
        from ...memory.ranking.neighbours import neighbours

        check_options("neighbours", whose, Scope)
        if not isinstance(name, str) or not name.strip():
            raise InvalidInput("the name is empty or is not text", hint="give a name to search for")
        return await neighbours(self._service.search, name, await self._audiences(whose), _limit(limit))

    async def list(
        self, *, kinds: str | Iterable[str] | None = None, limit: int = ALL, **whose: Unpack[Scope]
    ) -> AsyncGenerator[Memory, None]:
        """Iterate over current memories, oldest first. See `Scope`."""
        async for memory in self._list(None, kinds, limit, whose):
            yield memory

    async def _list(
        self, at: int | None, kinds: str | Iterable[str] | None, limit: int, whose: Scope
    ) -> AsyncGenerator[Memory, None]:
        check_options("list", whose, Scope)
        query = MemoryQuery(await self._audiences(whose), kinds=_kinds(kinds), at=at, limit=_limit(limit))
        await self._service.index_worker.flush_recalls()  # so that `recalled` counts every recall until now
        async for memory in self._service.catalog.listed(query):
            yield memory

    async def forget(self, id: str, *, actor: str | None = None) -> ForgetReport:
        """Remove a memory: every event payload that states it, its index entries and its vector. It cannot be
        restored.

        Returns how much was removed. Raises `UnknownMemory`.
        """
        return await self._service.catalog.forget(id, actor=actor)

    async def forget_before(
        self,
        time: dt.datetime,
        *,
        kinds: str | Iterable[str] | None = None,
        actor: str | None = None,
        **whose: Unpack[Scope],
    ) -> ForgetReport:
        """Remove all memories that were last stated before a time. Returns how much was removed. See `Scope`."""
        check_options("forget_before", whose, Scope)
        before, chosen = micros("time", time), _kinds(kinds)
        return await self._service.catalog.forget_before(before, chosen, await self._audiences(whose), actor=actor)

    def as_of(self, when: dt.datetime | Event) -> AsyncMemorySnapshot:
        """Return the memory as it was at a time, or at the time of an event."""
        return AsyncMemorySnapshot(self, when.time if isinstance(when, Event) else micros("when", when))

    async def extract(self, text: str, *, model: Model | str | None = None, speaker: str | None = None) -> Extraction:
        """Extract the facts of a text, each with its kind, key, confidence and the words that state it. Nothing is
        stored.

        Args:
            text: the text.
            model: a model or its name. Its answer is checked: a fact that the text does not state is skipped with a
                reason. Default: the built-in patterns.
            speaker: who says the text.

        Raises:
            ModelFailed: the model gave no answer that can be used.
        """
        from ...memory.extraction.extract import extract

        if not isinstance(text, str) or not text.strip():
            raise InvalidInput("`text` is empty or is not text", hint="give text to extract facts from")
        if speaker is not None:
            speaker = check_name("speaker", speaker)
        return await extract(text, model_of(model), speaker, self._memory.settings.suspicious)

    async def consolidate(
        self, *, model: Model | str | None = None, limit: int = 50, **whose: Unpack[Scope]
    ) -> Sequence[Merged]:
        """Merge memories that say the same in nearly the same words, and return what was merged. The newer memory
        stays.

        With a model, contradictions are resolved too. The model decides whether the newer memory holds, the older
        one, both, or one new statement instead of both. Each decision is journaled with its reason. Run it from time
        to time. An interrupted call loses nothing.

        Args:
            model: a model or its name.
            limit: the maximum number of contradictions to resolve.
            **whose: see `Scope`.

        Raises:
            ModelFailed: the model gave no answer that can be used. Earlier decisions stay.
        """
        check_options("consolidate", whose, Scope)
        most, asked = _limit(limit), model_of(model)
        return await self._service.consolidation.run(await self._audiences(whose), asked, most)

    async def write_back(self, session: str | None = None) -> int:
        """Save facts and procedures from finished turns and runs now, not in the background. Returns the number of
        turns read.

        Args:
            session: also read the last turn of this session, even if it has not ended, and the turns that the model
                of this handle has not read yet.
        """
        write_back = self._service.write_back
        done = await write_back.catch_up()
        if session is not None:
            head = await self._journal.reader.head(check_name("session", session))
            done += bool(await write_back.write_turn(session, head.position))
            await write_back.read_with_model(session, head.position)
        return done

    async def contradictions(self, *, limit: int = 100, **whose: Unpack[Scope]) -> Sequence[Contradiction]:
        """Return pairs of current memories that cannot both be true, newest first.

        Examples are a person who lives in two cities, or two different numbers. They are found in plain English
        without a model. The rules prefer precision: nearly every pair is a contradiction, but some contradictions are
        missed.
        """
        check_options("contradictions", whose, Scope)
        most, audiences = _limit(limit), await self._audiences(whose)
        return (await self._service.contradictions.find(audiences))[:most]

    async def waiting(self) -> int:
        """Return the number of memories that have no vector yet."""
        return await self._service.index_worker.count_waiting()

    async def catch_up(self) -> None:
        """Compute all missing vectors now."""
        await self._service.index_worker.catch_up()

    async def reindex(self) -> AsyncGenerator[tuple[int, int], None]:
        """Compute all vectors again with the embedder of this handle.

        Searches use the old vectors until the new ones are complete. Yields the number of vectors done and left after
        each batch. If it is interrupted, the next call continues.
        """
        async for step in self._service.index_worker.reindex():
            yield step
        self._service.search.clear()

    async def file_text(self, id: str) -> str:
        """Return a memory in the format of its file, to change it and pass it to `edit`. Raises `UnknownMemory`."""
        from ...files.sync.memory_edit import MemoryEdit

        return await MemoryEdit(self._journal, self._service).text(id)

    async def edit(self, id: str, text: str, *, actor: str | None = None) -> Memory:
        """Replace a memory with the edited text of its file, and return the new version.

        Statements about people (preference, identity) are proposed and accepted in the same transaction.

        Raises:
            UnknownMemory: there is no memory with this id.
            FileMalformed: the text cannot be parsed. `line` says where.
            InvalidInput: a value in the text is not valid.
        """
        from ...files.sync.memory_edit import MemoryEdit

        return await MemoryEdit(self._journal, self._service).apply(id, check_text("text", text), actor)

    async def import_from(
        self,
        path: str | PathLike[str],
        format: str,
        *,
        subject: str | None = None,
        actor: str | None = None,
        trusted: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> MemoriesImported:
        """Import memory files of another program. Importing them again changes nothing.

        Files that cannot be read are reported in `skipped` with their line; the others are imported. Preferences and
        identity become proposals, which are listed in `proposed`.

        Args:
            path: a folder or a file.
            format: "claude" (a memory folder of Claude Code), "openclaw", "basic-memory" or "jsonl".
            subject: the person that all memories are about.
            actor: who imports them.
            trusted: save preferences and identity at once, as accepted by the actor. Use it only for files that you
                wrote yourself: anything else in them can set what agents believe about a person.
            progress: called with the phase, the number of notes done, and the total.
        """
        from ...files.sync.import_export import ImportExport, checked_path

        if subject is not None:
            subject = check_name("subject", subject)
        if progress is not None:
            check_function("progress", progress)
        exchange = ImportExport(self._journal, self._service)
        return await exchange.import_from(checked_path(path), format, subject, actor, trusted is True, progress)

    async def export_to(
        self,
        path: str | PathLike[str],
        format: str,
        *,
        progress: Callable[[str, int, int], None] | None = None,
        **whose: Unpack[Scope],
    ) -> MemoriesExported:
        """Export memories to a folder in the format of another program.

        A memory that was imported from this format is written to the same file with the same text. Other files in the
        folder do not change.

        Args:
            path: the folder.
            format: one of the formats of `import_from`.
            progress: called with the phase, the number of memories done, and the total.
            **whose: see `Scope`.
        """
        from ...files.sync.import_export import ImportExport, checked_path

        check_options("export_to", whose, Scope)
        if progress is not None:
            check_function("progress", progress)
        everyone, subject = whose.get("everyone", False), whose.get("subject")
        memories = self._service.catalog.listed(MemoryQuery(await self._audiences(whose), limit=ALL))
        return await ImportExport(self._journal, self._service).export_to(
            checked_path(path), format, memories, lambda owner: everyone or owner in (None, subject), progress
        )


def _time(what: str, value: object) -> int | None:
    return None if value is None else micros(what, value)


def _weighed(half_life: object) -> dict[str, Any]:
    """The weights of a search as arguments of `SearchRequest`; empty for the default weights."""
    if half_life is None:
        return {}
    from ...memory.ranking.rank import DEFAULT

    seconds = half_life.total_seconds() if isinstance(half_life, dt.timedelta) else half_life
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 1 <= seconds <= _CENTURY:
        hint = "give seconds or a timedelta, from 1 second to 100 years"
        raise InvalidInput(f"`half_life` cannot be {shown(half_life)}", hint=hint)
    return {"weights": replace(DEFAULT, half_life_days=seconds / 86_400)}


def _share(what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise InvalidInput(f"`{what}` cannot be {shown(value)}", hint="give a number from 0 to 1")
    return float(value)


def _limit(value: object) -> int:
    return min(check_whole("limit", value, 1), ALL)


def _kinds(kinds: str | Iterable[str] | None) -> tuple[str, ...] | None:
    if kinds is None:
        return None
    if isinstance(kinds, bytes) or not isinstance(kinds, Iterable):
        raise InvalidInput(f"`kinds` cannot be {shown(kinds)}", hint="give a kind, or several")
    return tuple(check_name("kind", kind) for kind in ([kinds] if isinstance(kinds, str) else kinds))


def _metadata(value: object) -> Mapping[str, Any] | None:
    if value is not None and not isinstance(value, Mapping):
        raise InvalidInput(f"`metadata` cannot be {shown(value)}", hint="give a dict with the values to search for")
    return value
