"""The progress of a session."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from ...context.continuation import Continuation
from ...errors import InvalidInput
from ...journal.events import check_path, check_whole
from ..sync_hints import sync_class

if TYPE_CHECKING:
    from ...context.progress.progress_log import ProgressLog, Synced
    from ...context.progress.record import Progress
    from ...files.folder.git import GitMode


@sync_class("SessionProgress", fields_of="read")
class AsyncProgress:
    """The progress of a session: goal, completed steps, blocker and next action. As `session.progress`.

    Each change is journaled. With `keep_in` it is also written to a file, and edits of the file by people are
    journaled.
    """

    def __init__(
        self, log: ProgressLog, session: str, continuation: Continuation, path: str | None = None, git: GitMode = False
    ) -> None:
        self._log = log
        self._session = session
        self._continuation = continuation
        self._path = path
        self._git = git

    async def read(self, *, at: int | None = None) -> Progress:
        """Return the progress now, or at a position of the session."""
        if at is not None:
            check_whole("at", at, 0)
        await self._continuation.begin()
        return await self._log.read(self._session, at=at)

    async def begin(self, goal: str, *, next_action: str, context: str = "") -> Progress:
        """Set a goal and the next action. Setting the same goal again changes nothing.

        Raises `InvalidInput` if there is another goal that is not finished.
        """
        clean = self._clean
        return await self._change(
            lambda now: now.begin(clean(goal), clean(next_action), clean(context)), _message("Begin", goal)
        )

    async def complete(self, step: str, *, next_action: str | None = None) -> Progress:
        """Record that a step is done. Completing it again changes nothing.

        A goal that is not finished needs a next action: give one if this step was the planned one.
        """
        clean = self._clean
        following = None if next_action is None else clean(next_action)
        return await self._change(lambda now: now.complete(clean(step), following), _message("Complete", step))

    async def plan(self, next_action: str) -> Progress:
        """Set the next action."""
        return await self._change(lambda now: now.plan(next_action), _message("Next", next_action))

    async def block(self, why: str) -> Progress:
        """Record what blocks the work."""
        return await self._change(lambda now: now.block(why), _message("Blocked", why))

    async def unblock(self) -> Progress:
        """Remove the blocker."""
        return await self._change(lambda now: now.unblock(), "Unblocked")

    async def reword(self, goal: str) -> Progress:
        """Say the goal in other words. Completed steps stay."""
        goal = self._clean(goal)  # compared with the stored goal by `begin`
        return await self._change(lambda now: now.reword(goal), _message("Goal", goal))

    async def describe(self, context: str) -> Progress:
        """Replace the context: free text for the next person or agent."""
        return await self._change(lambda now: now.describe(context), "Context")

    async def finish(self, step: str | None = None) -> Progress:
        """Record that the goal is reached, and its last step if one is given."""
        last = None if step is None else self._clean(step)
        return await self._change(lambda now: now.finish(last), "Finished")

    async def reopen(self, next_action: str) -> Progress:
        """Continue with a goal that was finished. Completed steps stay completed."""
        return await self._change(lambda now: now.reopen(next_action), _message("Reopened", next_action))

    async def keep_in(self, path: str | os.PathLike[str], *, git: bool | Literal["trusted"] = False) -> AsyncProgress:
        """Return the same progress, written to a file such as PROGRESS.md from now on.

        The file is created if it does not exist. Edits by people are read first.

        Args:
            path: the file.
            git: commit each change to git. No hook, filter or signing program of the repository runs, unless you give
                "trusted".
        """
        from ...files.folder.git import checked_mode

        where = os.path.abspath(check_path(path, "give the path of a file, such as PROGRESS.md"))
        kept = AsyncProgress(self._log, self._session, self._continuation, where, checked_mode(git))
        await kept.sync()
        return kept

    async def sync(self, *, message: str | None = None) -> Synced:
        """Journal what people changed in the file, and write the file again. Returns what was done.

        Raises `InvalidInput` if the progress is not written to a file: call `keep_in` first.
        """
        if self._path is None:
            raise InvalidInput(
                "this progress is not written to a file", hint="call keep_in(path) first, and use what it returns"
            )
        await self._continuation.begin()
        return await self._log.sync(self._session, self._path, git=self._git, message=message)

    async def _change(self, change: Callable[[Progress], Progress], message: str) -> Progress:
        await self._continuation.begin()
        if self._path is not None:  # journal the edits of people first; git commits after the journal has the change
            await self._log.sync(self._session, self._path, git=False, message=None)
        changed = await self._log.change(self._session, change)
        if self._path is not None:
            await self.sync(message=self._clean(message).splitlines()[0])
        return changed

    def _clean(self, text: Any) -> Any:
        """A text as it will be stored. Other values are returned unchanged and refused later."""
        return self._log.clean(text) if isinstance(text, str) else text


def _message(what: str, value: object) -> str:
    """The message of a commit. A value that is not text is refused later."""
    return f"{what}: {value}" if isinstance(value, str) else what
