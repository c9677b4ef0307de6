"""Pending proposals and open runs as files that are never read back."""

from __future__ import annotations

from ...journal.events import moment
from ...journal.journal import Journal
from ...memory.knowledge.proposals import ProposalState
from ...memory.memory_service import MemoryService
from ...ports import RunQuery
from ..formats.index_file import brief

_NOTE = "Written by duramen. Changes to this file are overwritten and never read."
_MOST = 100


async def runtime_files(journal: Journal, service: MemoryService, own: str) -> dict[str, str]:
    """The texts of the runtime files by path."""
    pending = [
        f"- [{one.kind}] {brief(one.content)} (`{one.id}`, {one.made:%Y-%m-%d %H:%M})"
        async for one in service.proposals.listed(ProposalState.PENDING, None, True)
    ]
    rows = await journal.store.runs(journal.workspace, RunQuery(status=("open",), limit=_MOST))
    runs = []
    for row, _ in rows:
        waits = "" if row.waiting is None else f", waits for {brief(row.waiting, 80)}"
        runs.append(f"- {brief(row.task, 80)} (`{row.run}`), since {moment(row.created):%Y-%m-%d %H:%M}{waits}")
    return {
        f"workspace/{own}/runtime/proposals.md": _page("Pending proposals", pending),
        f"workspace/{own}/runtime/runs.md": _page("Open runs", runs),
    }


def _page(title: str, lines: list[str]) -> str:
    return "\n".join([f"# {title}", "", _NOTE, "", *(lines or ["None."]), ""])
