"""Checkpoints of an agent's own state: values, what is next, config, writes, step number and pending tasks."""

from __future__ import annotations

import datetime as dt
import marshal
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import CheckpointDamaged, InvalidInput
from ..journal.codec import Codec
from ..journal.forms import Fields, Items, Leaf
from ..journal.journal import Journal
from ..ports import RunQuery
from .checkpoints import ANYTHING, Checkpoints, Saved

STATE = "state"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DEEPEST = 8
"""Levels of mappings that are looked into; below, a value is stored as one."""
KINDS = ("manual", "subtask", "irreversible", "periodic")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A session's state as of an event. `kind` says why it was made; `skipped` names newer ones that could not be read.
    In a list of checkpoints `values` and the rest are not read: ask `session.state(id=…)`."""

    session: str
    id: str
    position: int
    time: int
    kind: str
    step: int | None
    pinned: bool
    values: Any = None
    next: Any = None
    pending: Any = None
    config: Any = None
    writes: Any = None
    skipped: tuple[CheckpointDamaged, ...] = ()

    @property
    def at(self) -> dt.datetime:
        """When it was made, in UTC."""
        return _EPOCH + dt.timedelta(microseconds=self.time)


class Shapes:
    """Turns values into forms whose unchanged parts are shared, and back."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def form(self, value: Any, depth: int = 0) -> Any:
        """The form of a value: mappings by their names, lists by their items, everything else as it is."""
        if type(value) is dict and value and depth < _DEEPEST and all(type(name) is str for name in value):
            return {name: self.form(inner, depth + 1) for name, inner in value.items()}
        if type(value) is list and value:
            return Items(value, self._encode, self._freeze)
        return Leaf(self._encode(value))

    def value(self, fields: Any) -> Any:
        """The value of what was read."""
        if isinstance(fields, dict):
            return {name: self.value(inner) for name, inner in fields.items()}
        if isinstance(fields, list):
            return [self._codec.decode_whole(body) for body in fields]
        return self._codec.decode_whole(fields)

    def _encode(self, value: Any) -> bytes:
        return self._codec.encode(value, _no_reference).payload

    def _freeze(self, values: Sequence[Any], known: list[Any]) -> list[Any]:
        frozen: list[Any] = []
        for value in values:
            try:
                frozen.append(marshal.dumps(value, 0))  # plain data, type by type, at the speed of C; never loaded
            except ValueError:
                frozen.append(self._encode(value))
        return frozen


def _no_reference(body: bytes) -> bytes:
    raise InvalidInput(f"a value of {len(body)} bytes is too large", hint="store it apart and keep a reference")


class States:
    """The checkpoints of agents' states in one workspace."""

    def __init__(self, journal: Journal, checkpoints: Checkpoints) -> None:
        self._journal = journal
        self._checkpoints = checkpoints
        self._shapes = Shapes(journal.codec)

    async def save(
        self,
        session: str,
        values: Any,
        *,
        next: Any = None,
        pending: Any = None,
        config: Any = None,
        writes: Any = None,
        step: int | None = None,
        kind: str = "manual",
        pin: bool = False,
        after: Any = ANYTHING,
        subject: str | None = None,
        fence: int | None = None,
    ) -> Checkpoint:
        """Store a state; durable on return."""
        if kind not in KINDS:
            raise InvalidInput(f"{kind!r} is no kind of checkpoint", hint=f"known are: {', '.join(KINDS)}")
        if step is not None and (not isinstance(step, int) or isinstance(step, bool)):
            raise InvalidInput(f"{step!r} cannot be `step`", hint="give a whole number")
        rest = {"next": next, "pending": pending, "config": config, "writes": writes}
        form = {"values": self._shapes.form(values)}
        form |= {name: self._shapes.form(value) for name, value in rest.items() if value is not None}
        saved = await self._checkpoints.save(
            session,
            STATE,
            form,
            {"step": step, "kind": kind},
            after=after,
            subject=subject,
            pinned=pin,
            fence=fence,
        )
        return _info(saved)

    async def load(self, session: str, *, id: str | None, at: int | dt.datetime | None) -> Checkpoint | None:
        """The newest state, at or before a position or a time, or the one with an id."""
        position, until = None, None
        if isinstance(at, dt.datetime):
            if at.tzinfo is None:
                raise InvalidInput(f"{at!r} has no time zone", hint="give a datetime with tzinfo")
            until = int(at.timestamp() * 1e6)
        elif at is not None:
            if not isinstance(at, int) or isinstance(at, bool) or at < 0:
                raise InvalidInput(f"{at!r} cannot be `at`", hint="give a position, or a datetime with tzinfo")
            position = at
        saved = await self._checkpoints.load(session, STATE, id=id, at=position, until=until)
        return None if saved is None else self._opened(saved)

    def _opened(self, saved: Saved) -> Checkpoint:
        fields: Fields = saved.fields or {}
        opened = {name: self._shapes.value(inner) for name, inner in fields.items()}
        known = {name: opened.get(name) for name in ("values", "next", "pending", "config", "writes")}
        return _info(saved, **known)

    async def list(self, session: str, limit: int | None) -> AsyncGenerator[Checkpoint, None]:
        """The checkpoints without their values, newest first."""
        async for saved in self._checkpoints.list(session, STATE, limit=limit):
            yield _info(saved)

    async def pin(self, session: str, id: str, pinned: bool) -> None:
        """Keep a checkpoint from expiring, or no longer."""
        if not await self._checkpoints.pin(session, STATE, id, pinned):
            raise InvalidInput(f"session {session!r} has no checkpoint {id!r}", hint="list them: session.checkpoints()")

    async def expire(self, session: str, *, keep_last: int, older_than: float | None) -> int:
        """Remove old checkpoints of a session: all but the newest ones, the pinned ones, those younger than so many
        seconds, and those that a fork goes on from. A session with an unfinished run loses none."""
        if await self._is_unfinished(session):
            return 0
        shared = await self._fork_points(session)
        limit = self._journal.clock.now() - int((older_than or 0) * 1e6)
        doomed, seen = [], 0
        async for saved in self._checkpoints.list(session, STATE):
            if saved.session != session:
                break
            seen += 1
            needed = [point for point in shared if point >= saved.position]
            shared -= set(needed)  # the newest at or before a fork's beginning is what the fork goes on from
            if seen > max(1, keep_last) and not saved.pinned and saved.time <= limit and not needed:
                doomed.append(saved.id)
        return await self._checkpoints.drop(session, STATE, doomed, reason="expired") if doomed else 0

    async def _is_unfinished(self, session: str) -> bool:
        query = RunQuery(status=("open",), session=session, limit=1)
        return bool(await self._journal.store.runs(self._journal.workspace, query))

    async def _fork_points(self, session: str) -> set[int]:
        return {row.fork_at async for row in self._journal.sessions() if row.parent == session}


def _info(saved: Saved, **fields: Any) -> Checkpoint:
    return Checkpoint(
        saved.session,
        saved.id,
        saved.position,
        saved.time,
        saved.note["kind"],
        saved.note["step"],
        saved.pinned,
        skipped=saved.skipped,
        **fields,
    )
