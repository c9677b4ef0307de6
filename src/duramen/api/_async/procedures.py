"""How things are done in a workspace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from ...errors import InvalidInput

if TYPE_CHECKING:
    from ...execution.engine.run_outline import RunOutline
    from ...memory.knowledge.procedures import Procedure
    from ...memory.memory_service import MemoryService


class AsyncProcedures:
    """Named steps in their order, every version of them, and how often each worked. Each call sees what is
    everyone's, and what belongs to the `subject` that it names, which comes first."""

    def __init__(self, service: Callable[[], MemoryService], learn: Callable[[str], Awaitable[RunOutline]]) -> None:
        self._service = service
        self._learn = learn

    async def save(
        self,
        name: str,
        steps: Sequence[str],
        *,
        title: str | None = None,
        subject: str | None = None,
        standing: bool | None = None,
        importance: float | None = None,
        actor: str | None = None,
        cause: int | str | None = None,
    ) -> Procedure:
        """Save how something is done: a new version, if anything of it is new. Title, standing and importance stay as
        they were unless they are given. A `standing` procedure is in every recollection, whatever it is asked for."""
        return await self._save(name, steps, title, subject, standing, importance, actor, cause, None)

    async def _save(
        self,
        name: str,
        steps: Sequence[str],
        title: str | None,
        subject: str | None,
        standing: bool | None,
        importance: float | None,
        actor: str | None,
        cause: int | str | None,
        note: str | None,
    ) -> Procedure:
        from ...memory.knowledge.procedures import ProcedureEdit, checked_steps

        if standing is not None and not isinstance(standing, bool):
            raise InvalidInput(f"{standing!r} cannot be `standing`", hint="say True or False")
        service = self._service()
        edit = ProcedureEdit(checked_steps(steps), title, standing, importance, note)
        saved = await service.procedures.save(name, edit, subject, actor, cause)
        service.index_worker.wake()
        return saved

    async def get(self, name: str, version: int | None = None, *, subject: str | None = None) -> Procedure | None:
        """The version to follow, or another one; None if there is none of exactly that name."""
        return await self._service().procedures.get(name, version, subject)

    async def versions(self, name: str, *, subject: str | None = None) -> list[Procedure]:
        """Every version of a procedure with its own outcomes, oldest first."""
        return await self._service().procedures.versions(name, subject)

    async def list(self, *, subject: str | None = None, everyone: bool = False) -> list[Procedure]:
        """The procedures to follow, in the order in which they were saved."""
        service = self._service()
        return await service.procedures.listed(None if everyone else await service.catalog.audiences(subject, None))

    async def worked(
        self,
        name: str,
        *,
        version: int | None = None,
        subject: str | None = None,
        actor: str | None = None,
        cause: int | str | None = None,
        key: str | None = None,
    ) -> Procedure:
        """Note that following a procedure led to success; with an idempotency `key` (such as the id of the run) once,
        however often it is said. Raises `UnknownProcedure`."""
        return await self._service().procedures.log_outcome(
            name, True, version=version, subject=subject, reason=None, actor=actor, cause=cause, key=key
        )

    async def failed(
        self,
        name: str,
        *,
        reason: str | None = None,
        version: int | None = None,
        subject: str | None = None,
        actor: str | None = None,
        cause: int | str | None = None,
        key: str | None = None,
    ) -> Procedure:
        """Note that following a procedure did not lead there, and why. It ranks lower from now on. See `worked`."""
        return await self._service().procedures.log_outcome(
            name, False, version=version, subject=subject, reason=reason, actor=actor, cause=cause, key=key
        )

    async def forget(self, name: str, *, subject: str | None = None, actor: str | None = None) -> int:
        """Remove a procedure with all its versions and outcomes. Returns how many versions there were. Raises
        `UnknownProcedure`."""
        return await self._service().procedures.forget(name, subject, actor)

    async def distill(
        self,
        run: str,
        *,
        name: str | None = None,
        title: str | None = None,
        standing: bool | None = None,
        actor: str | None = None,
    ) -> Procedure:
        """Make a procedure of a run that succeeded: its steps in their order, under the name of its task if no other is
        given. That run counts as its first success. One that was about a person stays theirs. Raises `RunError` for a
        run that did not succeed."""
        learned = await self._learn(run)
        chosen = learned.task if name is None else name
        note = f"Learned from run {learned.run}: {learned.call}"
        saved = await self._save(
            chosen, learned.steps, title or learned.title, learned.subject, standing, None, actor, learned.ended, note
        )
        key = f"run:{learned.run}"
        return await self.worked(
            chosen, version=saved.version, subject=learned.subject, actor=actor, cause=learned.ended, key=key
        )
