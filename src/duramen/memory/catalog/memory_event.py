"""Validates memories, builds their events, and derives the catalog row from an event."""

from __future__ import annotations

import datetime as dt
import unicodedata
from base64 import b32encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypedDict

import msgspec

from ...errors import InvalidInput, shown
from ...journal.encoder import Prepared
from ...journal.events import check_name, micros, moment
from ...journal.owners import Owner
from ...ports import BatchChange, MemoryChanges, MemoryRow
from ..extraction.expiry import holds_until

ADDED = "memory.added"
SCOPES = ("workspace", "subject", "session")
_LASTING_KINDS = frozenset(["episode", "procedure"])
"""Kinds whose text never sets an end, even if it says "until Friday"."""
_MAX_TTL = 100 * 366 * 24 * 3600 * 1_000_000
MAX_BATCH = 1_000
"""How many memories one append may hold. More would block other writers for long."""
MemoryInput = str | Mapping[str, Any]
"""A text, or a dict with its `content` and other details."""
_pack = msgspec.msgpack.encode
_unpack = msgspec.msgpack.decode


class MemoryDetails(TypedDict, total=False):
    """Details of a memory other than its content and kind.

    Attributes:
        key: what it is about, such as "home city": a newer memory with the same key replaces it.
        title: a short heading.
        metadata: plain data to filter by.
        importance: from 0 (trivial) to 1 (vital); 0.5 if not given.
        confidence: from 0 to 1; 1 if not given.
        valid_from: when it starts to hold in the world; now if not given.
        valid_to: when it ceases to hold in the world; never if not given.
        ttl: seconds after which it is no longer recalled; stating it again restarts the time.
        lasting: True if it does not end, although its text says "today", "this week" or "until Friday". By default it
            ends then.
        scope: who may recall it: "workspace", "subject" (the person it is about) or "session".
        speaker: who said it.
        relations: relations between names that it mentions, each as (subject, relation, object), such as ("Ada",
            "manages", "Bo"); `neighbours` returns them together with those it reads from the text.
    """

    key: str | None
    title: str | None
    metadata: Mapping[str, Any] | None
    importance: float
    confidence: float
    valid_from: dt.datetime | None
    valid_to: dt.datetime | None
    ttl: float | dt.timedelta | None
    lasting: bool
    scope: str | None
    speaker: str | None
    relations: Sequence[tuple[str, str, str]] | None


_DETAIL_NAMES = sorted(MemoryDetails.__annotations__)


def memory_data(content: str, kind: str, details: Mapping[str, Any], now: int | None = None) -> dict[str, Any]:
    """The data of a memory's event. With `now`, a statement that says how long it holds gets that end. Raises
    `InvalidInput`."""
    if not isinstance(content, str) or not content.strip():
        raise InvalidInput("there is nothing to remember", hint="give a text that is not empty")
    if not content.isascii():
        check_unicode(content)
    data: dict[str, Any] = {"content": content, "kind": check_name("kind", kind)}
    if details:
        _add_details(data, details)
    lasting = details.get("lasting", False)
    if not isinstance(lasting, bool):
        raise InvalidInput(f"`lasting` cannot be {shown(lasting)}", hint="give True or False")
    if now is not None and not lasting and kind not in _LASTING_KINDS and "valid_to" not in data and "ttl" not in data:
        end = holds_until(content, data.get("valid_from", now))
        if end is not None:
            data["valid_to"] = end
    return data


def memory_data_list(
    contents: Iterable[MemoryInput], kind: str, details: Mapping[str, Any], now: int
) -> list[dict[str, Any]]:
    """The event data of several memories. The details of one memory override the common `details`. Raises
    `InvalidInput`, which names the place of the invalid memory."""
    if isinstance(contents, (str, bytes, Mapping)) or not isinstance(contents, Iterable):
        raise InvalidInput(
            f"remember_all() needs a list of memories, not {type(contents).__name__}",
            hint="give a list, or call `remember` for one memory",
        )
    every = list(contents)
    if len(every) > MAX_BATCH:
        raise InvalidInput(
            f"{len(every):,} memories are too many for one call", hint=f"give at most {MAX_BATCH:,} in a call"
        )
    return [_memory_data(place, given, kind, details, now) for place, given in enumerate(every)]


