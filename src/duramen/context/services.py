"""Creates the services that the sessions of a handle share: checkpoints, progress, hand-offs, episodes, context."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from ..checkpoints.checkpoints import Checkpoints
from ..checkpoints.state import StateCheckpoints
from ..journal.journal import Journal
from .episode_policy import EpisodePolicy
from .window.settings import Window

if TYPE_CHECKING:
    from .context_builder import ContextBuilder
    from .episodes import Episodes
    from .handoff import Handoffs
    from .progress.progress_log import ProgressLog


class Services:
    """The services of one handle. Its sessions share them and their caches.

    `progress`, `handoffs`, `episodes` and `context_builder` exist after `load`, which the first session calls. Runs do
    not need them, and their import is slow.
    """

    progress: ProgressLog
    handoffs: Handoffs
    episodes: Episodes
    context_builder: ContextBuilder

    def __init__(self, journal: Journal, window: Window, episodes: EpisodePolicy, suspicious: str = "flag") -> None:
        self._journal = journal
        self._suspicious = suspicious
        self.window = window
        self.checkpoints = Checkpoints(journal)
        self.states = StateCheckpoints(journal, self.checkpoints)
        self._episode_policy = episodes
        self._loaded = False
        self._loading = threading.Lock()

    def load(self) -> None:
        """Create the services that only sessions need. Does nothing after the first call."""
        with self._loading:
            if self._loaded:
                return
            from .context_builder import ContextBuilder
            from .episodes import Episodes
            from .handoff import Handoffs
            from .progress.progress_log import ProgressLog

            self.progress = ProgressLog(self._journal, self.checkpoints)
            self.handoffs = Handoffs(self._journal, self.progress)
            self.episodes = Episodes(self._journal, self.progress, self._episode_policy)
            self.context_builder = ContextBuilder(self._journal, self.progress, self.handoffs, self._suspicious)
            self._loaded = True

    def forget(self) -> None:
        """Drop cached texts and states from memory, after an erasure."""
        self.checkpoints.forget()
        if self._loaded:
            self.context_builder.forget()
