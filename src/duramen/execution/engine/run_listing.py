"""Lists runs by filter, and the open questions and steps in doubt of sessions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...errors import InvalidInput, shown
from ...journal.events import check_name, check_whole, micros
from ...ports import RunQuery
from .engine import Engine
from .run_control import RunControl
from .run_info import RunInfo, RunStatus

_OPEN = {RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.CRASHED, RunStatus.SLEEPING, RunStatus.WAITING}
_PAGE = 100
_MOST = 2**31


async def list_runs(
    control: RunControl,
    status: str | Iterable[str] | None,
    limit: int,
    *,
    task: str | None = None,
    queue: str | None = None,
    parent: str | None = None,
    session: str | None = None,
) -> list[RunInfo]:
    """The runs that match the filter, newest first. The store holds only "open" and the final statuses, so this reads
    pages until enough runs match."""
    statuses, limit = _statuses(status), min(check_whole("limit", limit, 0), _MOST)
    for name, given in (("task", task), ("queue", queue), ("parent", parent), ("session", session)):
        if given is not None:
            check_name(name, given)
    stored = None if statuses is None else tuple({"open" if one in _OPEN else one.value for one in statuses})
    found: list[RunInfo] = []
    before: tuple[int, str] | None = None
    size = max(limit, _PAGE)
    while len(found) < limit:
        query = RunQuery(
            before=before, limit=size, status=stored, task=task, queue=queue, parent=parent, session=session
        )
        page = await control.runs(query)
        found += [one for one in page if statuses is None or one.status in statuses]
        if len(page) < size:
            break
        last = (micros("created", page[-1].created), page[-1].id)
        if before is not None and last >= before:
            break
        before = last
    return found[:limit]


async def open_work(engine: Engine, control: RunControl, sessions: Sequence[str]) -> tuple[list[str], list[str]]:
    """What the open runs of some sessions wait for, and which of their steps are in doubt, in words.

    The question of a run with a subject is left out: a copy would survive the erasure of the subject.
    """
    questions: list[str] = []
    doubt: list[str] = []
    for session in sessions:
        for row in await list_runs(control, _OPEN, _PAGE, session=session):
            info = await control.info(row.id)
            doubt += [f"{step} of {info.task} ({info.id})" for step in info.in_doubt]
            if info.waiting is not None and not info.in_doubt:
                about = "a person" if await engine.subject_of(info.id) else info.waiting
                questions.append(f"{info.task} ({info.id}) waits for {about}")
    return questions, doubt


def _statuses(wanted: str | Iterable[str] | None) -> set[RunStatus] | None:
    if wanted is None:
        return None
    given = list(wanted) if isinstance(wanted, Iterable) and not isinstance(wanted, str) else [wanted]
    for one in given:
        if one not in tuple(RunStatus):
            raise InvalidInput(f"{shown(one)} is not a status", hint=f"use one of {', '.join(RunStatus)}")
    return {RunStatus(one) for one in given}