def _memory_data(place: int, given: MemoryInput, kind: str, details: Mapping[str, Any], now: int) -> dict[str, Any]:
    own: dict[str, Any] = (
        {"content": given} if isinstance(given, str) else dict(given) if isinstance(given, Mapping) else {}
    )
    if "content" not in own:
        raise InvalidInput(f"contents[{place}]: there is no content", hint='give a text, or {"content": text, …}')
    content, kind = own.pop("content"), own.pop("kind", kind)
    try:
        return memory_data(content, kind, {**details, **own}, now)
    except InvalidInput as error:
        raise InvalidInput(f"contents[{place}]: {error.message}", hint=error.hint) from None


def _add_details(data: dict[str, Any], details: Mapping[str, Any]) -> None:
    """Check the details of a memory and add them to its data."""
    unknown = details.keys() - MemoryDetails.__annotations__.keys()
    if unknown:
        raise InvalidInput(
            f"unknown detail {shown(min(unknown))} of a memory", hint=f"valid details: {', '.join(_DETAIL_NAMES)}"
        )
    for name in ("key", "title", "speaker"):
        if details.get(name) is not None:
            data[name] = check_name(name, details[name])
    for name, usual in (("importance", 0.5), ("confidence", 1.0)):
        value = _share(name, details.get(name, usual))
        if value != usual:
            data[name] = value
    for name in ("valid_from", "valid_to"):
        if details.get(name) is not None:
            data[name] = micros(name, details[name])
    if data.get("valid_to", _MAX_TTL * 99) <= data.get("valid_from", -_MAX_TTL * 99):
        raise InvalidInput("valid_to is not after valid_from", hint="give a valid_to that is later than valid_from")
    if details.get("ttl") is not None:
        data["ttl"] = _duration(details["ttl"])
    if details.get("scope") is not None:
        data["scope"] = _scope(details["scope"])
    if details.get("metadata"):
        data["metadata"] = _metadata(details["metadata"])
    if details.get("relations"):
        mentioned = (data["content"], data.get("title"), data.get("speaker"))
        data["relations"] = _relations(details["relations"], " ".join(filter(None, mentioned)))


def check_unicode(content: str) -> None:
    """Raise `InvalidInput` for text with lone surrogates."""
    try:
        content.encode()
    except UnicodeEncodeError:
        raise InvalidInput("the content is not valid Unicode", hint="remove lone surrogates") from None


