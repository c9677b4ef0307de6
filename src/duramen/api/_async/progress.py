"""The progress of a session."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ...context.continuation import Continuation
from ...errors import InvalidInput
from ...journal.events import check_whole
from ..sync_hints import sync_class

if TYPE_CHECKING:
    from ...context.progress.progress_log import ProgressLog, Synced
    from ...context.progress.record import Progress


@sync_class("SessionProgress", fields_of="read")
class AsyncProgress:
    """How far a session has come. Each change is journaled; kept in a file, it is written there too, and what people
    change in the file is journaled as theirs."""

    def __init__(
        self, log: ProgressLog, session: str, continuation: Continuation, path: str | None = None, git: bool = False
    ) -> None:
        self._log = log
        self._session = session
        self._continuation = continuation
        self._path = path
        self._git = git

    async def read(self, *, at: int | None = None) -> Progress:
        """The record, at the session's end or at a position."""
        if at is not None:
            check_whole("at", at, 0)
        await self._continuation.begin()
        return await self._log.read(self._session, at=at)

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
        """Continue with a goal that was finished."""
        return await self._change(lambda now: now.reopen(next_action), f"Reopened: {next_action}")

    async def keep_in(self, path: str | os.PathLike[str], *, git: bool = False) -> AsyncProgress:
        """The same progress, kept in a file such as PROGRESS.md from here on, with a git commit for each change if that
        is wanted. The file is made if there is none; what people changed in it is read first."""
        hint = "give the path of a file, such as PROGRESS.md"
        try:
            where = os.path.abspath(os.fspath(path))
        except TypeError:
            raise InvalidInput(f"{path!r} is not a path", hint=hint) from None
        if not isinstance(where, str) or "\0" in where:
            raise InvalidInput(f"{path!r} is not a path", hint=hint)
        kept = AsyncProgress(self._log, self._session, self._continuation, where, git)
        await kept.sync()
        return kept

    async def sync(self, *, message: str | None = None) -> Synced:
        """Read what people changed in the file, and write the file again."""
        if self._path is None:
            raise InvalidInput(
                "this progress is not kept in a file", hint="call keep_in(path) first, and use what it returns"
            )
        await self._continuation.begin()
        return await self._log.sync(self._session, self._path, git=self._git, message=message)

    async def _change(self, change: Callable[[Progress], Progress], message: str) -> Progress:
        await self._continuation.begin()
        if self._path is not None:  # what people changed comes first; git commits after the journal has the change
            await self._log.sync(self._session, self._path, git=False, message=None)
        changed = await self._log.change(self._session, change)
        if self._path is not None:
            await self.sync(message=self._clean(message).splitlines()[0])
        return changed

    def _clean(self, text: Any) -> Any:
        """A text as it will be stored; anything else is refused later, where it is used."""
        return self._log.clean(text) if isinstance(text, str) else text
