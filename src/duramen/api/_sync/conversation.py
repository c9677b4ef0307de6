"""The conversation side of a session, blocking: the same code, stepped by hand. See `duramen.aio_talk`."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Unpack

from ...context.window.fetch import fetch_tool
from ...journal.events import Event
from ...runtime import drive, drive_iterator
from .._async.conversation import AppendOptions, AsyncProgress, AsyncTalk, CheckpointParts, WindowChanges

if TYPE_CHECKING:
    from ...checkpoints.state import Checkpoint
    from ...context.episodes import Episode
    from ...context.handoff import Handoff
    from ...context.progress.progress_log import Synced
    from ...context.progress.record import Progress
    from ...context.window.context import Context


class Talk:
    """The part of a session that remembers a conversation."""

    _core: AsyncTalk

    def say(
        self,
        role: str,
        content: str | list[dict[str, Any]],
        *,
        name: str | None = None,
        priority: str | None = None,
        **options: Unpack[AppendOptions],
    ) -> Event:
        """Somebody ("user", "assistant" or "system") says something: text, or content blocks."""
        return drive(self._core.say(role, content, name=name, priority=priority, **options))

    def tool_call(
        self,
        tool: str,
        arguments: Any = None,
        *,
        id: str | None = None,
        priority: str | None = None,
        **options: Unpack[AppendOptions],
    ) -> Event:
        """The model asks for a tool. The id of the call is `event.data["id"]`: a new one, if none is given."""
        return drive(self._core.tool_call(tool, arguments, id=id, priority=priority, **options))

    def tool_result(
        self, call: Event | str, output: Any, *, error: bool = False, **options: Unpack[AppendOptions]
    ) -> Event:
        """What the tool gave back for a call, named by its event or its id."""
        return drive(self._core.tool_result(call, output, error=error, **options))

    def decide(
        self, decision: str, *, reason: str, priority: str | None = None, **options: Unpack[AppendOptions]
    ) -> Event:
        """Something is decided, for a reason."""
        return drive(self._core.decide(decision, reason=reason, priority=priority, **options))

    def log_error(
        self, error: str | BaseException, *, priority: str | None = None, **options: Unpack[AppendOptions]
    ) -> Event:
        """Something went wrong."""
        return drive(self._core.log_error(error, priority=priority, **options))

    def observe(
        self, what: str, *, source: str = "environment", priority: str | None = None, **options: Unpack[AppendOptions]
    ) -> Event:
        """Something was noticed without being asked: by a sensor, a screen, a watcher in the background."""
        return drive(self._core.observe(what, source=source, priority=priority, **options))

    def episodes(self, *, limit: int = 20, kinds: str | Iterable[str] | None = None) -> list[Episode]:
        """The last things that happened, in time order: what was said, done, decided and observed, and errors with
        their fixes."""
        return drive(self._core.episodes(limit=limit, kinds=kinds))

    def log_fix(self, error: Event | int, how: str, **options: Unpack[AppendOptions]) -> Event:
        """An error, named by its event or position, was put right."""
        return drive(self._core.log_fix(error, how, **options))

    def context(self, *, at: int | None = None, system: str = "", **changes: Unpack[WindowChanges]) -> Context:
        """What the model sees next, within the budget; with `at`, what it saw when the session stood there."""
        return drive(self._core.context(at=at, system=system, **changes))

    def fetch(self, reference: str | int, *, start: int = 0, length: int | None = None) -> Any:
        """The whole of what the context shows only as a digest, by its reference; a piece of it, if asked for."""
        return drive(self._core.fetch(reference, start=start, length=length))

    @staticmethod
    def fetch_tool(form: str = "anthropic") -> dict[str, Any]:
        """`fetch` as a tool for the model, in Anthropic's or OpenAI's form."""
        return fetch_tool(form)

    def checkpoint(self, values: Any, **parts: Unpack[CheckpointParts]) -> Checkpoint:
        """Store the agent's state as of now; durable on return. Parts that did not change are not written again."""
        return drive(self._core.checkpoint(values, **parts))

    def state(self, *, id: str | None = None, at: int | dt.datetime | None = None) -> Checkpoint | None:
        """The newest checkpoint, at or before a position or a time, or the one with an id; None if there is none."""
        return drive(self._core.state(id=id, at=at))

    def checkpoints(self, *, limit: int | None = None) -> Iterator[Checkpoint]:
        """The checkpoints without their values, newest first."""
        return drive_iterator(self._core.checkpoints(limit=limit))

    def pin(self, id: str, pinned: bool = True) -> None:
        """Keep a checkpoint whatever the policy says, or no longer."""
        drive(self._core.pin(id, pinned))

    def expire(self, *, keep_last: int = 1, older_than: float | None = None) -> int:
        """Remove old checkpoints: all but the newest, the pinned, and those younger than so many seconds."""
        return drive(self._core.expire(keep_last=keep_last, older_than=older_than))

    @property
    def progress(self) -> SessionProgress:
        """The goal, what is done, what is in the way, what is next."""
        return SessionProgress(self._core.progress)

    def handoff(self) -> Handoff:
        """What a session that goes on from this one must know."""
        return drive(self._core.handoff())


class SessionProgress:
    """How far a session has come. Each change is journaled; its fields are read anew each time."""

    def __init__(self, core: AsyncProgress) -> None:
        self._core = core

    def read(self, *, at: int | None = None) -> Progress:
        """The record, at the session's end or at a position."""
        return drive(self._core.read(at=at))

    @property
    def goal(self) -> str:
        """What is to be reached."""
        return self.read().goal

    @property
    def completed(self) -> tuple[str, ...]:
        """The steps that are done, in their order."""
        return self.read().completed

    @property
    def blocker(self) -> str | None:
        """What is in the way."""
        return self.read().blocker

    @property
    def next_action(self) -> str | None:
        """What is next."""
        return self.read().next_action

    @property
    def context(self) -> str:
        """What else is worth knowing."""
        return self.read().context

    @property
    def finished(self) -> bool:
        """Whether the goal is reached."""
        return self.read().finished

    def begin(self, goal: str, *, next_action: str, context: str = "") -> Progress:
        """Set out for a goal. Saying the same goal again changes nothing."""
        return drive(self._core.begin(goal, next_action=next_action, context=context))

    def complete(self, step: str, *, next_action: str | None = None) -> Progress:
        """A step is done. While the goal is not reached, something must be next."""
        return drive(self._core.complete(step, next_action=next_action))

    def plan(self, next_action: str) -> Progress:
        """Do this next."""
        return drive(self._core.plan(next_action))

    def block(self, why: str) -> Progress:
        """Something is in the way."""
        return drive(self._core.block(why))

    def unblock(self) -> Progress:
        """Nothing is in the way any more."""
        return drive(self._core.unblock())

    def describe(self, context: str) -> Progress:
        """Put this in place of the context."""
        return drive(self._core.describe(context))

    def finish(self, step: str | None = None) -> Progress:
        """The goal is reached, with this as its last step if one is given."""
        return drive(self._core.finish(step))

    def reopen(self, next_action: str) -> Progress:
        """Go on with a goal that was finished."""
        return drive(self._core.reopen(next_action))

    def keep_in(self, path: str | os.PathLike[str], *, git: bool = False) -> SessionProgress:
        """The same progress, kept in a file such as PROGRESS.md from here on, with a git commit for each change if that
        is wanted."""
        return SessionProgress(drive(self._core.keep_in(path, git=git)))

    def sync(self, *, message: str | None = None) -> Synced:
        """Read what people changed in the file, and write it anew."""
        return drive(self._core.sync(message=message))
