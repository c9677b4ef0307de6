"""Episodes: what happened in a session and in the sessions that it continues, one line each.

Episodes are read from the journal, which keeps every event. `EpisodePolicy` limits how many there are and how long they
last; less important ones are dropped first. The episodes of a session with an open run do not expire.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..journal.events import Event, moment
from ..journal.journal import Journal
from ..ports import RunQuery
from .compaction.trim import plain
from .episode_policy import EpisodePolicy
from .handoff import progress_lines
from .progress.progress_log import ProgressLog
from .window.content_blocks import as_json, text_of
from .window.conversation import ConversationEntry, EntryKind, Priority, conversation_entries, reference
from .window.conversation_reader import ConversationReader

_LONGEST = 400
"""Characters of one episode. The full text is in the journal, under its reference."""
_LOOK_BACK = 4
"""Up to `cap` times this many older entries are read to find important ones."""
_KINDS = {
    EntryKind.MESSAGE: "said",
    EntryKind.CALL: "did",
    EntryKind.RESULT: "did",
    EntryKind.DECISION: "decided",
    EntryKind.ERROR: "erred",
    EntryKind.RESOLUTION: "resolved",
    EntryKind.OBSERVATION: "observed",
}


@dataclass(frozen=True, slots=True)
class Episode:
    """Something that happened in a session.

    `kind` is "said", "did", "decided", "erred", "resolved" or "observed". `outcome` is the result of a tool call. `fix`
    is the resolution of an error. `times` counts identical episodes in a row. A shortened text ends with a reference
    to the full text, for `session.fetch`.
    """

    session: str
    position: int
    kind: str
    at: dt.datetime
    text: str
    outcome: str | None = None
    fix: str | None = None
    times: int = 1
    priority: str = "normal"

    @property
    def line(self) -> str:
        """The episode as one line of text."""
        after = "" if self.outcome is None else f" -> {self.outcome}"
        if self.kind == "erred":
            after = " (not resolved)" if self.fix is None else f" (resolved: {self.fix})"
        return f"{self.at:%Y-%m-%d %H:%M} {self.text}{after}" + (f" ({self.times} times)" if self.times > 1 else "")


class Episodes:
    """Reads the work in progress and the recent episodes of sessions."""

    def __init__(self, journal: Journal, progress: ProgressLog, policy: EpisodePolicy) -> None:
        self._journal = journal
        self._progress = progress
        self._policy = policy
        self._reader = ConversationReader(journal)

    async def working(self, session: str) -> list[str]:
        """The progress of a session as lines: goal, next action, blocker, completed steps."""
        return progress_lines(await self._progress.read(session))

    async def last(self, session: str, limit: int, kinds: frozenset[str] | None = None) -> list[Episode]:
        """The newest `limit` episodes in time order, from the session and the sessions that it continues."""
        found: list[Episode] = []
        for origin in await self._progress.chain(session):
            if len(found) >= limit:
                break
            episodes = [one for one in await self.of(origin) if kinds is None or one.kind in kinds]
            found = [*episodes[-(limit - len(found)) :], *found]
        return found

    async def of(self, session: str) -> list[Episode]:
        """The episodes of a session that its policy keeps, in time order. Empty if they expired."""
        head = await self._journal.reader.head(session)
        if head.position == 0:
            return []
        cap = self._policy.cap
        # A call and its result are two events and one episode.
        most = None if cap is None else int(2 * cap * _LOOK_BACK)
        events = await self._reader.readable(session, await self._reader.places(session, 1, head.position, most))
        if not events or not await self._alive(session, events[-1]):
            return []
        times = {event.position: event.time for event in events}
        episodes = [
            _episode(session, entry, times) for entry in conversation_entries(events) if not entry.is_system_prompt
        ]
        return _pruned(_once(episodes), cap)

    async def _alive(self, session: str, last: Event) -> bool:
        """Whether the episodes are within their ttl, or the session has an open run."""
        ttl = self._policy.ttl
        if ttl is None or self._journal.clock.now() - last.time <= ttl * 1e6:
            return True
        query = RunQuery(status=("open",), session=session, limit=1, strict=True)
        return bool(await self._journal.store.runs(self._journal.workspace, query))


def _episode(session: str, entry: ConversationEntry, times: dict[int, int]) -> Episode:
    data, answer = entry.data, entry.answer
    at = moment(times[entry.position])
    rest: dict[str, Any] = {"priority": entry.priority.name.lower()}
    where = entry.position
    if entry.kind is EntryKind.MESSAGE:
        text = f"{data.get('name') or data['role']}: {_visible(data['content'])}"
    elif entry.kind is EntryKind.CALL:
        text = f"called {data['tool']} {as_json(data['arguments'])}"
        if answer is not None:
            failed = "failed: " if answer.get("error") else ""
            rest["outcome"] = failed + _short(_visible(answer["output"]), entry.answer_position or where)
    elif entry.kind is EntryKind.DECISION:
        text = f"decided: {data['decision']} (because {data['reason']})"
    elif entry.kind is EntryKind.ERROR:
        text = f"error: {data['error']}"
        if answer is not None:
            rest["fix"] = _short(answer["resolution"], entry.answer_position or where)
    elif entry.kind is EntryKind.OBSERVATION:
        text = f"observed ({data['source']}): {data['observed']}"
    else:
        text = text_of(data)
    return Episode(session, where, _KINDS[entry.kind], at, _short(text, where), **rest)


def _visible(content: Any) -> str:
    """The text of content blocks. Other blocks, such as private reasoning, become their type in brackets."""
    if not isinstance(content, list) or not all(isinstance(block, dict) and "type" in block for block in content):
        return text_of(content)
    parts = [block["text"] if block["type"] == "text" else f"[{block['type']}]" for block in content]
    return " ".join(parts)


def _short(text: str, position: int, most: int = _LONGEST) -> str:
    line = plain(text)
    if len(line) <= most:
        return line
    end = f"\u2026 {reference(position)}"
    return line[: most - len(end)].rstrip() + end


def _once(episodes: Sequence[Episode]) -> list[Episode]:
    """Merge identical episodes in a row into one that counts them."""
    found: list[Episode] = []
    for one in episodes:
        before = found[-1] if found else None
        if before is not None and _content(before) == _content(one):
            found[-1] = replace(one, times=before.times + 1)
        else:
            found.append(one)
    return found


def _content(one: Episode) -> tuple[Any, ...]:
    return one.kind, one.text, one.outcome, one.fix


def _pruned(episodes: list[Episode], cap: int | None) -> list[Episode]:
    """Drop episodes above the cap: the lowest priority first, then the oldest."""
    if cap is None or len(episodes) <= cap:
        return episodes
    kept = sorted(range(len(episodes)), key=lambda index: (-Priority[episodes[index].priority.upper()], -index))[
        : int(cap)
    ]
    return [episodes[index] for index in sorted(kept)]
