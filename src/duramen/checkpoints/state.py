"""Checkpoints of an agent's state: values, next steps, config, writes, step number and pending tasks."""

from __future__ import annotations

import datetime as dt
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import CheckpointDamaged, InvalidInput, shown
from ..journal.codec import Codec
from ..journal.events import check_name, micros, moment
from ..journal.journal import Journal
from ..ports import RunQuery
from .checkpoints import ANYTHING, Checkpoints, StoredCheckpoint
from .manifest import BytesField, Fields, ListField

STATE = "state"
_DEEPEST = 8
"""How many levels of nested mappings become fields. Deeper values are stored as bytes."""
_WIDE = 32
"""A mapping with more names stores its simple values as a list of pairs, so that a change costs one pair."""
_PAIRS = "\0"
_LONG = 1_000
"""Bytes above which a list in a mapping counts as large."""
KINDS = ("manual", "subtask", "irreversible", "periodic")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A session's state as of an event.

    `kind` says why it was saved. `skipped` holds the errors of newer checkpoints that could not be read. `values`,
    `next`, `pending`, `config` and `writes` are None in a list of checkpoints: load them with `session.state(id=…)`.
    """

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
        """When it was saved, in UTC."""
        return moment(self.time)


class StateCodec:
    """Turns values into fields, which share unchanged parts, and back."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def normalized(self, value: Any) -> Any:
        """A value as it will be read again: redacted, checked, and copied, so that later changes do not reach it."""
        return self._codec.decode_whole(self._encode(value))

    def field_of(self, value: Any, depth: int = 0) -> Any:
        """The field of a normalized value: a mapping by its names, a list by its items, any other value as bytes."""
        if type(value) is dict and value and depth < _DEEPEST and all(map(_is_name, value)):
            large = {name: inner for name, inner in value.items() if self._is_large(inner)}
            if len(value) <= _WIDE or len(large) > _WIDE:
                return {name: self.field_of(inner, depth + 1) for name, inner in value.items()}
            pairs = [[name] if name in large else [name, inner] for name, inner in value.items()]
            inside = {name: self.field_of(inner, depth + 1) for name, inner in large.items()}
            return {_PAIRS: ListField(pairs, self._encode, self._snapshot), **inside}
        if type(value) is list and value:
            return ListField(value, self._encode, self._snapshot)
        return BytesField(self._encode(value))

    def _is_large(self, value: Any) -> bool:
        """Whether a value is or contains a mapping with many names or a long list, which may grow."""
        if type(value) is dict:
            return len(value) > _WIDE or any(map(self._is_large, value.values()))
        return type(value) is list and (len(value) > _WIDE or len(self._encode(value)) > _LONG)

    def value_of(self, fields: Any) -> Any:
        """The value of a field that was read."""
        if isinstance(fields, dict):
            if _PAIRS in fields:
                pairs = self.value_of(fields[_PAIRS])
                return {pair[0]: pair[1] if len(pair) == 2 else self.value_of(fields[pair[0]]) for pair in pairs}
            return {name: self.value_of(inner) for name, inner in fields.items()}
        if isinstance(fields, list):
            return [self._codec.decode_whole(body) for body in fields]
        return self._codec.decode_whole(fields)

    def _encode(self, value: Any) -> bytes:
        return self._codec.encode(value, _no_reference).payload

    def _snapshot(self, values: Sequence[Any], known: Sequence[Any]) -> Sequence[Any]:
        return [self._encode(value) for value in values]


def _is_name(name: Any) -> bool:
    """Whether a mapping's key can be the name of a field."""
    if type(name) is not str or _PAIRS in name:
        return False
    return name.isascii() or not any("\ud800" <= letter <= "\udfff" for letter in name)


def _no_reference(body: bytes) -> bytes:
    raise InvalidInput(
        f"a value of {len(body):,} bytes is too large", hint="store it elsewhere, and store a reference to it"
    )


