"""One turn of a conversation: recall, build the context, call the model, save both messages, propose memories."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Protocol

from ..errors import InvalidInput, TurnConflict, shown
from ..journal.events import Draft, Event, check_name, check_text, check_whole
from ..journal.journal import Journal
from ..journal.owners import NOBODY
from ..memory.loader import MemoryLoader
from ..models import load_model
from ..ports import Model
from ..runtime import is_driven, run_blocking
from .continuation import Continuation
from .services import Services
from .session_recall import SessionRecall
from .window.conversation import message

if TYPE_CHECKING:
    from ..memory.extraction.admission import Verdict
    from ..memory.knowledge.proposals import Proposal
    from ..memory.recollection import Recollection
    from .window.context import Context

Responder = Callable[["Context"], str | Awaitable[str]] | Model | str
"""What produces the reply: a function that takes the context, a model, or the name of a model."""


class InstructionSource(Protocol):
    """A folder that may contain an AGENTS.md, such as the one that `dm.files(…)` returns."""

    def instructions(self) -> str:
        """The text of AGENTS.md. Empty if there is none."""
        ...


_RECALL_SHARE = 0.25
_PREFIX = "turn:"


@dataclass(frozen=True, slots=True)
class TurnStep:
    """One step of a turn, for its trace."""

    name: str
    detail: str


@dataclass(frozen=True, slots=True)
class TurnResult:
    """The result of a turn.

    `considered` holds the admission decision about each sentence of the input, with its reason. `proposed` holds the
    new memory proposals; none is saved before the user accepts it. `trace` lists the steps in order.
    """

    reply: str
    context: Context
    recalled: Recollection
    considered: tuple[Verdict, ...]
    proposed: tuple[Proposal, ...]
    trace: tuple[TurnStep, ...]


class TurnCycle:
    """Takes turns in one session."""

    def __init__(
        self, journal: Journal, session: str, services: Services, memory: MemoryLoader, continuation: Continuation
    ) -> None:
        self._journal = journal
        self._session = session
        self._services = services
        self._memory = memory
        self._continuation = continuation

    async def take(
        self,
        user_input: str,
        model: Responder,
        system: str,
        subject: str | None,
        id: str | None,
        max_tokens: int,
        files: InstructionSource | None,
    ) -> TurnResult:
        """Take one turn. With an `id`, a repeat continues after what was journaled: an answered turn does not call the
        model again. Raises `TurnConflict` if the `id` was used with another input."""
        from ..memory.extraction.admission import assess_sentences

        if not isinstance(user_input, str) or not user_input.strip():
            raise InvalidInput("the input is empty or not text", hint="give the text of the user's message")
        model = _checked(model)
        check_text("system", system)
        check_whole("max_tokens", max_tokens, 1)
        if files is not None and not callable(getattr(files, "instructions", None)):
            raise InvalidInput(f"`files` cannot be {shown(files)}", hint="give what dm.files(folder) returns")
        key = None if id is None else _PREFIX + check_name("turn", id)
        trace = []
        head = (await self._journal.reader.head(self._session)).position
        trace.append(TurnStep("load", f"{head} events"))
        share = max(100, int(self._services.window.budget * _RECALL_SHARE))
        recall = SessionRecall(self._journal, self._session, self._services, self._memory).recall
        recalled = await recall(user_input, budget=share, subject=subject, limit=20, recent=0)
        found = len(recalled.knowledge) + len(recalled.procedures)
        trace.append(TurnStep("query", f"{found} memories, {recalled.tokens} tokens"))
        await self._continuation.begin()
        asked = await self._say("user", user_input, subject, key)
        if id is not None and asked.position <= head and self._differs(asked, user_input):
            raise TurnConflict(self._session, id)
        context = await self._context(system, recalled, files)
        trace.append(TurnStep("build", f"{context.tokens} of {context.budget} tokens"))
        before = await self._answered(key)
        reply = await _reply(model, context, max_tokens) if before is None else before
        if not isinstance(reply, str) or not reply.strip():
            raise InvalidInput("the model returned no text", hint="return the text of the reply from the function")
        trace.append(TurnStep("call", "answered before" if before is not None else f"{len(reply)} characters"))
        said = await self._say("assistant", reply, subject, key)
        trace.append(TurnStep("save", f"#{asked.position} and #{said.position}"))
        considered = tuple(assess_sentences(user_input))
        proposed = await self._propose_all(considered, asked, subject, key)
        trace.append(TurnStep("memorise", f"{len(proposed)} of {len(considered)} sentences proposed"))
        if self._memory.settings.write_back:
            self._memory.load().write_back.wake()
        return TurnResult(reply, context, recalled, considered, tuple(proposed), tuple(trace))

    async def _say(self, role: str, text: str, subject: str | None, key: str | None) -> Event:
        options = {"subject": subject, **_keyed(key, role)}
        return (await self._journal.append(self._session, [message(role, text, None, None)], **options))[0]

    async def _context(self, system: str, recalled: Recollection, files: InstructionSource | None) -> Context:
        """The context. Its system text is the persona, AGENTS.md and the system prompt."""
        instructions = "" if files is None else await run_blocking(files.instructions)
        parts = (await self._memory.load().persona.text(), instructions, system)
        prompt = "\n\n".join(part for part in parts if part)
        build = self._services.context_builder.build
        return await build(self._session, self._services.window, at=None, system=prompt, recalled=recalled.text)

    def _differs(self, asked: Event, user_input: str) -> bool:
        """Whether an earlier turn had another input. Compares redacted texts, because the journal stores those."""
        said = self._journal.prepare(message("user", user_input, None, None), NOBODY)
        return not asked.erased and bool(asked.data["content"] != said.data["content"])

    async def _answered(self, key: str | None) -> str | None:
        """The model's reply, if this turn was interrupted after the reply was journaled."""
        if key is None:
            return None
        stored = self._journal.stored_name(f"{key}:assistant")
        position = await self._journal.store.find(self._journal.workspace, self._session, stored)
        if position is None:
            return None
        (event,) = await self._journal.bookmarks.events(self._session, [position])
        return None if event.erased else str(event.data["content"])

    async def _propose_all(
        self, considered: tuple[Verdict, ...], asked: Event, subject: str | None, key: str | None
    ) -> list[Proposal]:
        """Propose the admitted sentences and journal all admission decisions. Idempotent."""
        from ..memory.knowledge.proposals import ProposalDraft

        proposals = self._memory.load().proposals
        source = f"{self._session}#{asked.position}"
        proposed: list[Proposal] = []
        for one in considered:
            if one.keep:
                details = {"confidence": one.confidence, **({} if one.key is None else {"key": one.key})}
                wanted = ProposalDraft(one.content, one.kind, details, one.sentence, one.reason, source)
                proposal = await proposals.make(wanted, subject, "duramen", False)
                if proposal is not None and proposal.state == "pending":
                    proposed.append(proposal)
        decided = [{"said": one.sentence, "keep": one.keep, "reason": one.reason} for one in considered]
        note = Draft("memory.considered", {"decided": decided}, "duramen", asked.position)
        await self._journal.append(self._session, [note], subject=subject, **_keyed(key, "memorised"))
        return proposed


