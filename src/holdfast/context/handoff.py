"""Hand-off: what a new session must know to go on from an old one, and that it went on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import InvalidInput
from ..journal.events import Draft
from ..journal.journal import Journal
from ..ports import Beside, Landmark, LandmarkQuery, TokenCounter
from .progress import Progress
from .progresslog import ProgressLog
from .talk import Kind
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
        self._progress = progress

    async def of(self, session: str, questions: Sequence[str], in_doubt: Sequence[str]) -> Handoff:
        """What a session leaves, as it stands."""
        head = await self._journal.reading.head(session)
        if head.position == 0:
            raise InvalidInput(f"there is no session {session!r} to go on from", hint="check the id")
        progress = await self._progress.read(session)
        if progress.blocker:
            questions = [*questions, plain(progress.blocker)]
        decisions = await self._decisions(session, head.position)
        return Handoff(session, head.position, progress, tuple(questions), tuple(decisions), tuple(in_doubt))

    async def _decisions(self, session: str, position: int) -> list[str]:
        """The newest decisions with their reasons, newest first."""
        places = await self._journal.store.talk(self._journal.workspace, session, 1, position, _LOOKED_AT)
        found: list[str] = []
        for event in reversed(await self._journal.landmarks.events(session, places)):
            if event.type == Kind.DECISION and not event.erased and len(found) < _DECISIONS:
                found.append(f"{plain(event.data['decision'])} (because {plain(event.data['reason'])})")
        return found

    async def begun(self, session: str, *, upto: int | None = None) -> dict[str, Any] | None:
        """What the session went on from, if it did."""
        query = LandmarkQuery(HANDOFF, upto=upto)
        rows = await self._journal.store.landmarks(self._journal.workspace, session, query)
        if not rows:
            return None
        events = await self._journal.landmarks.events(session, [rows[0].position])
        return None if not events or events[0].erased else dict(events[0].data)

    async def begin(self, session: str, handoff: Handoff) -> None:
        """Journal that a session goes on from another, once; its progress goes on too."""
        data = {
            "session": handoff.session,
            "position": handoff.position,
            "questions": list(handoff.questions),
            "decisions": list(handoff.decisions),
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
