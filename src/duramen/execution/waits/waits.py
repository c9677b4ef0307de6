"""The functions of `duramen` that act on the current run: waits in a task, output and progress in a step."""

from __future__ import annotations

import datetime as dt
from typing import Any, Unpack

from ...context.tokens.counters import counter_for
from ...context.window.content_blocks import as_json
from ...errors import InvalidInput, NoAnswer, shown
from ...journal.events import check_name, check_seconds, check_whole
from ...memory.catalog.memory_event import MemoryDetails, audience_of, memory_data
from ...runtime import drive
from ..engine.control_flow import RunStopped
from ..engine.history import State, StepRecord
from ..engine.run_context import RunContext
from ..steps.definitions import Kind
from ..steps.error_data import error_to_data
from ..steps.step_scope import Attached, StepScope
from .current_run import RUN, STEP, current

_NOTHING: Any = object()


def _run(what: str) -> RunContext:
    run = current()
    if run is None:
        inside = STEP.get() is not None
        raise InvalidInput(
            f"duramen.{what} was called {'inside a step' if inside else 'outside a run'}",
            hint="call it in the code of a task that was started with dm.run(…)",
        )
    return run


def _step(what: str) -> StepScope:
    scope = STEP.get()
    if scope is None or RUN.get() is None:
        raise InvalidInput(f"duramen.{what} was called outside a step", hint="call it in a step of a run")
    scope.expect_open()
    return scope


def sleep(seconds: float) -> Any:
    """Wait for `seconds`, also across restarts. A long sleep holds no thread: the run is suspended and replays up to
    this point later. Await it in an async task."""
    run = _run("sleep()")
    if not isinstance(seconds, (int, float)) or not 0 <= seconds < 1e10:
        raise InvalidInput(f"sleep() cannot wait {shown(seconds)} seconds", hint="give a number from 0 to 10 billion")
    return run.deliver(_sleep(run, run.identify("@sleep"), lambda: run.now() + int(seconds * 1e6)))


def sleep_until(when: dt.datetime) -> Any:
    """Like `sleep`, until the time `when`, which must have a time zone."""
    run = _run("sleep_until()")
    if not isinstance(when, dt.datetime) or when.tzinfo is None:
        raise InvalidInput(f"{shown(when)} is not a datetime with a time zone", hint="give a datetime with tzinfo")
    due = int(when.timestamp() * 1e6)
    return run.deliver(_sleep(run, run.identify("@sleep"), lambda: due))


async def _sleep(run: RunContext, identity: str, due_at: Any) -> None:
    record = await run.match_or_stop(identity)
    if record is not None and record.finished:
        return
    due = record.due if record is not None and record.due is not None else due_at()
    with run.working():
        await run.check_interrupts()
        if record is None:
            intent = run.journal.encode("step.started", {"step": identity, "due": due})
            await run.journal.write([intent], synced=True)
        await run.pause_until(due, "the end of its sleep")
        await run.check_interrupts()
        await run.record("step.done", {"step": identity})


def receive(signal: str, *, timeout: float | None = None, default: Any = _NOTHING) -> Any:
    """Wait for the next signal with that name, sent with `dm.signal`, and return its payload. A signal that was sent
    before this call is received too. After `timeout` seconds, returns `default`, or raises `NoAnswer` if there is none.
    Await it in an async task."""
    run = _run("receive()")
    signal = run.journal.stored_name(check_name("signal", signal))
    if timeout is not None:
        check_seconds("timeout", timeout)
    identity = run.identify(f"@signal {signal}")
    return run.deliver(_receive(run, identity, signal, {}, timeout, default, f"signal {signal!r}"))


def ask(question: str, payload: Any = None, *, timeout: float | None = None, default: Any = _NOTHING) -> Any:
    """Ask a person, wait for the answer (also across restarts) and return it. `dm.answer` sends it. After `timeout`
    seconds, returns `default`, or raises `NoAnswer` if there is none. Await it in an async task."""
    run = _run("ask()")
    question = run.journal.redacted(check_name("question", question))
    if timeout is not None:
        check_seconds("timeout", timeout)
    identity = run.identify("@ask")
    details = {"question": question} if payload is None else {"question": question, "payload": payload}
    return run.deliver(_receive(run, identity, identity, details, timeout, default, f"an answer to {question!r}"))


async def _receive(
    run: RunContext,
    identity: str,
    signal: str,
    details: dict[str, Any],
    timeout: float | None,
    default: Any,
    waiting: str,
) -> Any:
    record = await run.match_or_stop(identity)
    if record is not None and record.finished:
        return run.replayed(record)
    due = record.due if record is not None else None
    with run.working():
        await run.check_interrupts()
        if record is None:
            data: dict[str, Any] = {"step": identity, **details}
            if timeout is not None:
                due = data["due"] = run.now() + int(timeout * 1e6)
            await run.journal.write([run.journal.encode("step.started", data)], synced=True)
        while (found := run.history.next_signal(signal)) is None:
            if due is not None and due <= run.now():
                return await _after_timeout(run, identity, default, waiting)
            await run.wait_for(due, waiting, external=True)
        found.taken = True
        data = {"step": identity, "signal": found.position, "value": found.payload}
        return (await run.record("step.done", data))["value"]


