"""What happened lately in a session and in those that it goes on from, told in a line each."""

from __future__ import annotations

from dataclasses import dataclass

from ..journal.journal import Journal
from .blocks import as_json, text_of
from .gathering import Gathering
from .handoff import progress_lines
from .progresslog import ProgressLog
from .talk import Kind, Unit, units
from .trimming import plain

_LONGEST = 400
"""Characters of one line; the whole is in the journal."""


@dataclass(frozen=True, slots=True)
class Episode:
    """Something that happened: where and when, and what in a line."""

    session: str
    position: int
    time: int
    text: str


class Recounting:
    """Tells what is under way, and what happened lately."""

    def __init__(self, journal: Journal, progress: ProgressLog) -> None:
        self._journal = journal
        self._progress = progress
        self._gathering = Gathering(journal)

    async def working(self, session: str) -> list[str]:
        """What is under way: goal, next action, blocker."""
        return progress_lines(await self._progress.read(session))

    async def recent(self, session: str, limit: int) -> list[Episode]:
        """The last things that were said, done, decided or went wrong, in time order."""
        found: list[Episode] = []
        for origin in await self._progress.chain(session):
            if len(found) >= limit:
                break
            found = [*await self._of(origin, limit - len(found)), *found]
        return found

    async def _of(self, session: str, limit: int) -> list[Episode]:
        head = await self._journal.reading.head(session)
        if head.position == 0:
            return []
        # A call and its result are two events and one episode.
        places = await self._gathering.places(session, 1, head.position, 2 * limit)
        events = await self._gathering.readable(session, places)
        times = {event.position: event.time for event in events}
        told = [unit for unit in units(events) if not unit.is_prompt][-limit:]
        return [Episode(session, unit.position, times[unit.position], _line(unit)) for unit in told]


def _line(unit: Unit) -> str:
    data, answer = unit.data, unit.answer
    if unit.kind is Kind.MESSAGE:
        return _short(f"{data.get('name') or data['role']}: {text_of(data['content'])}")
    if unit.kind is Kind.CALL:
        outcome = "no result yet" if answer is None else text_of(answer["output"])
        failed = "failed: " if answer is not None and answer.get("error") else ""
        called = _short(f"called {data['tool']} {as_json(data['arguments'])}", 160)
        return f"{called} -> {failed}{_short(outcome, 200)}"
    if unit.kind is Kind.DECISION:
        return _short(f"decided: {data['decision']} (because {data['reason']})")
    if unit.kind is Kind.ERROR:
        fixed = "not resolved" if answer is None else f"resolved: {answer['resolution']}"
        return f"{_short('error: ' + data['error'], 200)} ({_short(fixed, 190)})"
    return _short(text_of(data))


def _short(text: str, most: int = _LONGEST) -> str:
    line = plain(text)
    return line if len(line) <= most else line[: most - 1].rstrip() + "\u2026"