def _keyed(key: str | None, part: str) -> dict[str, Any]:
    return {} if key is None else {"key": f"{key}:{part}"}


def _checked(model: Responder) -> Any:
    """The model of a turn. Raises `InvalidInput` before the message of the user is stored."""
    if isinstance(model, str):
        return load_model(model)
    if not callable(model) and not hasattr(model, "reply") and not hasattr(model, "complete"):
        raise InvalidInput(
            f"{shown(model)} is not a model", hint="give a function, a model, or a name such as openai:NAME@URL"
        )
    return model


async def _reply(model: Any, context: Context, max_tokens: int) -> str:
    reply = getattr(model, "reply", None)
    if reply is not None:
        form = context.anthropic() if getattr(model, "protocol", "openai") == "anthropic" else context.openai()
        return str(await run_blocking(lambda: reply(form, max_tokens=max_tokens)))
    if hasattr(model, "complete"):
        said = context.plain()
        head = "\n\n".join(one["content"] for one in said if one["role"] == "system")
        transcript = "\n\n".join(f"{one['role']}: {one['content']}" for one in said if one["role"] != "system")
        ask = model.complete
        return str(await run_blocking(lambda: ask(transcript, system=head, max_tokens=max_tokens)))
    answer: Any = model(context)
    if isawaitable(answer):
        if is_driven():
            getattr(answer, "close", lambda: None)()
            raise InvalidInput("an async model needs the async API", hint="use duramen.aopen")
        answer = await answer
    return answer  # type: ignore[no-any-return]
