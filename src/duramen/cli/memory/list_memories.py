"""`duramen memory list` and `search`: memories, one on a line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from ...api._sync.duramen import Duramen
from ...memory.catalog.records import Hit, Memory
from ..durations import iso
from ..json_format import plain
from ..screen import Cell, Column, Screen, Sheet, cell, expect_json, print_json
from ..terminal_text import visible

SHORT = 10
"""Letters of an id that are shown: enough to tell memories apart, and commands take as many."""
_BATCH = 200
_LEAST = 0.01
"""What is less like a query than this was found by its age alone."""
_COLUMNS = (
    Column("memory", least=SHORT, style="cyan"),
    Column("kind", least=8, most=12),
    Column("about", least=5, most=20),
    Column("confirmed", least=10),
    Column("says", least=12, rest=True),
)


def fields(memory: Memory) -> dict[str, Any]:
    """A memory as JSON."""
    times = ("valid_from", "valid_to", "recorded", "confirmed", "expires", "ended", "recalled_at")
    names = ("id", "kind", "content", "title", "key", "subject", "scope", "speaker", "importance", "confidence")
    told = {name: getattr(memory, name) for name in names} | {name: iso(getattr(memory, name)) for name in times}
    rest = {"times": memory.times, "recalled": memory.recalled, "successor": memory.successor, "source": memory.source}
    return {**told, **rest, "metadata": plain(dict(memory.metadata))}


def says(memory: Memory) -> str:
    """A memory on one line."""
    text = " ".join(memory.content.split())
    return f"{memory.title}: {text}" if memory.title and memory.title not in text else text


def _row(memory: Memory) -> list[Cell]:
    values = (memory.id[:SHORT], memory.kind, memory.subject, f"{memory.confirmed:%Y-%m-%d}", says(memory))
    return [cell(value) for value in values]


def list_memories(
    dm: Duramen, kinds: Sequence[str] | None, subject: str | None, limit: int | None, as_json: bool
) -> None:
    """Print memories in the order in which they were remembered."""
    found = dm.memory.list(kinds=kinds or None, subject=subject, everyone=subject is None)
    memories = islice(found, limit)
    if as_json:
        expect_json()
        for memory in memories:
            print_json(fields(memory))
        return
    _table(_COLUMNS, (_row(memory) for memory in memories), dm, subject)


def _table(columns: Sequence[Column], rows: Iterable[list[Cell]], dm: Duramen, subject: str | None) -> None:
    rows = iter(rows)
    sheet = Sheet(Screen(), columns)
    batch = list(islice(rows, _BATCH))
    if not batch:
        about = "" if subject is None else f" about {visible(subject)}"
        Screen(stderr=True).say(f"There is nothing like that{about} in workspace {visible(dm.workspace)}.")
        return
    sheet.begin(batch)
    while batch:
        sheet.add(batch)
        batch = list(islice(rows, _BATCH))


_FOUND = (
    Column("memory", least=SHORT, style="cyan"),
    Column("like", least=4, right=True),
    *_COLUMNS[1:3],
    _COLUMNS[-1],
)


def search_memories(
    dm: Duramen,
    query: str,
    kinds: Sequence[str] | None,
    subject: str | None,
    limit: int,
    *,
    explain: bool,
    as_json: bool,
) -> None:
    """Print what fits a query, best first, and say what the search had to do without."""
    found = dm.memory.recall(
        query, kinds=kinds or None, subject=subject, everyone=subject is None, limit=limit, threshold=_LEAST
    )
    if as_json:
        expect_json()
        for hit in found:
            parts = {"score": hit.score, "likeness": hit.likeness, "parts": dict(hit.parts), "note": hit.note}
            print_json({**fields(hit.memory), **parts})
    else:
        _table(_FOUND, (_hit(hit) for hit in found), dm, subject)
        for hit in found if explain else ():
            _explain(hit)
    waiting = [f"{found.waiting:,} memories have no vector yet: they are found by words alone"] if found.waiting else []
    for note in (*(f"searched without {one}" for one in found.missing), *waiting):
        Screen(stderr=True).say(("Note: ", "bold"), visible(note))


def _explain(hit: Hit) -> None:
    """What a score is made of."""
    screen = Screen()
    screen.say("")
    screen.say((visible(hit.memory.id[:SHORT]), "cyan"), f"  score {hit.score:.3f}")
    for name, value in hit.parts.items():
        screen.say(f"  {name:<16}{value:+.3f}")


def _hit(hit: Hit) -> list[Cell]:
    memory, note = hit.memory, f" ({hit.note})" if hit.note else ""
    values = (memory.id[:SHORT], f"{hit.likeness:.2f}", memory.kind, memory.subject, says(memory) + note)
    return [cell(value) for value in values]
