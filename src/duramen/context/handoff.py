"""Hand-off: what a session passes to the session that continues it, and the event that records it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import CheckpointConflict, InvalidInput, shown
from ..journal.events import MAX_NAME, Draft, Event, check_whole
from ..journal.journal import Journal
from ..ports import Bookmark, BookmarkChanges, TokenCounter
from .compaction.trim import fit_lines, plain
from .progress.progress_log import CONTINUES, HANDOFF, ProgressLog
from .progress.record import Progress
from .tokens.counters import counter_for
from .window.conversation import EntryKind, is_well_formed
from .window.conversation_reader import ConversationReader

_DECISIONS = 8
_SEARCHED = 400
"""The newest conversation events that are searched for decisions."""


@dataclass(frozen=True, slots=True)
class Handoff:
    """What a session passes to the next: its progress, open questions, recent decisions with reasons, and the steps in
    doubt. `position` is the last event of the session at that time."""

    session: str
    position: int
    progress: Progress
    questions: tuple[str, ...]
    decisions: tuple[str, ...]
    in_doubt: tuple[str, ...]
    decided: tuple[tuple[str, int], ...] = ()
    """Session and position of each decision. The journal stores these and no copies, so that erasure reaches them."""

    def text(self, counter: TokenCounter, budget: int) -> str:
        """The hand-off as text of at most `budget` tokens. Steps in doubt and the next action come first."""
        counter = counter_for(counter)
        check_whole("budget", budget, 0, 2**31)
        lines = [f"This session continues {plain(self.session)!r}."]
        lines += [f"In doubt, may have happened: {one}" for one in self.in_doubt]
        lines += progress_lines(self.progress)
        lines += [f"Open question: {one}" for one in self.questions]
        lines += [f"Decided: {one}" for one in self.decisions]
        return fit_lines(lines, counter, budget)


def progress_lines(progress: Progress) -> list[str]:
    """The progress as lines, the most important first. Completed steps are included so that they are not repeated."""
    if not progress.goal:
        return []
    lines = [f"Goal: {plain(progress.goal)}{' (finished)' if progress.finished else ''}"]
    if progress.next_action:
        lines.append(f"Next: {plain(progress.next_action)}")
    if progress.blocker:
        lines.append(f"Blocked by: {plain(progress.blocker)}")
    done = [f"Done, do not repeat: {plain(step)}" for step in reversed(progress.completed)]
    context = [plain(line) for line in progress.context.splitlines() if line.strip()]
    return [*lines, *done[:10], *context, *done[10:]]


class Handoffs:
    """Builds hand-offs, and journals which session continues which."""

    def __init__(self, journal: Journal, progress: ProgressLog) -> None:
        self._journal = journal
        self._reader = ConversationReader(journal)
        self._progress = progress

    async def of(self, session: str, questions: Sequence[str], in_doubt: Sequence[str]) -> Handoff:
        """The hand-off of a session as of now. Raises `InvalidInput` if the session does not exist."""
        head = await self._journal.reader.head(session)
        if head.position == 0:
            raise InvalidInput(f"there is no session {shown(session)} to continue", hint="check the id of the session")
        progress = await self._progress.read(session)
        places = await self._reader.places(session, 1, head.position, _SEARCHED)
        events = await self._reader.readable(session, places)
        decided = [(session, event.position) for event in reversed(events) if _is_decision(event)]
        begun = await self.begun(session)
        decided = [*decided, *(begun.decided if begun is not None else ())][:_DECISIONS]
        said = await self._decisions(decided)
        doubt = tuple(in_doubt)
        return Handoff(session, head.position, progress, tuple(questions), tuple(said), doubt, tuple(decided))

    async def _decisions(self, decided: Sequence[tuple[str, int]]) -> list[str]:
        """Decisions with their reasons, in the order given. Erased ones are left out."""
        said = []
        for session, place in decided:
            for event in await self._reader.readable(session, [place]):
                if _is_decision(event):
                    said.append(f"{plain(event.data['decision'])} (because {plain(event.data['reason'])})")
        return said

    async def begun(self, session: str, *, upto: int | None = None) -> Handoff | None:
        """The hand-off that the session, or one that it was forked from, began with. None if it continues nothing."""
        found = await self._journal.bookmarks.newest(session, HANDOFF, upto=upto)
        events = [] if found is None else await self._journal.bookmarks.events(found.session, [found.bookmark.position])
        if not events or events[0].erased or events[0].type != CONTINUES:
            return None
        data = events[0].data
        decided = tuple((one[0], one[1]) for one in data["decided"])
        said = tuple(await self._decisions(decided))
        questions, doubt = tuple(data["questions"]), tuple(data["in_doubt"])
        return Handoff(data["session"], data["position"], Progress(), questions, said, doubt, decided)

    async def begin(self, session: str, handoff: Handoff) -> None:
        """Journal that a session continues another. A repeat does nothing.

        The session has the progress of the other until it records its own. Raises `InvalidInput` if it already
        continues a different session.
        """
        data = {
            "session": handoff.session,
            "position": handoff.position,
            "questions": list(handoff.questions),
            "decided": [list(one) for one in handoff.decided],
            "in_doubt": list(handoff.in_doubt),
        }
        owner = await self._journal.owner(None)
        cause = f"{handoff.session}#{handoff.position}"
        draft = Draft(CONTINUES, data, "duramen", cause if len(cause) <= MAX_NAME else None)
        bookmark = Bookmark(HANDOFF, HANDOFF, 0, 0, owner=owner.ref)
        try:
            await self._journal.append_prepared(
                session,
                [self._journal.prepare(draft, owner)],
                owner,
                changes=(BookmarkChanges((bookmark,), after=(HANDOFF, None)),),
            )
        except CheckpointConflict:
            begun = await self.begun(session)  # another process was first
            if begun is not None and begun.session != handoff.session:
                raise already_continues(session, begun.session) from None


def already_continues(session: str, other: str) -> InvalidInput:
    """The error for a second `continues`: a session continues at most one other."""
    return InvalidInput(
        f"session {shown(session)} already continues {shown(other)}",
        hint=f"pass {shown(other)}, or choose a new session id",
    )


def _is_decision(event: Event) -> bool:
    return event.type == EntryKind.DECISION and not event.erased and is_well_formed(EntryKind.DECISION, event.data)
