"""Verification: checks that the stored history is what was written.

It does not depend on the classes that this program registers, and does not run their code: it decodes their values as
`Unregistered`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import NamedTuple

from ..errors import DuramenError
from ..ports import Store
from .codec import Codec
from .owners import NOBODY, Owners
from .reader import PAGE, Reader, damage_of
from .registry import Registry


class Problem(NamedTuple):
    """A problem that `verify` found. Position 0 means a row other than an event."""

    session: str
    position: int
    reason: str


class Verification(NamedTuple):
    """The result of `verify`: how much it read, and the problems, at most one per session chain. `remarks` are not
    damage: they name guarantees that the database does not give with its present configuration."""

    sessions: int
    events: int
    blobs: int
    problems: list[Problem]
    remarks: Sequence[str] = ()

    @property
    def ok(self) -> bool:
        return not self.problems


class Verifier:
    """Verifies the sessions of one workspace. Damage is reported in the result, not raised."""

    def __init__(self, store: Store, workspace: str, owners: Owners) -> None:
        self._store = store
        self._workspace = workspace
        self._owners = owners
        self._reader = Reader(store, workspace, Codec(registry=Registry(), keep_unknown=True), owners)

    async def everything(self) -> Verification:
        """Verify every session and every blob, and run the integrity check of the store."""
        sessions = events = blobs = 0
        problems: list[Problem] = []
        remarks: list[str] = []
        try:
            remarks = await self._store.remarks()
            problems += [Problem("", 0, reason) for reason in await self._store.damage()]
            after = ""
            while names := await self._store.session_names(self._workspace, after, PAGE):
                for name in names:
                    found = await self.session(name, shared=False)
                    sessions, events = sessions + 1, events + found.events
                    problems += found.problems
                if names[-1] <= after:
                    problems.append(Problem("", 0, "the database returns sessions in the wrong order"))
                    break
                after = names[-1]
            blobs, bad = await self._blobs()
            problems += bad
        except DuramenError as error:
            problems.append(Problem(*damage_of(error, "")))
        return Verification(sessions, events, blobs, problems, remarks)

    async def session(self, session: str, *, shared: bool = True) -> Verification:
        """Verify a session, with or without the events that it shares with its ancestors."""
        start = last = 1
        try:
            lineage = [] if shared else await self._reader.lineage(session)
            start = last = lineage[-1].last + 1 if lineage else 1
            async with aclosing(self._reader.pages(session, start, None, None, PAGE)) as pages:
                async for page in pages:
                    last += len(page)
            await self._store.lease(self._workspace, session)
        except DuramenError as error:
            problem = Problem(*damage_of(error, session))
            return Verification(1, max(last, problem.position) - start, 0, [problem])
        return Verification(1, last - start, 0, [])

    async def _blobs(self) -> tuple[int, list[Problem]]:
        count, after = 0, b""
        bad: list[Problem] = []
        while True:
            page = await self._store.blobs(self._workspace, after, 16)
            try:
                owners = await self._owners.load({blob.owner for blob in page})
            except DuramenError as error:
                return count, [*bad, Problem(*damage_of(error, ""))]
            for blob in page:
                owner = owners.get(blob.owner, NOBODY)
                try:
                    self._reader.open_blob(blob.address, blob.body, owner)
                except ValueError as error:
                    # A subject that was erased during the read is not damage.
                    if await self._store.blob(self._workspace, blob.address) == blob.body:
                        bad.append(Problem("", 0, str(error)))
            if not page:
                return count, bad
            if page[-1].address <= after:  # a broken index would make this loop endless
                return count, [*bad, Problem("", 0, "the database returns blobs in the wrong order")]
            count, after = count + len(page), page[-1].address
