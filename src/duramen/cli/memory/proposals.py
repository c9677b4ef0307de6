"""`duramen proposals …`: what may be saved about people, and who decides."""

from __future__ import annotations

from typing import Any

from ...api._sync.duramen import Duramen
from ...errors import InvalidInput, UnknownProposal
from ...memory.knowledge.proposals import Proposal
from ..durations import iso
from ..runs.actions import actor
from ..screen import Column, Screen, Sheet, cell, expect_json, print_json
from ..terminal_text import visible
from .list_memories import SHORT

_COLUMNS = (
    Column("proposal", least=SHORT, style="cyan"),
    Column("kind", least=8, most=12),
    Column("about", least=5, most=16),
    Column("made (UTC)", least=16),
    Column("says", least=12, most=48),
    Column("said", least=12, rest=True),
)
_STATES = ("pending", "accepted", "dismissed")


def list_all(dm: Duramen, state: str, subject: str | None, as_json: bool) -> None:
    """Print the proposals in a state, newest first."""
    found = list(dm.memory.proposals.list(state, subject=subject))
    if as_json:
        expect_json()
        for one in found:
            print_json(_fields(one))
        return
    if not found:
        Screen(stderr=True).say(f"No proposals are {visible(state)} in workspace {visible(dm.workspace)}.")
        return
    rows = [
        [
            cell(value)
            for value in (one.id[:SHORT], one.kind, one.subject, f"{one.made:%Y-%m-%d %H:%M}", _says(one), _why(one))
        ]
        for one in found
    ]
    sheet = Sheet(Screen(), _COLUMNS)
    sheet.begin(rows)
    sheet.add(rows)


def _says(one: Proposal) -> str:
    text = " ".join(one.content.split())
    return f"{one.key}: {text}" if one.key and one.kind == "profile" else text


def _why(one: Proposal) -> str:
    why = f'"{" ".join(one.evidence.split())}"' if one.evidence else one.reason
    return f"{why} ({one.source})" if one.source else why


def _fields(one: Proposal) -> dict[str, Any]:
    names = ("id", "kind", "content", "key", "title", "subject", "evidence", "reason", "confidence", "source")
    told = {name: getattr(one, name) for name in names}
    decided = {"decided": iso(one.decided), "decided_by": one.decided_by, "note": one.note, "memory": one.memory}
    return {**told, "state": one.state.value, "made": iso(one.made), **decided}


def _id(dm: Duramen, id: str) -> str:
    """The id of a proposal from its beginning. Raises `UnknownProposal`."""
    try:
        return dm.memory.proposals.get(id).id
    except UnknownProposal:
        alike = [one.id for state in _STATES for one in dm.memory.proposals.list(state) if one.id.startswith(id)]
        if not alike or len(id) < 4:
            raise
    if len(alike) > 1:
        raise InvalidInput(
            f"{id!r} is the beginning of {len(alike)} proposals", hint=f"say more: {', '.join(alike[:5])}"
        )
    return alike[0]


def accept(dm: Duramen, id: str, content: str | None, title: str | None) -> None:
    """Save what was proposed."""
    done = dm.memory.proposals.accept(_id(dm, id), content=content, title=title, actor=actor())
    became = "" if done.memory is None else f" as memory {visible(done.memory[:SHORT])}"
    Screen().say("Accepted", became, ": ", (visible(_says(done)), "cyan"))


def dismiss(dm: Duramen, id: str, note: str | None) -> None:
    """Do not save it."""
    done = dm.memory.proposals.dismiss(_id(dm, id), note=note, actor=actor())
    Screen().say("Dismissed: ", (visible(_says(done)), "cyan"), ". It does not come back.")
