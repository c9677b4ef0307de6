"""What a session remembers and recalls, blocking: the same code, stepped by hand. See `duramen.aio_recall`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Unpack

from ...memory.catalog.memory_event import MemoryDetails
from ...runtime import drive
from .._async.recall import AsyncRecall
from .._async.turn import Answering, AsyncTurns, Instructing, TurnResult

if TYPE_CHECKING:
    from ...memory.catalog.memory_event import MemoryInput
    from ...memory.catalog.records import Memory
    from ...memory.recollection import Recollection


class Recall:
    """The part of a session that remembers beyond itself."""

    _core: Any

    def remember(
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
        core: AsyncRecall = self._core
        return drive(
            core.remember(content, kind=kind, subject=subject, actor=actor, cause=cause, fresh=fresh, **details)
        )

    def remember_all(
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
        core: AsyncRecall = self._core
        every = core.remember_all(
            contents, kind=kind, subject=subject, actor=actor, cause=cause, fresh=fresh, **details
        )
        return drive(every)

    def recall(
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
        lately, what is known and how things are done. With `explain` the text says what each score is made of."""
        core: AsyncRecall = self._core
        return drive(core.recall(query, budget=budget, subject=subject, limit=limit, recent=recent, explain=explain))

    def turn(
        self,
        user_input: str,
        *,
        model: Answering,
        system: str = "",
        subject: str | None = None,
        id: str | None = None,
        max_tokens: int = 1024,
        files: Instructing | None = None,
    ) -> TurnResult:
        """One turn: what is known is recalled, the context is built, the model is asked, both sides are saved, and what
        is worth it is proposed. With an `id` a turn that was cut off can be taken again. The prompt begins with the
        persona, then comes what the AGENTS.md of the `files` says, `system`, and what is recalled."""
        core: AsyncTurns = self._core
        return drive(
            core.turn(
                user_input, model=model, system=system, subject=subject, id=id, max_tokens=max_tokens, files=files
            )
        )

    def memory_tools(self, form: str = "anthropic") -> list[dict[str, Any]]:
        """The tools with which a model recalls, remembers, forgets and fetches what was masked."""
        core: AsyncRecall = self._core
        return core.memory_tools(form)

    def use_memory_tool(self, name: str, arguments: dict[str, Any], *, subject: str | None = None) -> str:
        """What a call of a memory tool gives back, as text for the model."""
        core: AsyncRecall = self._core
        return drive(core.use_memory_tool(name, arguments, subject=subject))
