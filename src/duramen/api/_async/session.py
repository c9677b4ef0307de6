"""One session: its events, conversation, context, checkpoints, progress and memory."""

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
from ...errors import InvalidInput, message_of, shown
from ...journal.events import Draft, Event, SessionStatus, check_text, check_types, check_whole
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
    """One stream of events. `dm.session` returns it."""

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
        """Append an event to the session and return it; durable on return.

        Args:
            type: the type of the event, such as "note".
            data: plain data, dataclasses, pydantic models or registered classes.
            actor: who did it.
            cause: the event that led to it: a position, or "session#position".
            **options: see `AppendOptions`.

        Raises:
            InvalidInput: the data cannot be stored, or an option is unknown.
            PositionConflict: the session does not end at the position `expected`.
            LeaseLost: `fence` is not the number of the current lease.
        """
        return await self._append(Draft(type, data, actor, cause), options)

    async def _append(self, draft: Draft, options: AppendOptions) -> Event:
        check_options("append", options, AppendOptions)
        if self._continuation.is_pending:
            await self._continuation.begin()
        return (await self._journal.append(self.id, [draft], **options))[0]

    async def append_all(self, drafts: Sequence[Draft], **options: Unpack[AppendOptions]) -> list[Event]:
        """Append several events in one transaction, in order, and return them. See `AppendOptions`."""
        check_options("append_all", options, AppendOptions)
        if isinstance(drafts, (str, bytes)) or not isinstance(drafts, Sequence):
            hint = "give a list with one duramen.Draft(type, data) per event"
            raise InvalidInput(f"`drafts` cannot be {shown(drafts)}", hint=hint)
        await self._continuation.begin()
        return await self._journal.append(self.id, drafts, **options)

    async def pages(self, **options: Unpack[ReadOptions]) -> AsyncGenerator[list[Event], None]:
        """Iterate over events in pages: lists of up to 500 events. Takes the options of `events`."""
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
        """Iterate over events, up to the current end of the session. See `ReadOptions`.

        Each event is checked against the hash chain. Raises `JournalDamaged` at the first event that does not match.
        """
        async with aclosing(self.pages(**options)) as pages:
            async for page in pages:
                for event in page:
                    yield event

    async def follow(
        self, after: int = 0, *, types: str | Iterable[str] | None = None, timeout: float | None = None
    ) -> AsyncGenerator[Event, None]:
        """Iterate over events after a position as any process appends them. No event is skipped or repeated.

        Args:
            after: the position to begin after. Default: 0, the beginning.
            types: one event type, or several. Default: all.
            timeout: stop after this many seconds without a new event. Default: never.
        """
        wanted, after = check_types(types), check_whole("after", after, 0)
        async with aclosing(self._journal.follow(self.id, after, wanted, timeout)) as pages:
            async for page in pages:
                for event in page:
                    yield event

    async def head(self) -> Head:
        """Return the last position (0 if the session has no events) and its hash."""
        return await self._journal.reader.head(self.id)

    async def status(self) -> SessionStatus:
        """Return the status of the session: whether it has a run, and whether that run is live, waits, has crashed or
        has ended."""
        return await self._journal.standing(self.id)

    def at(self, position: int) -> AsyncSessionView:
        """Return a readonly view of the session as it was at a position."""
        return AsyncSessionView(self, check_whole("position", position, 0))

    async def fork(self, session: str, *, at: int | None = None) -> AsyncSession:
        """Create a session that shares the events of this one up to a position, and return it. This session does not
        change.

        Args:
            session: the id of the new session.
            at: the last shared position. Default: the end.

        Raises:
            SessionExists: a session with this id exists.
        """
        await self._journal.fork(self.id, session, at)
        return AsyncSession(self._journal, session, self._services, self._memory, self._open_work)

    async def verify(self) -> Verification:
        """Check every event of this session against the hash chain. Damage is returned in `problems`, not raised."""
        return await self._journal.verify(self.id)

    async def lease(self, owner: str, *, seconds: float = 30.0) -> AsyncLease | None:
        """Take the lease on this session for some seconds. Returns None if another owner holds it.

        Pass the `fence` of the lease to every write. A write with an outdated fence raises `LeaseLost`.
        """
        row = await self._journal.acquire(self.id, owner, seconds)
        return None if row is None else AsyncLease(self._journal, self.id, row)

    # -- the conversation

    async def say(
        self,
        role: str,
        content: str | list[dict[str, Any]],
        *,
        name: str | None = None,
        priority: str | None = None,
        **options: Unpack[AppendOptions],
    ) -> Event:
        """Append a message of the conversation.

        Args:
            role: "user", "assistant" or "system".
            content: text, or a list of content blocks.
            name: the name of the speaker.
            priority: "low", "normal", "high" or "always". Entries with a low priority leave a full context first.
            **options: see `AppendOptions`.
        """
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
        """Append a tool call of the model. The id of the call is `event.data["id"]`.

        Args:
            tool: the name of the tool.
            arguments: its arguments.
            id: the id of the call. Default: a new random id.
            priority: see `say`.
            **options: see `AppendOptions`.
        """
        call_id = id if id is not None else f"call_{self._journal.ids.random(9).hex()}"
        given = {} if arguments is None else arguments
        return await self._append(conversation.call(tool, given, call_id, priority), options)

    async def tool_result(
        self, call: Event | str, output: Any, *, error: bool = False, **options: Unpack[AppendOptions]
    ) -> Event:
        """Append the output of a tool for a call.

        Args:
            call: the event that `tool_call` returned, or the id of the call.
            output: what the tool returned.
            error: whether the tool failed.
            **options: see `AppendOptions`.
        """
        if not isinstance(call, Event):
            return await self._append(conversation.result(call, output, error), options)
        if call.type != conversation.EntryKind.CALL:
            raise InvalidInput(
                f"event {call.position} is not a tool call", hint="give the event that session.tool_call(…) returned"
            )
        draft = conversation.result(call.data["id"], output, error)
        return await self._append(conversation.with_cause(draft, call.position), options)

    async def decide(
        self, decision: str, *, reason: str, priority: str | None = None, **options: Unpack[AppendOptions]
    ) -> Event:
        """Append a decision and its reason. For `priority`, see `say`."""
        return await self._append(conversation.decision(decision, reason, priority), options)

    async def log_error(
        self, error: str | BaseException, *, priority: str | None = None, **options: Unpack[AppendOptions]
    ) -> Event:
        """Append an error: text or an exception. For `priority`, see `say`."""
        what = f"{type(error).__name__}: {message_of(error)}" if isinstance(error, BaseException) else error
        return await self._append(conversation.error(what, priority), options)

    async def log_fix(self, error: Event | int, how: str, **options: Unpack[AppendOptions]) -> Event:
        """Append how an error was fixed. `error` is the event that `log_error` returned, or its position."""
        position = error.position if isinstance(error, Event) else error
        return await self._append(conversation.resolution(position, how), options)

    async def observe(
        self, what: str, *, source: str = "environment", priority: str | None = None, **options: Unpack[AppendOptions]
    ) -> Event:
        """Append an observation: something noticed without a question, for instance by a sensor. For `priority`, see
        `say`."""
        return await self._append(conversation.observation(what, source, priority), options)

    async def episodes(self, *, limit: int = 20, kinds: str | Iterable[str] | None = None) -> list[Episode]:
        """Return the most recent episodes in time order, of this session and of the sessions that it continues.

        An episode is a message, tool call, decision, observation, or error with its fix. `EpisodePolicy` says how
        long episodes count.

        Args:
            limit: the maximum number of episodes.
            kinds: one kind, or several. Default: all.
        """
        check_whole("limit", limit, 1)
        return await self._services.episodes.last(self.id, limit, check_types(kinds))

    # -- the context window

    async def context(
        self,
        *,
        at: int | None = None,
        system: str = "",
        recalled: Recollection | str = "",
        **changes: Unpack[WindowChanges],
    ) -> Context:
        """Build the context for the next call of a model, within a token budget.

        Older entries are summarised and long outputs are masked. The same journal and settings give the same bytes.

        Args:
            at: build the context as it was at this position. Default: now.
            system: the system prompt.
            recalled: what `recall` returned. It becomes the last user message if there is room for it.
            **changes: settings of `Window` that this call overrides.
        """
        if at is None:
            await self._continuation.begin()
        else:
            check_whole("at", at, 0)
        check_text("system", system)
        window = self._services.window.but(dict(changes))
        text = getattr(recalled, "text", recalled)
        if not isinstance(text, str):
            raise InvalidInput(
                f"context() got {shown(recalled)} as `recalled`", hint="pass what `session.recall(…)` returned"
            )
        return await self._services.context_builder.build(self.id, window, at=at, system=system, recalled=text)

    async def fetch(self, reference: str | int, *, start: int = 0, length: int | None = None) -> Any:
        """Return the full content of an entry that the context shows as a digest.

        Args:
            reference: the reference in the digest, such as "#17".
            start: the first character to return.
            length: the maximum number of characters. Default: all.
        """
        return await fetch(self._journal, self.id, reference, start=start, length=length)

    @staticmethod
    def fetch_tool(form: str = "anthropic") -> dict[str, Any]:
        """Return the definition of `fetch` as a tool for a model. `form` is "anthropic" or "openai"."""
        return fetch_tool(form)

    # -- checkpoints

    async def checkpoint(self, values: Any, **parts: Unpack[CheckpointParts]) -> Checkpoint:
        """Store the state of the agent and return the checkpoint; durable on return.

        Only what changed since the last checkpoint is written. For the other arguments, see `CheckpointParts`.

        Raises:
            InvalidInput: the values cannot be stored, or an argument is not valid.
            CheckpointConflict: `after` is not the newest checkpoint.
            LeaseLost: `fence` is not the number of the current lease.
        """
        await self._continuation.begin()
        check_options("checkpoint", parts, CheckpointParts)
        given: dict[str, Any] = {"after": ANYTHING, **parts}
        return await self._services.states.save(self.id, values, **given)

    async def state(self, *, id: str | None = None, at: int | dt.datetime | None = None) -> Checkpoint | None:
        """Return the newest checkpoint; None if there is none.

        If the newest checkpoint is damaged, the one before it is returned, with the damage in `skipped`.

        Args:
            id: return the checkpoint with this id. Raises `CheckpointDamaged` if it is damaged.
            at: return the newest checkpoint at or before this position or time.
        """
        return await self._services.states.load(self.id, id=id, at=at)

    def checkpoints(self, *, limit: int | None = None) -> AsyncGenerator[Checkpoint, None]:
        """Iterate over the checkpoints, newest first, without their values. `state(id=…)` loads one."""
        return self._services.states.list(self.id, limit)

    async def pin(self, id: str, pinned: bool = True) -> None:
        """Protect a checkpoint from `expire`. With `pinned=False`, stop protecting it."""
        await self._services.states.pin(self.id, id, pinned)

    async def expire(self, *, keep_last: int = 1, older_than: float | None = None) -> int:
        """Remove old checkpoints, and return how many were removed.

        Pinned checkpoints stay, and so does what a fork continues from. While a run of the session is not finished,
        nothing is removed.

        Args:
            keep_last: how many of the newest checkpoints stay.
            older_than: only remove checkpoints older than this many seconds.
        """
        return await self._services.states.expire(self.id, keep_last=keep_last, older_than=older_than)

    # -- progress and hand-off

    @property
    def progress(self) -> AsyncProgress:
        """The progress of the session: goal, completed steps, blocker and next action."""
        return AsyncProgress(self._services.progress, self.id, self._continuation)

    async def handoff(self) -> Handoff:
        """Return the hand-off to a session that continues this one: progress, open questions, decisions and steps in
        doubt."""
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
        """Store a memory as an event of this session. Takes the arguments of `dm.memory.remember`."""
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
        """Store several memories as events of this session. Takes the arguments of `dm.memory.remember_all`."""
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
        """Search everything this session may know, and return it as text for a prompt and as data.

        The text holds current work, recent episodes, memories (of the workspace, the subject and this session) and
        procedures.

        Args:
            query: what to search for.
            budget: the maximum number of tokens of the text.
            subject: also use the memories about this person.
            limit: the maximum number of memories.
            recent: the number of recent episodes.
            explain: show in the text how each score was computed, as `hit.parts` does.
        """
        return await self._recall.recall(
            query, budget=budget, subject=subject, limit=limit, recent=recent, explain=explain
        )

    @property
    def _recall(self) -> SessionRecall:
        return SessionRecall(self._journal, self.id, self._services, self._memory)

    def memory_tools(self, form: str = "anthropic") -> list[dict[str, Any]]:
        """Return the tools with which a model can recall, remember, forget and fetch. `use_memory_tool` executes a
        call.

        `form` is "anthropic" or "openai".
        """
        from ...memory.tools import memory_tools

        return [*memory_tools(form), fetch_tool(form)]

    async def use_memory_tool(self, name: str, arguments: dict[str, Any], *, subject: str | None = None) -> str:
        """Execute a model's call of a memory tool, and return text for the model. Errors are returned as text, not
        raised."""
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
        """Take one turn of the conversation: recall, build the context, ask the model, and save both messages.

        Facts about the user are proposed, not saved. The system prompt consists of the persona, the AGENTS.md of
        `files`, and `system`. What was recalled is the last user message.

        Args:
            user_input: the message of the user.
            model: a function that takes the context, a model, or the name of a model.
            system: the system prompt.
            subject: the person who speaks. `erase` removes the turn.
            id: idempotency key of the turn. After a crash, the same id continues the turn: no message is stored
                twice, and a model that has answered is not asked again.
            max_tokens: the maximum length of the answer.
            files: where AGENTS.md is read from: what `dm.files` returns.

        Raises:
            ModelFailed: the model gave no answer.
            TurnConflict: the turn `id` had another input.
        """
        cycle = TurnCycle(self._journal, self.id, self._services, self._memory, self._continuation)
        return await cycle.take(user_input, model, system, subject, id, max_tokens, files)
