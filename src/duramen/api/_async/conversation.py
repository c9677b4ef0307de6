"""The conversation side of a session, asynchronously: what is said and done, the context window, checkpoints,
progress, hand-off. The implementation behind both faces."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from ...checkpoints.checkpoints import ANYTHING
from ...context.services import Services
from ...context.window import conversation as talk
from ...context.window.fetch import fetch, fetch_tool
from ...errors import InvalidInput
from ...journal.events import Draft, Event, check_types
from ...journal.journal import Journal
from ...ports import Model, TokenCounter
from ...runtime import Lock

if TYPE_CHECKING:
    from ...checkpoints.state import Checkpoint
    from ...context.episodes import Episode
    from ...context.handoff import Handoff
    from ...context.progress.progress_log import Synced
    from ...context.progress.record import Progress
    from ...context.window.context import Context

Leftovers = Callable[[str], Awaitable[tuple[Sequence[str], Sequence[str]]]]
"""The open questions of a session's runs, and their steps in doubt."""


_PATIENCE = 30.0
"""Seconds to wait for another call of the same handle that goes on from another session."""


class AppendOptions(TypedDict, total=False):
    """What an append takes beside the event.

    key         idempotency key: a repeat in this session returns the first answer
    expected    the position the writer believes to be the last; `PositionConflict` if it is not
    subject     the person whom the data is about, whose erasure removes it
    fence       the number of the writer's lease; `LeaseLost` if it is not the current one
    """

    key: str | None
    expected: int | None
    subject: str | None
    fence: int | None


class WindowChanges(TypedDict, total=False):
    """The settings of a context window that one call changes. See `Window`."""

    budget: int
    threshold: float
    max_items: int
    keep_last: int
    mask_above: int | None
    mask_to: int
    summaries: float
    counter: TokenCounter | str | None
    model: Model | str | None


class CheckpointParts(TypedDict, total=False):
    """What a checkpoint holds beside its values.

    next        what comes next
    pending     tasks that are under way
    config      what the state was made with
    writes      what the last step wrote
    step        the number of the step
    kind        why it is made: "manual", "subtask", "irreversible" or "periodic"
    pin         keep it whatever the policy says
    after       the id of the checkpoint that must be the newest (None: there must be none)
    subject     the person whom the state is about, whose erasure removes it
    fence       the number of the writer's lease
    """

    next: Any
    pending: Any
    config: Any
    writes: Any
    step: int | None
    kind: str
    pin: bool
    after: str | None
    subject: str | None
    fence: int | None


