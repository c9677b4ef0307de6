"""`duramen memory list` and `search`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from ...api._sync.duramen import Duramen
from ...memory.catalog.records import Hit, Memory
from ..console import PlainConsole, print_json, use_utf8_stdout
from ..durations import iso_datetime
from ..json_format import json_value
from ..table import Cell, Column, Table, cell
from ..terminal_text import visible

SHORT_ID = 10
"""How many characters of an id are shown: enough to distinguish memories. The commands accept the short form."""
_BATCH = 200
_MIN_LIKENESS = 0.01
"""A memory with a lower likeness matches by its age alone."""
_COLUMNS = (
    Column("memory", min_width=SHORT_ID, style="cyan"),
    Column("kind", min_width=8, max_width=12),
    Column("about", min_width=5, max_width=20),
    Column("confirmed", min_width=10),
    Column("says", min_width=12, fill=True),
)


def memory_fields(memory: Memory) -> dict[str, Any]:
    """A memory as JSON."""
    times = ("valid_from", "valid_to", "recorded", "confirmed", "expires", "ended", "recalled_at")
    names = ("id", "kind", "content", "title", "key", "subject", "scope", "speaker", "importance", "confidence")
    known = {name: getattr(memory, name) for name in names} | {
        name: iso_datetime(getattr(memory, name)) for name in times
    }
    rest = {"times": memory.times, "recalled": memory.recalled, "successor": memory.successor, "source": memory.source}
    return {**known, **rest, "metadata": json_value(dict(memory.metadata))}


def memory_line(memory: Memory) -> str:
    """A memory on one line."""
    text = " ".join(memory.content.split())
    return f"{memory.title}: {text}" if memory.title and memory.title not in text else text


def _row(memory: Memory) -> list[Cell]:
    values = (memory.id[:SHORT_ID], memory.kind, memory.subject, f"{memory.confirmed:%Y-%m-%d}", memory_line(memory))
    return [cell(value) for value in values]


def list_memories(
    dm: Duramen, kinds: Sequence[str] | None, subject: str | None, limit: int | None, as_json: bool
) -> None:
    """Print memories in the order in which they were remembered."""
    listed = dm.memory.list(kinds=kinds or None, subject=subject, everyone=subject is None)
    memories = islice(listed, limit)
    if as_json:
        use_utf8_stdout()
        for memory in memories:
            print_json(memory_fields(memory))
        return
    _print_table(_COLUMNS, (_row(memory) for memory in memories), dm, subject)


def _print_table(columns: Sequence[Column], rows: Iterable[list[Cell]], dm: Duramen, subject: str | None) -> None:
    rows = iter(rows)
    table = Table(PlainConsole(), columns)
    batch = list(islice(rows, _BATCH))
    if not batch:
        about = "" if subject is None else f" about {visible(subject)}"
        PlainConsole(stderr=True).print_line(f"No memories{about} match in workspace {visible(dm.workspace)}.")
        return
    table.begin(batch)
    while batch:
        table.add(batch)
        batch = list(islice(rows, _BATCH))


_HIT_COLUMNS = (
    Column("memory", min_width=SHORT_ID, style="cyan"),
    Column("like", min_width=4, align_right=True),
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
    """Print the memories that match a query, best first, and what the search had to do without."""
    found = dm.memory.recall(
        query, kinds=kinds or None, subject=subject, everyone=subject is None, limit=limit, threshold=_MIN_LIKENESS
    )
    if as_json:
        use_utf8_stdout()
        for hit in found:
            parts = {"score": hit.score, "likeness": hit.likeness, "parts": dict(hit.parts), "note": hit.note}
            print_json({**memory_fields(hit.memory), **parts})
    else:
        _print_table(_HIT_COLUMNS, (_hit_row(hit) for hit in found), dm, subject)
        for hit in found if explain else ():
            _print_score(hit)
    waiting = [f"{found.waiting:,} memories have no vector yet and are found by words only"] if found.waiting else []
    for note in (*(f"searched without {one}" for one in found.missing), *waiting):
        PlainConsole(stderr=True).print_line(("Note: ", "bold"), visible(note))


def _print_score(hit: Hit) -> None:
    """Print the parts of a score."""
    console = PlainConsole()
    console.print_line("")
    console.print_line((visible(hit.memory.id[:SHORT_ID]), "cyan"), f"  score {hit.score:.3f}")
    for name, value in hit.parts.items():
        console.print_line(f"  {name:<16}{value:+.3f}")


def _hit_row(hit: Hit) -> list[Cell]:
    memory, note = hit.memory, f" ({hit.note})" if hit.note else ""
    values = (memory.id[:SHORT_ID], f"{hit.likeness:.2f}", memory.kind, memory.subject, memory_line(memory) + note)
    return [cell(value) for value in values]
