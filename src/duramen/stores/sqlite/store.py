"""The SQLite store: one file, many processes.

Isolation: writers are serial (see `writer`, which also says the order of locks), readers see a snapshot and take no
lock. Retry rule: a group of batches that fails as a whole is tried again one by one; nothing else is retried. Commits
go to a write-ahead log. A commit with a synced batch waits for the disk; others survive a kill of the process, and a
power cut once a later commit waited, or `sync` was called.
"""

from __future__ import annotations

from typing import Any

from ...runtime import Runtime
from ..common.fork_guard import forked, inherited, refuse_inherited, unwatch, watch
from .access import Access
from .checkpoints import Checkpoints
from .connection import SqliteSettings
from .events import Events
from .integrity import damage
from .memories import Memories
from .runs import Runs
from .sessions import Sessions
from .subjects import Subjects
from .writer import SqliteTransaction


class SqliteStore:
    """A journal store in one SQLite file. Safe to share between threads."""

    name = "sqlite"
    retriever = None

    def __init__(self, settings: SqliteSettings, runtime: Runtime) -> None:
        refuse_inherited(settings.file)
        self._access = Access(settings, runtime)
        self._events = Events(self._access)
        parts: tuple[Any, ...] = (
            self._events,
            Sessions(self._access),
            Subjects(self._access),
            Runs(self._access),
            Checkpoints(self._access),
            Memories(self._access),
        )
        for part in parts:
            for name in vars(type(part)):
                if not name.startswith("_"):
                    setattr(self, name, getattr(part, name))
        watch(self)

    def disown(self) -> None:
        """From here on this is a child's copy of its parent's handle."""
        self._access.refusal = forked()
        self._access.writer.let_go()
        inherited.append(self._access.settings.file)

    def begin(self) -> SqliteTransaction:
        self._access.check_writable()
        return SqliteTransaction(self._access.writer)

    async def remarks(self) -> list[str]:
        return []

    async def damage(self) -> list[str]:
        return await self._access.read(damage)

    async def close(self) -> None:
        if self._access.refusal is not None:
            return
        await self._access.runtime.run(self._close)
        self._access.runtime.close()

    def _close(self) -> None:
        self._events.group.close()
        self._access.close()
        unwatch(self)
