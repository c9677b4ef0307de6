"""What goes on now, as files that are never read back: pending proposals, and runs that are not finished."""

from __future__ import annotations

from ...journal.events import moment
from ...journal.journal import Journal
from ...memory.knowledge.proposals import ProposalState
from ...memory.memory_service import MemoryService
from ...ports import RunQuery
from ..formats.index_file import brief

_NOTE = "Written by duramen, volatile: nothing here is read back."
_MOST = 100


async def runtime_files(journal: Journal, service: MemoryService, own: str) -> dict[str, str]:
    """The texts of the volatile files, by path."""
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
        f"workspace/{own}/runtime/proposals.md": _page("Proposals that wait for a person", pending),
        f"workspace/{own}/runtime/runs.md": _page("Runs that are not finished", runs),
    }


def _page(title: str, lines: list[str]) -> str:
    return "\n".join([f"# {title}", "", _NOTE, "", *(lines or ["Nothing."]), ""])
