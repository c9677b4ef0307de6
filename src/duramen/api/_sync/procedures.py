"""How things are done in a workspace, blocking: the same code, stepped by hand. See `duramen.aio_procedures`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...runtime import drive
from .._async.procedures import AsyncProcedures

if TYPE_CHECKING:
    from ...memory.knowledge.procedures import Procedure


class Procedures:
    """Named steps in their order, every version of them, and how often each worked. Each call sees what is everybody's,
    and what belongs to the `subject` that it names, which comes first."""

    def __init__(self, core: AsyncProcedures) -> None:
        self._core = core

    def save(
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
        return drive(
            self._core.save(
                name,
                steps,
                title=title,
                subject=subject,
                standing=standing,
                importance=importance,
                actor=actor,
                cause=cause,
            )
        )

    def get(self, name: str, version: int | None = None, *, subject: str | None = None) -> Procedure | None:
        """The version to follow, or another one; None if there is none of exactly that name."""
        return drive(self._core.get(name, version, subject=subject))

    def versions(self, name: str, *, subject: str | None = None) -> list[Procedure]:
        """Every version of a procedure with its own outcomes, oldest first."""
        return drive(self._core.versions(name, subject=subject))

    def list(self, *, subject: str | None = None, everyone: bool = False) -> list[Procedure]:
        """The procedures to follow, in the order in which they were saved."""
        return drive(self._core.list(subject=subject, everyone=everyone))

    def worked(
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
        return drive(self._core.worked(name, version=version, subject=subject, actor=actor, cause=cause, key=key))

    def failed(
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
        return drive(
            self._core.failed(name, reason=reason, version=version, subject=subject, actor=actor, cause=cause, key=key)
        )

    def forget(self, name: str, *, subject: str | None = None, actor: str | None = None) -> int:
        """Remove a procedure with all its versions and outcomes. Returns how many versions there were. Raises
        `UnknownProcedure`."""
        return drive(self._core.forget(name, subject=subject, actor=actor))

    def distill(
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
        return drive(self._core.distill(run, name=name, title=title, standing=standing, actor=actor))