class AsyncTalk:
    """The part of a session that remembers a conversation."""

    id: str
    _journal: Journal
    _services: Services
    _leftovers: Leftovers
    _continues: str | None
    _beginning: Lock

    async def _begin(self) -> None:
        """Go on from another session, if that was asked for and did not happen yet."""
        if self._continues is None:
            return
        mine = await self._beginning.acquire(_PATIENCE)
        try:
            if self._continues is not None:
                await self._go_on_from(self._continues)
                self._continues = None
        finally:
            if mine:
                self._beginning.release()

    async def _go_on_from(self, old: str) -> None:
        begun = await self._services.handoffs.begun(self.id)
        if begun is not None and begun.session != old:
            from ...context.handoff import goes_on_from

            raise goes_on_from(self.id, begun.session)
        if begun is None:
            handoff = await self._services.handoffs.of(old, *await self._leftovers(old))
            await self._services.handoffs.begin(self.id, handoff)

    async def _append(self, draft: Draft, options: AppendOptions) -> Event:
        await self._begin()
        return await self._journal.append_one(self.id, draft, dict(options))

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
        """Somebody ("user", "assistant" or "system") says something: text, or content blocks."""
        return await self._append(talk.message(role, content, name, priority), options)

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
        return await self._append(talk.call(tool, {} if arguments is None else arguments, call_id, priority), options)

    async def tool_result(
        self, call: Event | str, output: Any, *, error: bool = False, **options: Unpack[AppendOptions]
    ) -> Event:
        """What the tool gave back for a call, named by its event or its id."""
        if isinstance(call, Event) and call.type != talk.EntryKind.CALL:
            raise InvalidInput(f"event {call.position} is no tool call", hint="give what session.tool_call(…) returned")
        call_id = call.data["id"] if isinstance(call, Event) else call
        draft = talk.result(call_id, output, error)
        if isinstance(call, Event):
            draft = talk.with_cause(draft, call.position)
        return await self._append(draft, options)

    async def decide(
        self, decision: str, *, reason: str, priority: str | None = None, **options: Unpack[AppendOptions]
    ) -> Event:
        """Something is decided, for a reason."""
        return await self._append(talk.decision(decision, reason, priority), options)

    async def log_error(
        self, error: str | BaseException, *, priority: str | None = None, **options: Unpack[AppendOptions]
    ) -> Event:
        """Something went wrong."""
        what = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else error
        return await self._append(talk.error(what, priority), options)

    async def log_fix(self, error: Event | int, how: str, **options: Unpack[AppendOptions]) -> Event:
        """An error, named by its event or position, was put right."""
        position = error.position if isinstance(error, Event) else error
        return await self._append(talk.resolution(position, how), options)

    async def observe(
        self, what: str, *, source: str = "environment", priority: str | None = None, **options: Unpack[AppendOptions]
    ) -> Event:
        """Something was noticed without being asked: by a sensor, a screen, a watcher in the background."""
        return await self._append(talk.observation(what, source, priority), options)

    async def episodes(self, *, limit: int = 20, kinds: str | Iterable[str] | None = None) -> list[Episode]:
        """The last things that happened, in time order: what was said, done, decided and observed, and errors with
        their fixes; in this session, then in those that it goes on from. See `EpisodePolicy` for how long they
        count."""
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
            raise InvalidInput(f"{limit!r} cannot be `limit`", hint="give a whole number from 1")
        return await self._services.episodes.last(self.id, limit, check_types(kinds))

    # -- the context window

    async def context(self, *, at: int | None = None, system: str = "", **changes: Unpack[WindowChanges]) -> Context:
        """What the model sees next: within the budget, older entries summarised, long outputs masked. With `at`, what
        it saw when the session stood there. Anything of `Window` can be changed for this call."""
        if at is not None and (not isinstance(at, int) or isinstance(at, bool) or at < 0):
            raise InvalidInput(f"{at!r} cannot be `at`", hint="give a position from 0")
        if at is None:
            await self._begin()
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
        await self._begin()
        known = CheckpointParts.__annotations__.keys()
        unknown = sorted(parts.keys() - known)
        if unknown:
            raise InvalidInput(f"{unknown[0]!r} is no part of a checkpoint", hint=f"known are: {', '.join(known)}")
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
        unfinished run keeps them all. Returns how many went."""
        return await self._services.states.expire(self.id, keep_last=keep_last, older_than=older_than)

    # -- progress and hand-off

    @property
    def progress(self) -> AsyncProgress:
        """The goal, what is done, what is in the way, what is next."""
        return AsyncProgress(self)

    async def handoff(self) -> Handoff:
        """What a session that goes on from this one must know."""
        await self._begin()
        return await self._services.handoffs.of(self.id, *await self._leftovers(self.id))


class AsyncProgress:
    """How far a session has come. Each change is journaled; kept in a file, it is written there too, and what people
    change in the file is journaled as theirs."""

    def __init__(self, session: AsyncTalk, path: str | None = None, git: bool = False) -> None:
        self._session = session
        self._path = path
        self._git = git

    async def read(self, *, at: int | None = None) -> Progress:
        """The record, at the session's end or at a position."""
        if at is not None and (not isinstance(at, int) or isinstance(at, bool) or at < 0):
            raise InvalidInput(f"{at!r} cannot be `at`", hint="give a position from 0")
        await self._session._begin()
        return await self._session._services.progress.read(self._session.id, at=at)

    async def begin(self, goal: str, *, next_action: str, context: str = "") -> Progress:
        """Set out for a goal. Saying the same goal again changes nothing."""
        clean = self._clean
        return await self._change(
            lambda now: now.begin(clean(goal), clean(next_action), clean(context)), f"Begin: {goal}"
        )

    async def complete(self, step: str, *, next_action: str | None = None) -> Progress:
        """A step is done. While the goal is not reached, something must be next."""
        clean = self._clean
        following = None if next_action is None else clean(next_action)
        return await self._change(lambda now: now.complete(clean(step), following), f"Complete: {step}")

    async def plan(self, next_action: str) -> Progress:
        """Do this next."""
        return await self._change(lambda now: now.plan(next_action), f"Next: {next_action}")

    async def block(self, why: str) -> Progress:
        """Something is in the way."""
        return await self._change(lambda now: now.block(why), f"Blocked: {why}")

    async def unblock(self) -> Progress:
        """Nothing is in the way any more."""
        return await self._change(lambda now: now.unblock(), "Unblocked")

    async def describe(self, context: str) -> Progress:
        """Put this in place of the context."""
        return await self._change(lambda now: now.describe(context), "Context")

    async def finish(self, step: str | None = None) -> Progress:
        """The goal is reached, with this as its last step if one is given."""
        last = None if step is None else self._clean(step)
        return await self._change(lambda now: now.finish(last), "Finished")

    async def reopen(self, next_action: str) -> Progress:
        """Go on with a goal that was finished."""
        return await self._change(lambda now: now.reopen(next_action), f"Reopened: {next_action}")

    async def keep_in(self, path: str | os.PathLike[str], *, git: bool = False) -> AsyncProgress:
        """The same progress, kept in a file such as PROGRESS.md from here on, with a git commit for each change if that
        is wanted. The file is made if there is none; what people changed in it is read first."""
        try:
            where = os.path.abspath(os.fspath(path))
        except TypeError:
            raise InvalidInput(f"{path!r} is no path", hint="give the path of a file, such as PROGRESS.md") from None
        if not isinstance(where, str) or "\0" in where:
            raise InvalidInput(f"{path!r} is no path", hint="give the path of a file, such as PROGRESS.md")
        kept = AsyncProgress(self._session, where, git)
        await kept.sync()
        return kept

    async def sync(self, *, message: str | None = None) -> Synced:
        """Read what people changed in the file, and write it anew."""
        if self._path is None:
            raise InvalidInput(
                "this progress is not kept in a file", hint="call keep_in(path) first, and use what it gives"
            )
        await self._session._begin()
        log = self._session._services.progress
        return await log.sync(self._session.id, self._path, git=self._git, message=message)

    async def _change(self, change: Callable[[Progress], Progress], message: str) -> Progress:
        await self._session._begin()
        log = self._session._services.progress
        if self._path is not None:  # what people changed comes first; git has its say once the journal knows
            await log.sync(self._session.id, self._path, git=False, message=None)
        changed = await self._session._services.progress.change(self._session.id, change)
        if self._path is not None:
            await self.sync(message=self._clean(message).splitlines()[0])
        return changed

    def _clean(self, text: Any) -> Any:
        """A text as it will be stored; what is no text is left to be refused where it is used."""
        return self._session._services.progress.clean(text) if isinstance(text, str) else text