async def _after_timeout(run: RunContext, identity: str, default: Any, waiting: str) -> Any:
    if default is not _NOTHING:
        return (await run.record("step.done", {"step": identity, "value": default, "late": True}))["value"]
    error = NoAnswer(f"{waiting} did not arrive before the timeout", hint="give a default, or a longer timeout")
    await run.record("step.failed", {"step": identity, "error": error_to_data(error)})
    raise error


def brief(*steps: str, budget: int = 2000) -> Any:
    """A summary for a child run: the results of this run's finished steps, or only of the named steps.

    Returns `{"items": […], "left_out": n}`. Each item has `from` (the event), `step` and `outcome`, oldest first. The
    newest results that fit into `budget` tokens of JSON are included; `left_out` counts the others. The summary is
    journaled, so it is the same after a restart. Await it in an async task.
    """
    run = _run("brief()")
    check_whole("budget", budget, 0, 2**31)
    wanted = frozenset(check_name("step", step) for step in steps)
    return run.deliver(_brief(run, run.identify("@brief"), wanted, budget))


async def _brief(run: RunContext, identity: str, steps: frozenset[str], budget: int) -> Any:
    record = await run.match_or_stop(identity)
    if record is not None and record.finished:
        return run.replayed(record)
    with run.working():
        await run.check_interrupts()
        history = await run.engine.history(run.row)
        done = [one for one in history.steps.values() if one.state is State.DONE and not one.step.startswith("@")]
        wanted = [one for one in done if not steps or one.step.partition("#")[0].partition(":")[0] in steps]
        items: list[dict[str, Any]] = []
        counter = counter_for(None)
        for one in sorted(wanted, key=lambda one: -(one.finished_at or 0)):
            item = {"from": f"{run.row.session}#{one.finished_at}", "step": one.step, "outcome": one.value}
            size = counter.count(as_json(item))
            if size <= budget:
                budget -= size
                items.insert(0, item)
        value = {"items": items, "left_out": len(wanted) - len(items)}
        return (await run.record("step.done", {"step": identity, "value": value}))["value"]


def patched(name: str) -> bool:
    """Whether this run uses the new code: True if it reaches this point for the first time, False if it passed this
    point before the code was changed. The answer is journaled."""
    run = _run("patched()")
    identity = f"@patch {check_name('patch', name)}"
    record: StepRecord | None = run.history.steps.get(identity)
    if record is not None:
        return True
    if run.replaying:
        return False
    if not run.readonly:
        drive(run.record("step.done", {"step": identity}))
    run.history.steps[identity] = StepRecord(identity, State.DONE, 0, 0)
    return True


def report(value: Any) -> Any:
    """Inside a step: store progress durably. After a crash, `reported()` returns it to the next attempt. Await it in an
    async step."""
    scope = _step("report()")
    if scope.transaction is not None:
        raise InvalidInput(
            "report() was called in a step after transaction()", hint="call report() before transaction()"
        )
    scope.progress = value
    return _awaited(scope, _report(scope, value))


async def _report(scope: StepScope, value: Any) -> None:
    journal = scope.run.journal
    event = journal.encode("step.progress", {"step": scope.identity, "value": value})
    await journal.write([event], synced=True)


def _awaited(scope: StepScope, work: Any) -> Any:
    return work if scope.step.kind is Kind.ASYNC else drive(work)


def reported(default: Any = None) -> Any:
    """Inside a step: the value that an earlier attempt reported last, or `default`."""
    scope = _step("reported()")
    return default if scope.progress is None else scope.progress


def emit(value: Any) -> None:
    """Inside a step: stream a chunk of output. It is journaled shortly afterwards as `step.output`. When the step is
    retried, chunks that were streamed before are not streamed again."""
    _step("emit()").emit(value)


def remember(content: str, *, kind: str = "fact", **details: Unpack[MemoryDetails]) -> None:
    """Store a memory that outlives this run, for `dm.memory.recall`. Inside a step it is stored with the step's
    outcome: exactly once if the step succeeds, and not if it fails. The memory has the subject of the run."""
    scope = STEP.get()
    if scope is not None:
        scope.expect_open()
        data = memory_data(content, kind, details, scope.run.now())
        _check_scope(data, scope.run)
        scope.attached += (Attached("memory.added", data, scope.run.journal.position or None),)
        return
    run = _run("remember()")
    data = memory_data(content, kind, details, run.now())
    _check_scope(data, run)
    identity = run.identify("@remember")
    record, stopped = run.match(identity)
    if stopped:
        raise RunStopped
    if record is None:
        events = [run.journal.encode("memory.added", data), run.journal.encode("step.done", {"step": identity})]
        drive(run.commit(events, synced=False))


def _check_scope(data: dict[str, Any], run: RunContext) -> None:
    """Raise `InvalidInput` for a scope that could not be stored with the outcome: the run could never continue."""
    audience_of(data.get("scope") or "workspace", None if run.journal.owner.name is None else run.journal.owner.ref, "")


def transaction() -> Any:
    """Inside a plain step: begin a transaction that ends with the step, and return the store's own connection (apsw or
    psycopg). The rows written through it and the step's outcome are committed together."""
    return _step("transaction()").begin()