def _share(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise InvalidInput(f"`{name}` cannot be {shown(value)}", hint="give a number from 0 to 1")
    return float(value)


def _duration(value: object) -> int:
    micros: float = 0
    if isinstance(value, dt.timedelta):
        micros = value // dt.timedelta(microseconds=1)
    elif isinstance(value, (int, float)) and not isinstance(value, bool) and value <= _MAX_TTL:
        micros = value * 1e6
    if not 1 <= micros <= _MAX_TTL:
        raise InvalidInput(
            f"`ttl` cannot be {shown(value)}", hint="give seconds or a timedelta, more than 0, at most 100 years"
        )
    return int(micros)


def _scope(value: object) -> str:
    if value not in SCOPES:
        raise InvalidInput(f"`scope` cannot be {shown(value)}", hint=f"give one of {', '.join(SCOPES)}")
    return str(value)


def _metadata(value: object) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InvalidInput("`metadata` is not a mapping with text keys", hint="give a dict with text keys")
    if not _is_plain(dict(value)):
        hint = "use text, numbers, bytes and times, or lists and dicts of these"
        raise InvalidInput("`metadata` has a value that cannot be searched", hint=hint)
    return dict(value)


def _relations(value: object, text: str) -> list[list[str]]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise InvalidInput("`relations` is not a list", hint='give a list such as [("Ada", "manages", "Bo")]')
    text, found = " ".join(text.split()).casefold(), []
    for one in value:
        if not isinstance(one, (list, tuple)) or len(one) != 3:
            raise InvalidInput(
                f"{shown(one)} is not a relation",
                hint='give a subject, a relation and an object: ("Ada", "manages", "Bo")',
            )
        names = [" ".join(check_name("relation", part).split()) for part in one]
        for name in (names[0], names[2]):
            if name.casefold() not in text:
                raise InvalidInput(
                    f"the memory does not mention {shown(name)}",
                    hint="use names that are in its content, title or speaker",
                )
        found.append(names)
    return found


def _is_plain(value: dict[str, Any]) -> bool:
    """Whether the value is the same after it was packed into an index entry and unpacked."""
    try:
        return bool(_unpack(_pack(value)) == value)
    except (TypeError, ValueError, OverflowError, RecursionError):  # a lone surrogate is a ValueError
        return False


def audience_of(scope: str, ref: bytes | None, session: str) -> bytes:
    """The audience of a memory. `ref` is the reference of its subject. Raises `InvalidInput`."""
    if scope == "subject":
        if ref is None:
            raise InvalidInput("the scope 'subject' needs a subject", hint="give `subject`, or choose another scope")
        return b"s" + ref
    return b"t" + session.encode() if scope == "session" else b""


def memory_id(owner: Owner, audience: bytes, kind: str, key: str | None, speaker: str | None, content: str) -> str:
    """The id of a memory: a hash of its content (spacing is ignored), audience, kind, key and speaker. The speaker
    counts, because "yes" of two people is two statements. The hash is keyed with the owner's salt, so that an id
    reveals nothing once the owner is erased."""
    given = " ".join(unicodedata.normalize("NFC", content).split())
    hashed = blake2b(_pack((audience, kind, key, speaker, given)), digest_size=15, key=owner.salt).digest()
    return b32encode(hashed).decode().lower()


def default_scope(owner: Owner) -> str:
    """The scope of a memory whose details give none."""
    return "workspace" if owner.name is None else "subject"


def memory_row(session: str, index: int, data: Mapping[str, Any], owner: Owner) -> MemoryRow:
    """The catalog row of a memory's event. `index` is the event's place in its append. The store fills in the time of
    the event: `expires` is relative to it, and `begins` 0 means it."""
    person = None if owner.name is None else owner.ref  # in a sealed store, the workspace also has a reference
    audience = audience_of(data.get("scope") or default_scope(owner), person, session)
    kind, key = data["kind"], data.get("key")
    return MemoryRow(
        audience=audience,
        id=memory_id(owner, audience, kind, key, data.get("speaker"), data["content"]),
        session=session,
        position=index,
        kind=kind,
        key=key,
        owner=owner.ref,
        recorded=0,
        begins=(data["valid_from"] or 1) if "valid_from" in data else 0,  # 0 means the time of the event
        ends=data.get("valid_to"),
        expires=data.get("ttl"),
        importance=data.get("importance", 0.5),
        confidence=data.get("confidence", 1.0),
        confirmed=0,
    )


class MemoryProjection:
    """The catalog rows of memory events."""

    types = frozenset({ADDED})

    def extend(
        self, session: str, prepared: Sequence[Prepared], owner: Owner, changes: Sequence[BatchChange]
    ) -> Sequence[BatchChange]:
        """The changes of a batch, plus the rows of the memories among its events, unless the batch has memory rows."""
        if any(isinstance(change, MemoryChanges) and change.memories for change in changes):
            return changes
        rows = [
            memory_row(session, index, one.data, owner)
            for index, one in enumerate(prepared)
            if one.draft.type == ADDED and isinstance(one.data, dict) and is_memory(one.data)
        ]
        if not rows:
            return changes
        renewing = [row.position for row in rows if has_extra_details(prepared[row.position].data)]
        return (*changes, MemoryChanges(rows, renewing))


def has_extra_details(data: Mapping[str, Any]) -> bool:
    """Whether an event has details that no row holds. They must not be lost if the memory was stored without them
    before."""
    return bool(data.get("title") or data.get("metadata") or data.get("relations"))


def is_memory(data: dict[str, Any]) -> bool:
    """Whether this is valid `memory_data`, with or without the steps of a procedure. Any caller may append an event of
    this type. An invalid one stays an event and must not block valid ones."""
    given = {name: value for name, value in data.items() if name != "procedure"}
    details = {name: value for name, value in given.items() if name not in ("content", "kind")}
    try:
        for name in {"valid_from", "valid_to"} & details.keys():
            details[name] = moment(details[name])
        if "ttl" in details:
            details["ttl"] = dt.timedelta(microseconds=details["ttl"])
        return memory_data(data["content"], data["kind"], details) == given
    except (InvalidInput, KeyError, TypeError, OverflowError):
        return False