class StateCheckpoints:
    """The checkpoints of agents' states in one workspace."""

    def __init__(self, journal: Journal, checkpoints: Checkpoints) -> None:
        self._journal = journal
        self._checkpoints = checkpoints
        self._codec = StateCodec(journal.codec)

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
            raise InvalidInput(f"unknown kind of checkpoint: {shown(kind)}", hint=f"valid kinds: {', '.join(KINDS)}")
        if step is not None and (not isinstance(step, int) or isinstance(step, bool)):
            raise InvalidInput(f"`step` cannot be {shown(step)}", hint="give a whole number")
        if fence is not None and (not isinstance(fence, int) or isinstance(fence, bool) or fence < 0):
            raise InvalidInput(f"`fence` cannot be {shown(fence)}", hint="give the fence of your lease")
        if not isinstance(pin, bool):
            raise InvalidInput(f"`pin` cannot be {shown(pin)}", hint="give True or False")
        if after is not ANYTHING and after is not None:
            check_name("checkpoint", after)
        given = {"values": values, "next": next, "pending": pending, "config": config, "writes": writes}
        known = self._codec.normalized({name: value for name, value in given.items() if value is not None})
        fields = {name: self._codec.field_of(value) for name, value in known.items()}
        saved = await self._checkpoints.save(
            session,
            STATE,
            fields,
            {"step": step, "kind": kind},
            after=after,
            subject=subject,
            pinned=pin,
            fence=fence,
        )
        return _info(saved, **known)

    async def load(self, session: str, *, id: str | None, at: int | dt.datetime | None) -> Checkpoint | None:
        """The newest state, at or before a position or a time, or the one with an id; None if there is none."""
        position, until = None, None
        if isinstance(at, dt.datetime):
            until = micros("at", at)
        elif at is not None:
            if not isinstance(at, int) or isinstance(at, bool) or at < 0:
                raise InvalidInput(
                    f"`at` cannot be {shown(at)}", hint="give a position, or a datetime with a time zone"
                )
            position = at
        if id is not None:
            id = check_name("checkpoint", id)
        saved = await self._checkpoints.load(session, STATE, id=id, at=position, until=until)
        return None if saved is None else self._checkpoint(saved)

    def _checkpoint(self, saved: StoredCheckpoint) -> Checkpoint:
        fields: Fields = saved.fields or {}
        opened = {name: self._codec.value_of(inner) for name, inner in fields.items()}
        known = {name: opened.get(name) for name in ("values", "next", "pending", "config", "writes")}
        return _info(saved, **known)

    async def list(self, session: str, limit: int | None) -> AsyncGenerator[Checkpoint, None]:
        """The checkpoints without their values, newest first."""
        if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
            raise InvalidInput(f"`limit` cannot be {shown(limit)}", hint="give a whole number from 0")
        async for saved in self._checkpoints.list(session, STATE, limit=limit):
            yield _info(saved)

    async def pin(self, session: str, id: str, pinned: bool) -> None:
        """Protect a checkpoint from expiring, or stop protecting it."""
        if not isinstance(pinned, bool):
            raise InvalidInput(f"`pinned` cannot be {shown(pinned)}", hint="give True or False")
        if not await self._checkpoints.pin(session, STATE, id, pinned):
            raise InvalidInput(
                f"session {shown(session)} has no checkpoint {shown(id)} of its own",
                hint="list them with session.checkpoints(); a shared one is pinned in the session it was forked from",
            )

    async def expire(self, session: str, *, keep_last: int, older_than: float | None) -> int:
        """Remove old checkpoints of a session, and return how many.

        The newest `keep_last` stay, and so do pinned ones, those younger than `older_than` seconds, and those that a
        fork continues from. A session with an unfinished run keeps all.
        """
        if not isinstance(keep_last, int) or isinstance(keep_last, bool) or keep_last < 1:
            raise InvalidInput(f"`keep_last` cannot be {shown(keep_last)}", hint="give a whole number from 1")
        if older_than is not None and (not isinstance(older_than, (int, float)) or not 0 <= older_than < 1e10):
            raise InvalidInput(f"`older_than` cannot be {shown(older_than)}", hint="give seconds from 0")

        async def expired() -> Sequence[str]:
            return await self._expired(session, keep_last, int((older_than or 0) * 1e6))

        return await self._checkpoints.drop(session, STATE, expired, reason="expired")

    async def _expired(self, session: str, keep_last: int, age: int) -> Sequence[str]:
        if await self._is_unfinished(session):
            return []
        try:
            newest = await self._checkpoints.load(session, STATE)
        except CheckpointDamaged:
            return []  # no checkpoint can be read, so remove none
        shared = await self._fork_points(session)
        limit, expired, seen = self._journal.clock.now() - age, [], 0
        async for saved in self._checkpoints.list(session, STATE):
            if saved.session != session:
                break
            if newest is not None and saved.position > newest.position:
                continue  # it cannot be read: count from the newest readable one
            seen += 1
            needed = {point for point in shared if point >= saved.position}
            shared -= needed  # a fork continues from the newest checkpoint at or before its start
            if seen > keep_last and not saved.pinned and saved.time <= limit and not needed:
                expired.append(saved.id)
        return expired

    async def _is_unfinished(self, session: str) -> bool:
        query = RunQuery(status=("open",), session=session, limit=1, strict=True)
        return bool(await self._journal.store.runs(self._journal.workspace, query))

    async def _fork_points(self, session: str) -> set[int]:
        """The last positions of this session that other sessions share, including forks of forks."""
        found: set[int] = set()
        async for row in self._journal.sessions():
            if row.parent is not None:
                shared = await self._journal.reader.lineage(row.session)
                found.update(one.last for one in shared if one.session == session)
        return found


def _info(saved: StoredCheckpoint, **fields: Any) -> Checkpoint:
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
