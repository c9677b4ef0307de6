"""What a workspace remembers, blocking: the same code, stepped by hand. See `duramen.aio_memory`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Unpack

from ...journal.events import Event
from ...memory.catalog.memory_event import MemoryDetails
from ...ports import Model
from ...runtime import drive, drive_iterator
from .._async.memories import ALL, AsyncMemories, AsyncMemoriesThen, RecallOptions, Scope
from .procedures import Procedures
from .proposals import Proposals

if TYPE_CHECKING:
    from ...files.sync.import_export import MemoriesExported, MemoriesImported
    from ...memory.catalog.memory_event import MemoryInput
    from ...memory.catalog.records import ForgetReport, Memory, Recalled
    from ...memory.extraction.extract import Extraction
    from ...memory.knowledge.contradictions import Contradiction
    from ...memory.knowledge.resolution import Merged
    from ...memory.ranking.neighbours import Relation


class Memories:
    """What is remembered in a workspace: by agents, about persons, from runs."""

    def __init__(self, core: AsyncMemories) -> None:
        self._core = core
        self.procedures = Procedures(core.procedures)
        """How things are done."""
        self.proposals = Proposals(core.proposals)
        """What waits for a person to decide, and what was decided."""

    def remember(
        self,
        content: str,
        *,
        kind: str = "fact",
        subject: str | None = None,
        actor: str | None = None,
        cause: int | str | None = None,
        fresh: bool = False,
        **details: Unpack[MemoryDetails],
    ) -> Memory:
        """Remember something; durable on return, and found by its words at once. Its vector follows in the background,
        unless it shall be `fresh`: then it is there on return, too."""
        return drive(
            self._core.remember(content, kind=kind, subject=subject, actor=actor, cause=cause, fresh=fresh, **details)
        )

    def remember_all(
        self,
        contents: Iterable[MemoryInput],
        *,
        kind: str = "fact",
        subject: str | None = None,
        actor: str | None = None,
        cause: int | str | None = None,
        fresh: bool = False,
        **details: Unpack[MemoryDetails],
    ) -> list[Memory]:
        """Remember several things in one go: all of them or none, durable on return, with one sync. Each is a text, or
        a dict with its `content` and what `remember` takes beside it; what is given here holds for all that say nothing
        else. At most 1,000 in a call."""
        every = self._core.remember_all(
            contents, kind=kind, subject=subject, actor=actor, cause=cause, fresh=fresh, **details
        )
        return drive(every)

    def recall(self, query: str, **options: Unpack[RecallOptions]) -> Recalled:
        """What is known that fits a query, best first: by words, meaning, time, importance and neighbourhood."""
        return drive(self._core.recall(query, **options))

    def get(self, id: str) -> Memory:
        """A memory by its id. Raises `UnknownMemory`."""
        return drive(self._core.get(id))

    def confirm(self, id: str, *, actor: str | None = None) -> Memory:
        """Somebody checked a memory and it holds: it is as fresh as on the first day. Raises `UnknownMemory`."""
        return drive(self._core.confirm(id, actor=actor))

    def profile(self, subject: str | None = None) -> dict[str, str]:
        """The fields that are known of a person, or of whoever the workspace is for. They change by accepted proposals
        (`kind` "profile") alone, and are no memories: each recollection begins with them."""
        return drive(self._core.profile(subject))

    def persona(self) -> str:
        """Who the agent is: a text that each turn begins with. It changes by accepted proposals (`kind` "persona")
        alone."""
        return drive(self._core.persona())

    def history(self, id: str) -> list[Memory]:
        """Every version of a memory: when it was said, what it replaced and what replaced it; oldest first."""
        return drive(self._core.history(id))

    def neighbours(self, name: str, *, limit: int = 20, **whose: Unpack[Scope]) -> list[Relation]:
        """Who and what a name stands next to: the relations that memories state in plain English ("Ada lives in Rome"),
        and as "with" the names that they mention beside it; newest first, each once, with its newest source."""
        return drive(self._core.neighbours(name, limit=limit, **whose))

    def list(
        self, *, kinds: str | Iterable[str] | None = None, limit: int = ALL, **whose: Unpack[Scope]
    ) -> Iterator[Memory]:
        """What is remembered, in the order in which it was."""
        return drive_iterator(self._core.list(kinds=kinds, limit=limit, **whose))

    def forget(self, id: str, *, actor: str | None = None) -> ForgetReport:
        """Remove a memory with every text that said it, its words and its vector. The report counts what went."""
        return drive(self._core.forget(id, actor=actor))

    def forget_before(
        self,
        time: dt.datetime,
        *,
        kinds: str | Iterable[str] | None = None,
        actor: str | None = None,
        **whose: Unpack[Scope],
    ) -> ForgetReport:
        """Forget what was last said before a time. The report counts what went."""
        return drive(self._core.forget_before(time, kinds=kinds, actor=actor, **whose))

    def as_of(self, when: dt.datetime | Event) -> MemoriesThen:
        """What was known at a time, or when an event happened."""
        return MemoriesThen(self._core.as_of(when))

    def extract(self, text: str, *, model: Model | str | None = None, speaker: str | None = None) -> Extraction:
        """The facts that a text states, each with its kind, key, confidence and the words that say it; nothing is
        stored. With a model its answer is checked: a fact that is not in the text, or cannot be used otherwise, is
        skipped with the reason. Without one the plain patterns of `session.turn` decide. Raises `ModelFailed`."""
        return drive(self._core.extract(text, model=model, speaker=speaker))

    def consolidate(
        self, *, model: Model | str | None = None, limit: int = 50, **whose: Unpack[Scope]
    ) -> Sequence[Merged]:
        """Merge memories that say the same in nearly the same words: the newer one stays, the older one ends. With a
        model contradictions are resolved, too, at most `limit` of them: it is asked whether the newer one holds, the
        older one, both, or one statement in place of both, and each decision is journaled with its reason. Run it now
        and then; it may be stopped anywhere. Raises `ModelFailed`; what was decided before stays decided."""
        return drive(self._core.consolidate(model=model, limit=limit, **whose))

    def write_back(self, session: str | None = None) -> int:
        """Keep what is worth keeping of turns and runs that have ended, now instead of in the background; with a
        session also what its last turn left, which may go on. Returns how many turns were looked at."""
        return drive(self._core.write_back(session))

    def contradictions(self, *, limit: int = 100, **whose: Unpack[Scope]) -> Sequence[Contradiction]:
        """Pairs of current memories that cannot both hold, the newest first: somebody lives in two cities, a number
        differs, one denies what the other says. Found in plain English without a model, for precision: what is listed
        is nearly always one, and not all of them are listed."""
        return drive(self._core.contradictions(limit=limit, **whose))

    def memory_file(self, id: str) -> str:
        """The text of a memory's file, to be changed and passed to `edit`. Raises `UnknownMemory`."""
        return drive(self._core.memory_file(id))

    def edit(self, id: str, text: str, *, actor: str | None = None) -> Memory:
        """Replace a memory by the text of an edited memory file. Preferences and identity are proposed and accepted at
        once. Raises `UnknownMemory`, `FileMalformed` with the line, `InvalidInput`."""
        return drive(self._core.edit(id, text, actor=actor))

    def import_from(
        self,
        path: str | PathLike[str],
        format: str,
        *,
        subject: str | None = None,
        actor: str | None = None,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> MemoriesImported:
        """Remember what stands in a folder, or a file, of another's: `format` "claude" (a memory folder of Claude
        Code), "openclaw", "basic-memory" or "jsonl". Preferences and identity count as accepted by whoever imports
        them. Doing it again changes nothing; bad files are reported with their line, and the rest goes on."""
        return drive(self._core.import_from(path, format, subject=subject, actor=actor, progress=progress))

    def export_to(
        self,
        path: str | PathLike[str],
        format: str,
        *,
        progress: Callable[[str, int, int], None] | None = None,
        **whose: Unpack[Scope],
    ) -> MemoriesExported:
        """Write memories to a folder in another's format: what was imported from such files goes where it was, word by
        word. Other files there stay."""
        return drive(self._core.export_to(path, format, progress=progress, **whose))

    def waiting(self) -> int:
        """How many memories have no vector yet."""
        return drive(self._core.waiting())

    def reindex(self) -> Iterator[tuple[int, int]]:
        """Make every vector anew with this handle's embedder, while the old ones are searched, and search the new ones
        at the end. Gives how many are done and how many are left; stopped anywhere, the next call goes on."""
        return drive_iterator(self._core.reindex())

    def catch_up(self) -> None:
        """Make the vectors that are missing, now."""
        drive(self._core.catch_up())


class MemoriesThen:
    """What was known at a time."""

    def __init__(self, core: AsyncMemoriesThen) -> None:
        self._core = core

    def recall(self, query: str, **options: Unpack[RecallOptions]) -> Recalled:
        """What was known then that fits a query."""
        return drive(self._core.recall(query, **options))

    def list(
        self, *, kinds: str | Iterable[str] | None = None, limit: int = ALL, **whose: Unpack[Scope]
    ) -> Iterator[Memory]:
        """What was known then."""
        return drive_iterator(self._core.list(kinds=kinds, limit=limit, **whose))
