"""Hand-off: what a new session must know to go on from an old one, and that it went on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import InvalidInput
from ..journal.events import Draft, Event
from ..journal.journal import Journal
from ..ports import Beside, Landmark, TokenCounter
from .gathering import Gathering
from .progress import Progress
from .progresslog import ProgressLog
from .talk import Kind, is_well_formed
from .trimming import cut, plain

HANDOFF = "handoff"
_DECISIONS = 8
_LOOKED_AT = 400
"""Entries of the old conversation among which decisions are looked for."""


@dataclass(frozen=True, slots=True)
class Handoff:
    """What a session leaves to the next: how far it came, which questions are open, what was decided lately and why,
    and which steps may or may not have happened. `position` is where the session stood."""

    session: str
    position: int
    progress: Progress
    questions: tuple[str, ...]
    decisions: tuple[str, ...]
    in_doubt: tuple[str, ...]
    decided: tuple[int, ...] = ()
    """Where the decisions lie: they are not copied, so that erasing a person reaches them."""

    def text(self, counter: TokenCounter, budget: int) -> str:
        """The same as text of at most `budget` tokens; what is in doubt and what comes next are said first."""
        lines = [f"This session goes on from {plain(self.session)!r}."]
        lines += [f"In doubt, may have happened: {one}" for one in self.in_doubt]
        lines += progress_lines(self.progress)
        lines += [f"Open question: {one}" for one in self.questions]
        lines += [f"Decided: {one}" for one in self.decisions]
        return fitted(lines, counter, budget)


def progress_lines(progress: Progress) -> list[str]:
    """A record of progress as lines, the most important first; the completed steps are there so that nobody does them
    again."""
    if not progress.goal:
        return []
    state = "finished" if progress.finished else f"next: {plain(progress.next_action or '')}"
    lines = [f"Goal: {plain(progress.goal)} ({state})"]
    if progress.blocker:
        lines.append(f"Blocked by: {plain(progress.blocker)}")
    done = [f"Done, do not repeat: {plain(step)}" for step in reversed(progress.completed)]
    context = [plain(line) for line in progress.context.splitlines() if line.strip()]
    return [*lines, *done[:10], *context, *done[10:]]


def fitted(lines: Sequence[str], counter: TokenCounter, budget: int) -> str:
    """As many of the lines as fit, in their order; the last one may be cut."""
    kept: list[str] = []
    for line in lines:
        text = "\n".join([*kept, line])
        if counter.count(text) <= budget:
            kept.append(line)
            continue
        left = budget - (counter.count("\n".join(kept)) if kept else 0) - 2
        shorter = cut(line, left, counter)
        if shorter and counter.count("\n".join([*kept, shorter])) <= budget:
            kept.append(shorter)
        break
    return "\n".join(kept)


class Handoffs:
    """Reads what sessions leave, and journals who goes on from whom."""

    def __init__(self, journal: Journal, progress: ProgressLog) -> None:
        self._journal = journal
        self._gathering = Gathering(journal)
        self._progress = progress

    async def of(self, session: str, questions: Sequence[str], in_doubt: Sequence[str]) -> Handoff:
        """What a session leaves, as it stands."""
        head = await self._journal.reading.head(session)
        if head.position == 0:
            raise InvalidInput(f"there is no session {session!r} to go on from", hint="check the id")
        progress = await self._progress.read(session)
        if progress.blocker:
            questions = [*questions, plain(progress.blocker)]
        places = await self._gathering.places(session, 1, head.position, _LOOKED_AT)
        decided = [event.position for event in await self._gathering.events(session, places) if _is_decision(event)]
        decided = decided[-_DECISIONS:]
        said = await self._decisions(session, decided)
        return Handoff(session, head.position, progress, tuple(questions), tuple(said), tuple(in_doubt), tuple(decided))

    async def _decisions(self, session: str, places: Sequence[int]) -> list[str]:
        """Decisions with their reasons, newest first."""
        events = [event for event in await self._gathering.events(session, places) if _is_decision(event)]
        return [f"{plain(one.data['decision'])} (because {plain(one.data['reason'])})" for one in reversed(events)]

    async def begun(self, session: str, *, upto: int | None = None) -> Handoff | None:
        """What the session, or one that it was forked from, went on from, if it did."""
        found = await self._journal.landmarks.newest(session, HANDOFF, upto=upto)
        events = [] if found is None else await self._journal.landmarks.events(found.session, [found.landmark.position])
        if not events or events[0].erased:
            return None
        data = events[0].data
        decisions = await self._decisions(data["session"], data["decided"])
        questions, doubt = tuple(data["questions"]), tuple(data["in_doubt"])
        return Handoff(data["session"], data["position"], Progress(), questions, tuple(decisions), doubt)

    async def begin(self, session: str, handoff: Handoff) -> None:
        """Journal that a session goes on from another, once; its progress goes on too."""
        data = {
            "session": handoff.session,
            "position": handoff.position,
            "questions": list(handoff.questions),
            "decided": list(handoff.decided),
            "in_doubt": list(handoff.in_doubt),
        }
        owner = await self._journal.owner(None)
        draft = Draft("session.continues", data, "holdfast", f"{handoff.session}#{handoff.position}")
        landmark = Landmark(HANDOFF, HANDOFF, 0, self._journal.clock.now(), owner=owner.ref)
        await self._journal.append_prepared(
            session,
            [self._journal.prepare(draft, owner)],
            owner,
            key="session.continues",
            beside=Beside((landmark,)),
        )
        if handoff.progress.goal:  # also if it was begun before: a process may have been killed in between
            inherited = handoff.progress
            await self._progress.change(session, lambda now: now if now.goal else inherited, actor="holdfast")


def _is_decision(event: Event) -> bool:
    return event.type == Kind.DECISION and not event.erased and is_well_formed(Kind.DECISION, event.data)
