"""A turn of a conversation, whole: load, query, build, call, save, memorise."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol

from ...context.window.conversation import message
from ...errors import InvalidInput, TurnTaken
from ...journal.events import Draft, Event, check_name
from ...journal.journal import Journal
from ...journal.owners import NOBODY
from ...models import load_model
from ...ports import Model
from ...runtime import is_driven, run_blocking

if TYPE_CHECKING:
    from ...context.window.context import Context
    from ...memory.extraction.admission import Verdict
    from ...memory.knowledge.proposals import Proposal
    from ...memory.recollection import Recollection

Answering = Callable[["Context"], str | Awaitable[str]] | Model | str
"""Who answers: a function that is given the context, a model, or the name of one."""


class Instructing(Protocol):
    """Where an AGENTS.md lies: what `dm.files(…)` gives."""

    def instructions(self) -> str:
        """What it says; empty if there is none."""
        ...


_RECALL_SHARE = 0.25
_PREFIX = "turn:"


@dataclass(frozen=True, slots=True)
class TurnStep:
    """A step of a turn, in the order in which they were taken."""

    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class TurnResult:
    """What a turn gave. `considered` holds what the gate decided about each sentence, with its reason; `proposed` is
    what came of it: nothing is saved about people before they accept it."""

    reply: str
    context: Context
    recalled: Recollection
    considered: tuple[Verdict, ...]
    proposed: tuple[Proposal, ...]
    trace: tuple[TurnStep, ...]


class AsyncTurns:
    """The part of a session that takes turns."""

    id: str
    _journal: Journal
    recall: Any
    say: Any
    context: Any
    _services: Any
    _memory: Any

    async def turn(
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
        is worth it is proposed. With an `id` a turn that was cut off can be taken again: what was said is not said
        twice, and a model that has answered is not asked again. Raises `TurnTaken` if it had another input. The prompt
        begins with the persona, then comes what the AGENTS.md of the `files` says, `system`, and what is recalled."""
        from ...memory.extraction.admission import assess_sentences

        if not isinstance(user_input, str) or not user_input.strip():
            raise InvalidInput("there is no input to answer", hint="give text")
        key = None if id is None else _PREFIX + check_name("turn", id)
        trace = []
        head = (await self._journal.reader.head(self.id)).position
        trace.append(TurnStep("load", f"{head} events"))
        share = max(50, int(self._services.window.budget * _RECALL_SHARE))
        recalled = await self.recall(user_input, budget=share, subject=subject, recent=0)
        found = len(recalled.knowledge) + len(recalled.procedures)
        trace.append(TurnStep("query", f"{found} memories, {recalled.tokens} tokens"))
        asked: Event = await self.say("user", user_input, subject=subject, **_keyed(key, "user"))
        if id is not None and asked.position <= head and self._differs(asked, user_input):
            raise TurnTaken(self.id, id)
        told = "" if files is None else await run_blocking(files.instructions)
        parts = (await self._memory.persona(), told, system, recalled.text)
        context = await self.context(system="\n\n".join(part for part in parts if part))
        trace.append(TurnStep("build", f"{context.tokens} of {context.budget} tokens"))
        before = await self._answered(key)
        reply = await _reply(model, context, max_tokens) if before is None else before
        if not isinstance(reply, str) or not reply.strip():
            raise InvalidInput("the model gave no text", hint="let the function return what the model said")
        trace.append(TurnStep("call", "answered before" if before is not None else f"{len(reply)} characters"))
        said: Event = await self.say("assistant", reply, subject=subject, **_keyed(key, "assistant"))
        trace.append(TurnStep("save", f"#{asked.position} and #{said.position}"))
        considered = tuple(assess_sentences(user_input))
        proposed = await self._propose_all(considered, asked, subject, key)
        trace.append(TurnStep("memorise", f"{len(proposed)} of {len(considered)} sentences proposed"))
        if self._memory.writes_back:
            self._memory.service.write_back.wake()
        return TurnResult(reply, context, recalled, considered, tuple(proposed), tuple(trace))

    def _differs(self, asked: Event, user_input: str) -> bool:
        """Whether a turn that was taken before had another input, as the journal has it: without credentials."""
        said = self._journal.prepare(message("user", user_input, None, None), NOBODY)
        return not asked.erased and bool(asked.data["content"] != said.data["content"])

    async def _answered(self, key: str | None) -> str | None:
        """What the model said in this turn before it was cut off."""
        if key is None:
            return None
        position = await self._journal.store.find(self._journal.workspace, self.id, f"{key}:assistant")
        if position is None:
            return None
        (event,) = await self._journal.bookmarks.events(self.id, [position])
        return None if event.erased else str(event.data["content"])

    async def _propose_all(
        self, considered: tuple[Verdict, ...], asked: Event, subject: str | None, key: str | None
    ) -> list[Proposal]:
        """Propose what passed the gate, and journal what the gate said. Doing it again proposes nothing twice."""
        proposed: list[Proposal] = []
        for one in considered:
            if one.keep:
                proposal = await self._memory.proposals.make(
                    one.content,
                    kind=one.kind,
                    subject=subject,
                    evidence=one.sentence,
                    reason=one.reason,
                    confidence=one.confidence,
                    source=f"{self.id}#{asked.position}",
                    actor="duramen",
                    **({} if one.key is None else {"key": one.key}),
                )
                if proposal is not None and proposal.state == "pending":
                    proposed.append(proposal)
        decided = [{"said": one.sentence, "keep": one.keep, "reason": one.reason} for one in considered]
        note = Draft("memory.considered", {"decided": decided}, "duramen", asked.position)
        await self._journal.append(self.id, [note], subject=subject, **_keyed(key, "memorised"))
        return proposed


def _keyed(key: str | None, part: str) -> dict[str, Any]:
    return {} if key is None else {"key": f"{key}:{part}"}


async def _reply(model: Answering, context: Context, max_tokens: int) -> str:
    if isinstance(model, str):
        model = load_model(model)
    reply = getattr(model, "reply", None)
    if reply is not None:
        form = context.anthropic() if getattr(model, "protocol", "openai") == "anthropic" else context.openai()
        return str(await run_blocking(lambda: reply(form, max_tokens=max_tokens)))
    if hasattr(model, "complete"):
        said = context.plain()
        head = "\n\n".join(one["content"] for one in said if one["role"] == "system")  # summaries and hand-off, too
        transcript = "\n\n".join(f"{one['role']}: {one['content']}" for one in said if one["role"] != "system")
        ask = model.complete
        return str(await run_blocking(lambda: ask(transcript, system=head, max_tokens=max_tokens)))
    if not callable(model):
        raise InvalidInput(f"{model!r} is no model", hint="give a function, a model, or a name such as openai:NAME@URL")
    answer: Any = model(context)
    if isawaitable(answer):
        if is_driven():
            getattr(answer, "close", lambda: None)()
            raise InvalidInput("an async model needs the async face", hint="use duramen.aopen")
        answer = await answer
    return answer  # type: ignore[no-any-return]
