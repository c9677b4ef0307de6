"""Procedures: how tasks are done."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from ...errors import InvalidInput, shown
from ...journal.events import check_name

if TYPE_CHECKING:
    from ...execution.engine.run_outline import RunOutline
    from ...memory.knowledge.procedures import Procedure
    from ...memory.memory_service import MemoryService


class AsyncProcedures:
    """Named steps in order, with every version and how often each version worked.

    `dm.memory.procedures` holds it. Each call sees the procedures of the workspace, and those of the `subject` if one
    is given. Those of the subject come first.
    """

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
        """Save a procedure and return it. If anything differs from the current version, this creates a new version.

        Args:
            name: the name of the procedure.
            steps: the steps, in order.
            title: a short heading. Default: that of the current version.
            subject: the person that it belongs to. Default: the workspace.
            standing: include it in every recollection. Default: as in the current version.
            importance: from 0 to 1. Default: as in the current version.
            actor: who saves it.
            cause: the event that led to it: a position, or "session#position".
        """
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
            raise InvalidInput(f"`standing` cannot be {shown(standing)}", hint="give True or False")
        service = self._service()
        edit = ProcedureEdit(checked_steps(steps), title, standing, importance, note)
        saved = await service.procedures.save(name, edit, subject, actor, cause)
        service.index_worker.wake()
        return saved

    async def get(self, name: str, version: int | None = None, *, subject: str | None = None) -> Procedure | None:
        """Return the current version of a procedure, or the given version; None if there is none."""
        return await self._service().procedures.get(name, version, subject)

    async def versions(self, name: str, *, subject: str | None = None) -> list[Procedure]:
        """Return every version of a procedure with its outcomes, oldest first."""
        return await self._service().procedures.versions(name, subject)

    async def list(self, *, subject: str | None = None, everyone: bool = False) -> list[Procedure]:
        """Return the current version of each procedure, in the order in which they were saved.

        Args:
            subject: also the procedures of this person.
            everyone: the procedures of all persons.
        """
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
        """Record that a procedure worked, and return it. Raises `UnknownProcedure`.

        Args:
            name: the name of the procedure.
            version: the version that was used. Default: the current one.
            subject: the person that it belongs to.
            actor: who reports it.
            cause: the event that led to it: a position, or "session#position".
            key: idempotency key, such as the id of a run. The same key counts once.
        """
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
        """Record that a procedure did not work, and why. It ranks lower from now on.

        Takes the arguments of `worked`, and the `reason` as text.
        """
        return await self._service().procedures.log_outcome(
            name, False, version=version, subject=subject, reason=reason, actor=actor, cause=cause, key=key
        )

    async def forget(self, name: str, *, subject: str | None = None, actor: str | None = None) -> int:
        """Remove a procedure with all its versions and outcomes. Returns the number of versions. Raises
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
        """Save the steps of a successful run as a procedure, and return it. The run counts as its first success.

        A run about a person gives a procedure of that person.

        Args:
            run: the id of the run.
            name: the name of the procedure. Default: the name of the task.
            title: a short heading. Default: taken from the task.
            standing: include it in every recollection.
            actor: who saves it.

        Raises:
            RunError: the run has not succeeded.
        """
        learned = await self._learn(run)
        chosen = learned.task if name is None else check_name("name of a procedure", name)
        note = f"Learned from run {learned.run}: {learned.call}"
        saved = await self._save(
            chosen, learned.steps, title or learned.title, learned.subject, standing, None, actor, learned.ended, note
        )
        key = f"run:{learned.run}"
        return await self.worked(
            chosen, version=saved.version, subject=learned.subject, actor=actor, cause=learned.ended, key=key
        )
