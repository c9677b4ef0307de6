"""`duramen proposals …`: what a person has to decide before it is saved."""

from __future__ import annotations

from typing import Any

from ...api._sync.duramen import Duramen
from ...errors import InvalidInput, UnknownProposal
from ...memory.knowledge.proposals import Proposal
from ..actor import cli_actor
from ..console import PlainConsole, print_json, use_utf8_stdout
from ..durations import iso_datetime
from ..table import Column, Table, cell
from ..terminal_text import visible
from .list_memories import SHORT_ID

_COLUMNS = (
    Column("proposal", min_width=SHORT_ID, style="cyan"),
    Column("kind", min_width=8, max_width=12),
    Column("about", min_width=5, max_width=16),
    Column("made (UTC)", min_width=16),
    Column("says", min_width=12, max_width=48),
    Column("based on", min_width=12, fill=True),
)
_STATES = ("pending", "accepted", "dismissed")


def list_proposals(dm: Duramen, state: str, subject: str | None, as_json: bool) -> None:
    """Print the proposals in a state, newest first."""
    proposals = list(dm.memory.proposals.list(state, subject=subject))
    if as_json:
        use_utf8_stdout()
        for one in proposals:
            print_json(_fields(one))
        return
    if not proposals:
        PlainConsole(stderr=True).print_line(
            f"There are no {visible(state)} proposals in workspace {visible(dm.workspace)}."
        )
        return
    rows = [
        [
            cell(value)
            for value in (
                one.id[:SHORT_ID],
                one.kind,
                one.subject,
                f"{one.made:%Y-%m-%d %H:%M}",
                _proposal_line(one),
                _evidence(one),
            )
        ]
        for one in proposals
    ]
    table = Table(PlainConsole(), _COLUMNS)
    table.begin(rows)
    table.add(rows)


def _proposal_line(one: Proposal) -> str:
    text = " ".join(one.content.split())
    return f"{one.key}: {text}" if one.key and one.kind == "profile" else text


def _evidence(one: Proposal) -> str:
    why = f'"{" ".join(one.evidence.split())}"' if one.evidence else one.reason
    return f"{why} ({one.source})" if one.source else why


def _fields(one: Proposal) -> dict[str, Any]:
    names = ("id", "kind", "content", "key", "title", "subject", "evidence", "reason", "confidence", "source")
    known = {name: getattr(one, name) for name in names}
    decided = {
        "decided": iso_datetime(one.decided),
        "decided_by": one.decided_by,
        "note": one.note,
        "memory": one.memory,
    }
    return {**known, "state": one.state.value, "made": iso_datetime(one.made), **decided}


def _proposal_id(dm: Duramen, id: str) -> str:
    """The full id of the proposal whose id is, or begins with, `id`. Raises `UnknownProposal`."""
    try:
        return dm.memory.proposals.get(id).id
    except UnknownProposal:
        matching = [one.id for state in _STATES for one in dm.memory.proposals.list(state) if one.id.startswith(id)]
        if not matching or len(id) < 4:
            raise
    if len(matching) > 1:
        raise InvalidInput(
            f"{len(matching)} proposals begin with {id!r}", hint=f"give more characters: {', '.join(matching[:5])}"
        )
    return matching[0]


def accept_proposal(dm: Duramen, id: str, content: str | None, title: str | None) -> None:
    """Accept a proposal and save it."""
    done = dm.memory.proposals.accept(_proposal_id(dm, id), content=content, title=title, actor=cli_actor())
    became = "" if done.memory is None else f" as memory {visible(done.memory[:SHORT_ID])}"
    PlainConsole().print_line("Accepted", became, ": ", (visible(_proposal_line(done)), "cyan"))


def dismiss_proposal(dm: Duramen, id: str, note: str | None) -> None:
    """Dismiss a proposal."""
    done = dm.memory.proposals.dismiss(_proposal_id(dm, id), note=note, actor=cli_actor())
    PlainConsole().print_line("Dismissed: ", (visible(_proposal_line(done)), "cyan"), ". It is not proposed again.")
