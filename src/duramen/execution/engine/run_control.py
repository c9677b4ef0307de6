"""Operations on a run from outside: signal, answer, settle, cancel, list, fork, replay."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from ...errors import InvalidInput, RunError, SessionExists, UnknownTask, shown
from ...journal.events import Draft, check_name, check_whole
from ...ports import LeaseRow, RunQuery, RunRow
from ..steps.definitions import Task, check_task, known_task
from .control_flow import RunStopped, RunSuspended
from .execution import invoke
from .history import StepRecord
from .owner import has_live_owner
from .run_context import RunContext
from .run_info import RunInfo, created, ended, info_of, nudged

if TYPE_CHECKING:
    from .engine import Engine

Verdict = Literal["done", "retry", "abort"]


class RunControl:
    """Acts on runs that other processes may be executing."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._journal = engine.journal

    async def _append_external(
        self, row: RunRow, kind: str, data: dict[str, Any], actor: str | None, key: str | None = None
    ) -> None:
        """Append an event to the run's session and make the run due, in one transaction."""
        journal = self._journal
        key = None if key is None else journal.stored_name(key)
        owner = await journal.owner((await self._engine.opening(row)).subject)
        prepared = journal.prepare(Draft(kind, data, actor), owner)
        changes = [nudged(row.run, self._engine.now())]
        await journal.append_prepared(row.session, [prepared], owner, key=key, changes=changes)

    async def _open(self, run: str) -> RunRow:
        row = await self._engine.row(run)
        if row.status != "open":
            raise RunError(f"run {shown(run)} has ended ({row.status})", hint="choose an open run")
        return row

    async def signal(self, run: str, name: str, payload: Any, actor: str | None, key: str | None) -> None:
        """Send a signal to an open run. Repeating a call with the same key changes nothing."""
        name = self._engine.journal.stored_name(check_name("signal", name))
        key = None if key is None else check_name("idempotency key", key)
        row = await self._open(run)
        data = {"name": name} if payload is None else {"name": name, "payload": payload}
        await self._append_external(row, "signal.sent", data, actor, None if key is None else f"signal:{key}")

    async def answer(self, run: str, value: Any, question: str | None, actor: str | None) -> None:
        """Answer a question that a run has asked: the first open one, or the one with that text or step name."""
        row = await self._open(run)
        asked = (await self._engine.history(row)).open_asks()
        stored = self._engine.journal.redacted(question) if isinstance(question, str) else question
        found = [one for one in asked if stored in (None, one.details.get("question")) or question == one.step]
        if not found:
            which = "open question" if question is None else f"open question {shown(question)}"
            raise RunError(f"run {shown(run)} has no {which}", hint="see its open questions with dm.run_info(id)")
        data = {"name": found[0].step, "payload": value}
        await self._append_external(row, "signal.sent", data, actor, f"answer:{run}:{found[0].step}")

    async def settle(self, run: str, verdict: Verdict, value: Any, step: str | None, actor: str | None) -> None:
        """Record a person's verdict on a step in doubt.

        Raises `RunError` if a process executes the run, or if `step` does not select exactly one step in doubt.
        """
        if verdict not in ("done", "retry", "abort"):
            raise InvalidInput(
                f"{shown(verdict)} is not a verdict", hint='use "done" (with a value), "retry" or "abort"'
            )
        row = await self._open(run)
        record = await self._doubtful(row, step)
        recorded = {"done": "happened", "retry": "retry", "abort": "abort"}[verdict]
        data = {"step": record.step, "by": "person", "verdict": recorded}
        if verdict == "done" and value is not None:
            data["value"] = value
        await self._append_external(row, "step.settled", data, actor)

    async def _doubtful(self, row: RunRow, step: str | None) -> StepRecord:
        lease = await self._journal.store.lease(self._journal.workspace, row.session)
        if has_live_owner(lease, self._engine.now()):
            raise RunError(f"a process executes run {shown(row.run)} now", hint="settle it when no process executes it")
        doubt = (await self._engine.history(row)).in_doubt()
        found = [one for one in doubt if step is None or step in (one.step, one.step.partition("#")[0])]
        if len(found) != 1:
            if not doubt:
                raise RunError(f"run {shown(row.run)} has no step in doubt", hint="see its steps with dm.run_info(id)")
            names = ", ".join(one.step for one in doubt)
            raise RunError(f"run {shown(row.run)} has these steps in doubt: {names}", hint="name the step to settle")
        return found[0]

    async def cancel(self, run: str, reason: str | None, actor: str | None) -> None:
        """Ask a run to stop at its next step and to undo its steps. A run that has ended is left unchanged.

        A run with nothing to undo ends at once if no process executes it.
        """
        row = await self._engine.row(run)
        if row.status != "open":
            return
        await self._append_external(
            row, "run.cancelling", {"reason": reason} if reason else {}, actor, f"run.cancelling:{run}"
        )
        lease = await self._journal.acquire(row.session, f"cancelling {run}", 5.0)
        if lease is not None and not await self._end_cancelled(row, lease, reason):
            await self._journal.store.release(self._journal.workspace, row.session, lease.fence)

    async def _end_cancelled(self, row: RunRow, lease: LeaseRow, reason: str | None) -> bool:
        """End the run, unless it may have steps to undo. Returns whether the run ended."""
        journal, now = self._journal, self._engine.now()
        history = await self._engine.history(row)
        waits = ("@sleep", "@ask", "@signal")
        if history.ended is not None or any(not name.startswith(waits) for name in history.steps):
            return False
        owner = await journal.owner(history.subject)
        prepared = journal.prepare(Draft("run.cancelled", {"reason": reason} if reason else {}), owner)
        changes = [ended(row.run, "cancelled", now)]
        if row.parent is not None:
            changes.append(nudged(row.parent, now))
        await journal.append_prepared(
            row.session, [prepared], owner, key=f"run.ended:{row.run}", fence=lease.fence, changes=changes, release=True
        )
        return True

    # -- reading

    async def runs(self, query: RunQuery) -> list[RunInfo]:
        """The runs that match the query, newest first."""
        now = self._engine.now()
        rows = await self._journal.store.runs(self._journal.workspace, query)
        return [info_of(row, lease, now) for row, lease in rows]

    async def info(self, run: str, at: int | None = None) -> RunInfo:
        """A run with its steps; with `at`, the steps as of that position."""
        row = await self._engine.row(run)
        lease = await self._journal.store.lease(self._journal.workspace, row.session)
        history = await self._engine.history(row, at)
        return info_of(row, lease, self._engine.now(), history)

    # -- forks and replays

    async def fork(self, run: str, new: str, at: int | None) -> RunRow:
        """Create a run that shares another's events up to position `at` and continues from there. The other run is
        not changed. Without `at`, the fork begins just before the other run's end."""
        row = await self._engine.row(check_name("run", run))
        new = check_name("run", new)
        start = await self._engine.origin(row)
        at = await self._last_step(row) if at is None else check_whole("at", at, 0)
        if at < start:
            raise InvalidInput(
                f"cannot fork run {shown(run)} at position {shown(at)}: it begins at {start}",
                hint="choose a later position",
            )
        try:
            await self._journal.fork(row.session, new, at)
        except SessionExists:
            if await self._journal.store.run(self._journal.workspace, new) is not None:
                raise
        now = self._engine.now()
        forked = row._replace(
            run=new, session=new, status="open", waiting=None, wake=now, created=now, started=None, updated=now,
            ended=None, parent=None, nudges=0, origin=start,
        )  # fmt: skip
        owner = await self._journal.owner((await self._engine.opening(row)).subject)
        prepared = self._journal.prepare(Draft("run.forked", {"of": run, "at": at}), owner)
        await self._journal.append_prepared(new, [prepared], owner, key=f"run.started:{new}", changes=[created(forked)])
        return forked

    async def _last_step(self, row: RunRow) -> int:
        """The last position before the run's end, so that the fork of a failed run repeats its last part."""
        history = await self._engine.history(row)
        return history.position if history.ended is None else history.ended.position - 1

    async def replay(self, run: str, task: Task[..., Any] | None, at: int | None) -> Any:
        """Call the task again with the journaled outcomes. No step is executed and nothing is written.

        Returns the task's result or raises its error. Raises `StepsChanged` if the code reaches a step that the journal
        does not hold, and `RunError` if the run has no result.
        """
        row = await self._engine.row(run)
        history = await self._engine.history(row, at)
        chosen = known_task(row.task, row.version) if task is None else check_task(task)
        if chosen is None or chosen.name != row.task or chosen.version != row.version:
            raise UnknownTask(run, row.task, row.version)
        context = RunContext(self._engine, row, history, chosen, None, await self._journal.owner(None))
        given = history.input
        try:
            return await invoke(context, given.get("args", ()), given.get("kwargs", {}))
        except (RunSuspended, RunStopped) as stopped:
            why = f"waits for {stopped}" if isinstance(stopped, RunSuspended) else "was cancelled"
            raise RunError(f"run {shown(run)} has no result: it {why}", hint="replay a run that has ended") from None
