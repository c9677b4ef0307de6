"""What a model is told of a session: its window, its progress, what was handed on, what happened."""

from __future__ import annotations

from ..checkpoints.checkpoints import Checkpoints
from ..journal.journal import Journal
from .episode_policy import EpisodePolicy
from .episodes import Episodes
from .handoff import Handoffs, fitted, progress_lines
from .progress.progress_log import ProgressLog
from .window.context import Context
from .window.fit import Counting, Section
from .window.settings import Window
from .window.working_memory import WorkingMemory

_HANDOFF_SHARE = 0.2
_PROGRESS_SHARE = 0.15


class ContextBuilder:
    """One for each handle: what it remembers is shared by its sessions."""

    def __init__(self, journal: Journal, checkpoints: Checkpoints, episodes: EpisodePolicy) -> None:
        self.progress = ProgressLog(journal, checkpoints)
        self.handoffs = Handoffs(journal, self.progress)
        self.episodes = Episodes(journal, self.progress, episodes)
        self._working = WorkingMemory(journal)

    def forget(self) -> None:
        """Drop what is remembered of texts from memory: somebody was erased."""
        self._working.forget()

    async def context(self, session: str, window: Window, *, at: int | None, system: str) -> Context:
        """What the model sees next in a session, or what it saw at a position."""

        async def sections(position: int, window: Window, counting: Counting) -> list[Section]:
            return await self._sections(session, position, window, counting)

        return await self._working.context(session, window, at=at, system=system, sections=sections)

    async def _sections(self, session: str, position: int, window: Window, counting: Counting) -> list[Section]:
        found = []
        begun = await self.handoffs.begun(session, upto=position)
        if begun is not None:
            text = begun.text(counting.counter, int(window.budget * _HANDOFF_SHARE))
            found.append(Section("handoff", "## Hand-off", text, 0, 0))
        lines = progress_lines(await self.progress.read(session, at=position))
        if lines:
            text = fitted(lines, counting.counter, int(window.budget * _PROGRESS_SHARE))
            found.append(Section("progress", "## Progress", text, 0, 0))
        return [section for section in found if section.text]
