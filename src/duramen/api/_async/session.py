"""One session: its events, what is said and done in it, its context, checkpoints, progress and memory."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Unpack

from ...checkpoints.checkpoints import ANYTHING
from ...context.continuation import Continuation, OpenWork
from ...context.services import Services
from ...context.session_recall import SessionRecall
from ...context.turn import InstructionSource, Responder, TurnCycle, TurnResult
from ...context.window import conversation
from ...context.window.fetch import fetch, fetch_tool
from ...errors import InvalidInput
from ...journal.events import Draft, Event, SessionStatus, check_types, check_whole
from ...journal.journal import Journal
from ...journal.verification import Verification
from ...memory.catalog.memory_event import MemoryDetails
from ...memory.loader import MemoryLoader
from ...ports import Head
from ..options import AppendOptions, CheckpointParts, ReadOptions, WindowChanges, check_options
from .lease import AsyncLease
from .progress import AsyncProgress
from .session_view import AsyncSessionView

if TYPE_CHECKING:
    from ...checkpoints.state import Checkpoint
    from ...context.episodes import Episode
    from ...context.handoff import Handoff
    from ...context.window.context import Context
    from ...memory.catalog.memory_event import MemoryInput
    from ...memory.catalog.records import Memory
    from ...memory.recollection import Recollection


class AsyncSession:
    """One stream of events."""

    def __init__(
        self,
        journal: Journal,
        session: str,
        services: Services,
        memory: MemoryLoader,
        open_work: OpenWork,
        continues: str | None = None,
    ) -> None:
        self._journal = journal
        self.id = session
        self._services = services
        self._memory = memory
        self._open_work = open_work
        self._continuation = Continuation(services, session, open_work, continues)

    # -- events

    async def append(
        self,
        type: str,
        data: Any = None,
        *,
        actor: str | None = None,
        cause: int | str | None = None,
        **options: Unpack[AppendOptions],
    ) -> Event:
        """Store an event at the end of the session; durable on return."""
        return await self._append(Draft(type, data, actor, cause), options)

    async def _append(self, draft: Draft, options: AppendOptions) -> Event:
        check_options("append", options, AppendOptions)
        if self._continuation.is_pending:
            await self._continuation.begin()
        return (await self._journal.append(self.id, [draft], **options))[0]

    async def append_all(self, drafts: Sequence[Draft], **options: Unpack[AppendOptions]) -> list[Event]:
        """Store several events in a row, all of them or none."""
        check_options("append_all", options, AppendOptions)
        await self._continuation.begin()
        return await self._journal.append(self.id, drafts, **options)

    async def pages(self, **options: Unpack[ReadOptions]) -> AsyncGenerator[list[Event], None]:
        """Events in pages, verified and decoded; the end is where the session ends now."""
        check_options("pages", options, ReadOptions)
        reading, types = self._journal.reader, check_types(options.get("types"))
        limit, stop = options.get("limit"), options.get("stop")
        if stop is not None:
            check_whole("stop", stop, 0)
        left = check_whole("limit", limit, 0) if limit is not None else None
        size = min(500, left) if left and types is None else 500
        read = reading.pages_backwards if options.get("backwards") else reading.pages
        start = check_whole("start", options.get("start", 1), 1)
        async with aclosing(read(self.id, start, stop, types, size)) as pages:
            async for page in pages:
                if left is not None and len(page) >= left:
                    if left:
                        yield page[:left]
                    return
                if page:
                    yield page
                left = None if left is None else left - len(page)

    async def events(self, **options: Unpack[ReadOptions]) -> AsyncGenerator[Event, None]:
        """Events one by one, verified and decoded; `JournalDamaged` at the first bad one."""
        async with aclosing(self.pages(**options)) as pages:
            async for page in pages:
                for event in page:
                    yield event

    async def follow(
        self, after: int = 0, *, types: str | Iterable[str] | None = None, timeout: float | None = None
    ) -> AsyncGenerator[Event, None]:
        """Events after a position as they come, from any process: no gap, no repeat. Ends after
        `timeout` seconds without one, if given."""
        wanted, after = check_types(types), check_whole("after", after, 0)
        async with aclosing(self._journal.follow(self.id, after, wanted, timeout)) as pages:
            async for page in pages:
                for event in page:
                    yield event

    async def head(self) -> Head:
        """The last position (0: nothing yet) and its hash."""
        return await self._journal.reader.head(self.id)

    async def status(self) -> SessionStatus:
        """Whether to start, attach, wait, recover or leave this session alone."""
        return await self._journal.standing(self.id)

    def at(self, position: int) -> AsyncSessionView:
        """The session as it was at a position, to be read."""
        return AsyncSessionView(self, check_whole("position", position, 0))

    async def fork(self, session: str, *, at: int | None = None) -> AsyncSession:
        """A new session that shares this one's events up to `at`; this one is untouched."""
        await self._journal.fork(self.id, session, at)
        return AsyncSession(self._journal, session, self._services, self._memory, self._open_work)

    async def verify(self) -> Verification:
        """Walk this session's chain. Damage is reported, not raised."""
        return await self._journal.verify(self.id)

    async def lease(self, owner: str, *, seconds: float = 30.0) -> AsyncLease | None:
        """Own this session for a while; None if another owner holds it. Write with the lease's fence."""
        row = await self._journal.acquire(self.id, owner, seconds)
        return None if row is None else AsyncLease(self._journal, self.id, row)

    # -- what is said and done

    async def say(
        self,
        role: str,
        content: str | list[dict[str, Any]],
        *,
        name: str | None = None,
        priority: str | None = None,
        **options: Unpack[AppendOptions],
    ) -> Event:
        """A message of the role "user", "assistant" or "system": text, or content blocks."""
        return await self._append(conversation.message(role, content, name, priority), options)

    async def tool_call(
        self,
        tool: str,
        arguments: Any = None,
        *,
        id: str | None = None,
        priority: str | None = None,
        **options: Unpack[AppendOptions],
    ) -> Event:
        """The model asks for a tool. The id of the call is `event.data["id"]`: a new one, if none is given."""
        call_id = id if id is not None else f"call_{self._journal.ids.random(9).hex()}"
        given = {} if arguments is None else arguments
        return await self._append(conversation.call(tool, given, call_id, priority), options)

    async def tool_result(
        self, call: Event | str, output: Any, *, error: bool = False, **options: Unpack[AppendOptions]
    ) -> Event:
        """What the tool returned for a call, named by its event or its id."""
        if not isinstance(call, Event):
            return await self._append(conversation.result(call, output, error), options)
        if call.type != conversation.EntryKind.CALL:
            raise InvalidInput(
                f"event {call.position} is not a tool call", hint="give what session.tool_call(…) returned"
            )
        draft = conversation.result(call.data["id"], output, error)
        return await self._append(conversation.with_cause(draft, call.position), options)

    async def decide(
        self, decision: str, *, reason: str, priority: str | None = None, **options: Unpack[AppendOptions]
    ) -> Event:
        """Something is decided, for a reason."""
        return await self._append(conversation.decision(decision, reason, priority), options)

    async def log_error(
        self, error: str | BaseException, *, priority: str | None = None, **options: Unpack[AppendOptions]
    ) -> Event:
        """Something went wrong."""
        what = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else error
        return await self._append(conversation.error(what, priority), options)

    async def log_fix(self, error: Event | int, how: str, **options: Unpack[AppendOptions]) -> Event:
        """An error, named by its event or position, was put right."""
        position = error.position if isinstance(error, Event) else error
        return await self._append(conversation.resolution(position, how), options)

    async def observe(
        self, what: str, *, source: str = "environment", priority: str | None = None, **options: Unpack[AppendOptions]
    ) -> Event:
        """Something was noticed without being asked: by a sensor, a screen, a watcher in the background."""
        return await self._append(conversation.observation(what, source, priority), options)

    async def episodes(self, *, limit: int = 20, kinds: str | Iterable[str] | None = None) -> list[Episode]:
        """The last things that happened, in time order: what was said, done, decided and observed, and errors with
        their fixes; in this session, then in those that it continues. See `EpisodePolicy` for how long they count."""
        check_whole("limit", limit, 1)
        return await self._services.episodes.last(self.id, limit, check_types(kinds))

    # -- the context window

    async def context(self, *, at: int | None = None, system: str = "", **changes: Unpack[WindowChanges]) -> Context:
        """What the model sees next: within the budget, older entries summarised, long outputs masked. With `at`, what
        it saw when the session was there. Anything of `Window` can be changed for this call."""
        if at is None:
            await self._continuation.begin()
        else:
            check_whole("at", at, 0)
        window = self._services.window.but(dict(changes))
        return await self._services.context_builder.build(self.id, window, at=at, system=system)

    async def fetch(self, reference: str | int, *, start: int = 0, length: int | None = None) -> Any:
        """The whole of what the context shows only as a digest, by its reference; a piece of it, if asked for."""
        return await fetch(self._journal, self.id, reference, start=start, length=length)

    @staticmethod
    def fetch_tool(form: str = "anthropic") -> dict[str, Any]:
        """`fetch` as a tool for the model, in Anthropic's or OpenAI's form."""
        return fetch_tool(form)

    # -- checkpoints

    async def checkpoint(self, values: Any, **parts: Unpack[CheckpointParts]) -> Checkpoint:
        """Store the agent's state as of now; durable on return. Parts that did not change are not written again."""
        await self._continuation.begin()
        check_options("checkpoint", parts, CheckpointParts)
        given: dict[str, Any] = {"after": ANYTHING, **parts}
        return await self._services.states.save(self.id, values, **given)

    async def state(self, *, id: str | None = None, at: int | dt.datetime | None = None) -> Checkpoint | None:
        """The newest checkpoint, at or before a position or a time, or the one with an id; None if there is none. If
        the newest is damaged, the one before it, which says so."""
        return await self._services.states.load(self.id, id=id, at=at)

    def checkpoints(self, *, limit: int | None = None) -> AsyncGenerator[Checkpoint, None]:
        """The checkpoints without their values, newest first."""
        return self._services.states.list(self.id, limit)

    async def pin(self, id: str, pinned: bool = True) -> None:
        """Keep a checkpoint whatever the policy says, or no longer."""
        await self._services.states.pin(self.id, id, pinned)

    async def expire(self, *, keep_last: int = 1, older_than: float | None = None) -> int:
        """Remove old checkpoints: all but the newest ones, the pinned ones, and those younger than so many seconds. An
        unfinished run keeps them all. Returns how many were removed."""
        return await self._services.states.expire(self.id, keep_last=keep_last, older_than=older_than)

    # -- progress and hand-off

    @property
    def progress(self) -> AsyncProgress:
        """The goal, what is done, what is in the way, what is next."""
        return AsyncProgress(self._services.progress, self.id, self._continuation)

    async def handoff(self) -> Handoff:
        """What a session that continues this one must know."""
        return await self._continuation.handoff()

    # -- memory

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
        service = self._memory.load()
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
        service = self._memory.load()
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
        recent: int = 10,
        explain: bool = False,
    ) -> Recollection:
        """What this session knows that fits a query, within a budget of tokens: what is under way, what happened
        lately, what is known (to everyone, of the subject, to this session) and how things are done. For a system
        prompt or the first message. With `explain` the text says what each score is made of, as `hit.parts` does."""
        return await self._recall.recall(
            query, budget=budget, subject=subject, limit=limit, recent=recent, explain=explain
        )

    @property
    def _recall(self) -> SessionRecall:
        return SessionRecall(self._journal, self.id, self._services, self._memory)

    def memory_tools(self, form: str = "anthropic") -> list[dict[str, Any]]:
        """The tools with which a model recalls, remembers, forgets and fetches what was masked, as a provider
        ("anthropic" or "openai") wants them. `use_memory_tool` carries a call out."""
        from ...memory.tools import memory_tools

        return [*memory_tools(form), fetch_tool(form)]

    async def use_memory_tool(self, name: str, arguments: dict[str, Any], *, subject: str | None = None) -> str:
        """What a call of a memory tool returns, as text for the model. What cannot be done is said in the text, so that
        the model can do better."""
        return await self._recall.use_tool(name, arguments, subject)

    async def turn(
        self,
        user_input: str,
        *,
        model: Responder,
        system: str = "",
        subject: str | None = None,
        id: str | None = None,
        max_tokens: int = 1024,
        files: InstructionSource | None = None,
    ) -> TurnResult:
        """One turn: what is known is recalled, the context is built, the model is asked, both sides are saved, and what
        is worth it is proposed. With an `id` a turn that was cut off can be taken again: what was said is not said
        twice, and a model that has answered is not asked again. Raises `TurnConflict` if it had another input. The
        prompt begins with the persona, then comes the AGENTS.md of the `files`, `system`, and what is recalled."""
        cycle = TurnCycle(self._journal, self.id, self._services, self._memory, self._continuation)
        return await cycle.take(user_input, model, system, subject, id, max_tokens, files)
