"""The SQLite store: one file, many processes.

Isolation: writers are serial, readers see a snapshot and take no lock. Order of locks: see `writer`.

Retry rule: if the commit of a group of batches fails, each batch is tried again alone. Nothing else is retried.

Durability: commits go to a write-ahead log. A commit with a synced batch waits for the disk. Other commits survive the
death of the process. They survive a power cut after a later commit has waited for the disk, or after `sync`.
"""

from __future__ import annotations

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
        events = self._events = Events(self._access)
        self.append, self.head, self.read, self.find = events.append, events.head, events.read, events.find
        self.pick, self.talk = events.pick, events.talk
        self.feed, self.cursor, self.advance = events.feed, events.cursor, events.advance
        self.blob, self.blobs, self.missing_blobs = events.blob, events.blobs, events.missing_blobs
        self.mark, self.changed, self.sync = events.mark, events.changed, events.sync
        sessions = Sessions(self._access)
        self.session, self.sessions, self.session_names = sessions.session, sessions.sessions, sessions.session_names
        self.workspaces, self.fork = sessions.workspaces, sessions.fork
        self.acquire, self.renew, self.release, self.lease = (
            sessions.acquire,
            sessions.renew,
            sessions.release,
            sessions.lease,
        )
        subjects = Subjects(self._access)
        self.subject, self.subject_by_ref, self.subjects = subjects.subject, subjects.subject_by_ref, subjects.subjects
        self.add_subject, self.rewrap, self.erase = subjects.add_subject, subjects.rewrap, subjects.erase
        runs = Runs(self._access)
        self.run, self.runs, self.due, self.next_wake, self.claim = (
            runs.run,
            runs.runs,
            runs.due,
            runs.next_wake,
            runs.claim,
        )
        checkpoints = Checkpoints(self._access)
        self.bookmarks, self.bookmark_names = checkpoints.bookmarks, checkpoints.bookmark_names
        self.expired, self.chunk_log_end, self.chunks = (
            checkpoints.expired,
            checkpoints.chunk_log_end,
            checkpoints.chunks,
        )
        memories = Memories(self._access)
        self.memories, self.changes = memories.memories, memories.changes
        self.audience_changes = memories.audience_changes
        self.unindexed, self.count_unindexed = memories.unindexed, memories.count_unindexed
        self.index_entries, self.put_index_entries = memories.index_entries, memories.put_index_entries
        self.segments, self.segment_spans = memories.segments, memories.segment_spans
        self.put_segment, self.recalls = memories.put_segment, memories.recalls
        self.note_recalls, self.generations = memories.note_recalls, memories.generations
        self.add_generation, self.activate = memories.add_generation, memories.activate
        watch(self)

    def disown(self) -> None:
        """Refuse all further calls: this process is a forked child, and the handle belongs to its parent."""
        self._access.refusal = forked()
        self._access.writer.close_lock()
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
