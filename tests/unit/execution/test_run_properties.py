"""Any interleaving of workers, signals, cancellations, crashes and time has the result that a simple model predicts.

Each run executes a script of operations. The model executes the same script whenever a worker executes the run.
Several workers, each with its own handle, share one store and a fake clock.
"""

from __future__ import annotations

import threading
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

import duramen
from duramen import Duramen, Queue, Retry, RunStatus
from duramen.api._async.duramen import AsyncDuramen
from duramen.api.settings import open_journal, open_store
from duramen.errors import LeaseLost, RunError, StepInDoubt
from duramen.ports import RunQuery, Store
from duramen.runtime import Blocking, drive
from duramen.testing.clock import FakeClock

TIMED_OUT = "timed out"
LEASE_EXPIRED = 31
"""Seconds after which a lease of 30 seconds has expired."""
QUEUES = {
    "narrow": Queue("narrow", concurrency=2),
    "keyed": Queue("keyed", concurrency=1, per_key=True),
    "slow": Queue("slow", rate=(2, 50)),
}


class Killed(BaseException):
    """Simulates a kill: nothing after it is executed or recorded."""


# -- the tasks


@dataclass
class World:
    """The world outside duramen: the effects of steps, and planned kills and failures."""

    clock: FakeClock
    store: Store
    workspace: str
    effects: dict[tuple[str, int], list[tuple[Any, str]]] = field(default_factory=dict)
    plans: dict[tuple[str, int], Any] = field(default_factory=dict)
    failures: dict[tuple[str, int], int] = field(default_factory=dict)
    begun: dict[str, tuple[str, int]] = field(default_factory=dict)
    undone: list[tuple[str, int]] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    mutex: Any = field(default_factory=threading.Lock)

    def record_effect(self, run: str, place: int, value: Any, key: str, queue: str | None) -> None:
        with self.mutex:
            self.effects.setdefault((run, place), []).append((value, key))
            if queue is not None:
                self.begun.setdefault(run, (queue, self.clock.now()))
        if queue is not None and QUEUES[queue].concurrency is not None:
            self._check_load(queue)

    def _check_load(self, queue: str) -> None:
        rows = drive(self.store.runs(self.workspace, RunQuery(status=("open",), queue=queue)))
        held = [row for row, lease in rows if lease is not None and lease.expires > self.clock.now()]
        for key in {row.queue_key for row in held}:
            load = [row for row in held if row.queue_key == key or not QUEUES[queue].per_key]
            if len(load) > (QUEUES[queue].concurrency or 0):
                self.violations.append(f"{len(load)} runs at once in {queue} {key}")


WORLDS: dict[str, World] = {}


def _undo(done: list[Any]) -> None:
    token, run, place = done
    WORLDS[token].undone.append((run, place))


def _act(token: str, run: str, place: int, value: Any, queue: str | None, key: str) -> list[Any]:
    world = WORLDS[token]
    plan = world.plans.pop((run, place), None)
    if plan == "before":
        raise Killed
    world.record_effect(run, place, value, key, queue)
    if plan == "after":
        raise Killed
    if plan is not None:
        plan()
    return [token, run, place]


@duramen.step
def act(token: str, run: str, place: int, value: Any = None, queue: str | None = None, *, key: str) -> list[Any]:
    return _act(token, run, place, value, queue, key)


@duramen.step(undo=_undo)
def act_undoably(token: str, run: str, place: int, *, key: str) -> list[Any]:
    return _act(token, run, place, None, None, key)


@duramen.step(in_doubt="ask")
def act_carefully(token: str, run: str, place: int, *, key: str) -> list[Any]:
    return _act(token, run, place, None, None, key)


@duramen.step(retry=Retry(attempts=4, first=5, factor=2, jitter=0, on=(OSError,)))
def act_flakily(token: str, run: str, place: int, failures: int, *, key: str) -> list[Any]:
    world = WORLDS[token]
    world.failures[run, place] = world.failures.get((run, place), 0) + 1
    if world.failures[run, place] <= failures:
        raise OSError("not yet")
    return _act(token, run, place, None, None, key)


@duramen.step
def act_rate_limited(token: str, run: str, place: int, *, key: str) -> list[Any]:
    world = WORLDS[token]
    world.failures[run, place] = world.failures.get((run, place), 0) + 1
    if world.failures[run, place] == 1:
        raise duramen.RateLimited(7)
    return _act(token, run, place, None, None, key)


@duramen.step
def read_clock(token: str) -> int:
    return WORLDS[token].clock.now()


@duramen.step
def fail() -> None:
    raise ValueError("failed")


@duramen.task
def child(token: str, run: str, place: int, seconds: float) -> list[Any]:
    act(token, f"{run}/", place)
    duramen.sleep(seconds)
    return act(token, f"{run}/", place + 1000)


@duramen.task
def script(token: str, run: str, ops: list[list[Any]], queue: str | None = None) -> list[Any]:
    return [_perform(token, run, place, queue, *op) for place, op in enumerate(ops)]


def _perform(token: str, run: str, place: int, queue: str | None, kind: str, detail: Any = None) -> Any:
    value: Any = None
    if kind == "step":
        act(token, run, place, None, queue)
    elif kind == "undoable":
        act_undoably(token, run, place)
    elif kind == "careful":
        act_carefully(token, run, place)
    elif kind == "flaky":
        act_flakily(token, run, place, detail)
    elif kind == "limited":
        act_rate_limited(token, run, place)
    elif kind == "fail":
        fail()
    elif kind == "sleep":
        before = read_clock(token)
        duramen.sleep(detail)
        if WORLDS[token].clock.now() < before + detail * 1_000_000:
            WORLDS[token].violations.append(f"{run} woke early")
    elif kind == "child":
        child(token, run, place, detail)
    else:
        if kind == "ask":
            value = duramen.ask("continue?")
        elif detail is None:
            value = duramen.receive("go")
        else:
            value = duramen.receive("go", timeout=detail, default=TIMED_OUT)
        act(token, run, place, value, queue)
    return value


TASKS = [script, child]

# -- the model

STEPS = {"step", "undoable", "careful"}


@dataclass
class Model:
    """The expected state of a run."""

    run: str
    ops: list[list[Any]]
    wake: int
    queue: str | None = None
    place: int = 0
    started: bool = False
    due: int | None = None
    begun: bool = False
    tries: int = 0
    status: str = "open"
    doubt: bool = False
    cancelling: bool = False
    answer: Any = None
    signals: deque[Any] = field(default_factory=deque)
    effects: dict[tuple[str, int], tuple[Any, int]] = field(default_factory=dict)
    extra: dict[tuple[str, int], int] = field(default_factory=dict)
    undoable: list[tuple[str, int]] = field(default_factory=list)
    undone: list[tuple[str, int]] = field(default_factory=list)
    result: list[Any] = field(default_factory=list)

    @property
    def op(self) -> list[Any]:
        return self.ops[self.place] if self.place < len(self.ops) else ["end"]

    def execute(self, now: int) -> None:
        """A worker executes the run until it ends or waits."""
        self.started = True
        while self.status == "open":
            if self.place == len(self.ops):
                self.status = "done"
            elif self.cancelling and self.op != ["aborted"]:
                self._end("cancelled")
            elif not self._step(now):
                return

    def _end(self, status: str) -> None:
        self.status = status
        self.undone = self.undoable[::-1]

    def _step(self, now: int) -> bool:
        kind, detail = self.op[0], self.op[1] if len(self.op) > 1 else None
        if kind in ("fail", "aborted"):
            self._end("failed")
            return True
        if self.doubt:
            return False
        if kind in STEPS:
            if kind == "undoable":
                self.undoable.append((self.run, self.place))
            return self._done(None)
        if kind in ("sleep", "child"):
            if kind == "child":
                self.effects[f"{self.run}/", self.place] = (None, 1)
            if not self._passed(now, detail):
                return False
            if kind == "child":
                self.effects[f"{self.run}/", self.place + 1000] = (None, 1)
            return self._done(None, acts=False)
        if kind in ("flaky", "limited"):
            return self._tried(now, detail if kind == "flaky" else 1, kind)
        return self._received(now, kind, detail)

    def _passed(self, now: int, seconds: float) -> bool:
        if not self.begun:
            self.begun, self.due = True, now + int(seconds * 1_000_000)
        return self.due is not None and self.due <= now

    def _tried(self, now: int, failures: int, kind: str) -> bool:
        if self.due is not None and self.due > now:
            return False
        if self.tries == failures:
            return self._done(None)
        self.due = now + (7 if kind == "limited" else 5 * 2**self.tries) * 1_000_000
        self.tries += 1
        return False

    def _received(self, now: int, kind: str, timeout: float | None) -> bool:
        if not self.begun:
            self.begun, self.due = True, None if timeout is None else now + int(timeout * 1_000_000)
        if kind == "ask":
            return self.answer is not None and self._done(self.answer)
        if self.signals:
            return self._done(self.signals.popleft())
        return self.due is not None and self.due <= now and self._done(TIMED_OUT)

    def _done(self, value: Any, acts: bool = True) -> bool:
        if acts:
            self.effects[self.run, self.place] = (value, 1)
        self.result.append(value)
        self.place, self.begun, self.due, self.tries, self.answer = self.place + 1, False, None, 0, None
        return True

    @property
    def expected_status(self) -> RunStatus:
        """The status of the run when no worker can continue it."""
        if self.status != "open":
            return RunStatus(self.status)
        if not self.started:
            return RunStatus.QUEUED
        return RunStatus.WAITING if self.due is None else RunStatus.SLEEPING


# -- the machine

seconds = st.sampled_from([0, 3, 10, 60])
operations = st.one_of(
    st.sampled_from([["step"], ["step"], ["undoable"], ["careful"], ["receive"], ["ask"], ["limited"]]),
    st.tuples(st.just("sleep"), seconds).map(list),
    st.tuples(st.just("receive"), seconds).map(list),
    st.tuples(st.just("flaky"), st.integers(1, 3)).map(list),
    st.tuples(st.just("child"), seconds).map(list),
)
scripts = st.lists(operations, min_size=1, max_size=5).flatmap(
    lambda ops: st.sampled_from([ops, ops, ops, [*ops, ["fail"]]])
)
queue_operations = st.sampled_from([["step"], ["sleep", 3], ["sleep", 40], ["flaky", 1]])
queue_scripts = st.lists(queue_operations, max_size=3).map(lambda ops: [["step"], *ops])
workers = st.integers(0, 2)
which = st.integers(0, 7)


class Runs(RuleBasedStateMachine):
    """Three workers on one store, and a model of each run."""

    def __init__(self, stores: tuple[Store, ...]) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.token = uuid.uuid4().hex
        self.world = WORLDS[self.token] = World(self.clock, stores[0], self.token)
        self.models: dict[str, Model] = {}
        self.handles = []
        for store in stores:
            journal = open_journal(store, {"workspace": self.token, "clock": self.clock})
            handle = Duramen(AsyncDuramen(journal, Blocking()))
            handle._core._engine.patience = 0
            self.handles.append(handle)
        self.sent = 0

    @initialize(ops=scripts)
    def begin(self, ops: list[list[Any]]) -> None:
        self.start(0, ops, 0, 0)

    def _choose_run(self, number: int, **wanted: Any) -> Model | None:
        candidates = [
            one
            for one in self.models.values()
            if one.queue is None and all(getattr(one, name) == value for name, value in wanted.items())
        ]
        return candidates[number % len(candidates)] if candidates else None

    def _run_at_a_step(self, number: int, kinds: set[str]) -> Model | None:
        """A run whose next operation is a step of one of these kinds."""
        candidates = [
            one
            for one in self.models.values()
            if one.queue is None and one.status == "open" and not one.cancelling and not one.doubt
            if one.wake <= self.clock.now() and one.op[0] in kinds
        ]
        return candidates[number % len(candidates)] if candidates else None

    # -- starting

    @rule(worker=workers, ops=scripts, delay=st.sampled_from([0, 0, 0, 20]), priority=st.integers(-1, 1))
    def start(self, worker: int, ops: list[list[Any]], delay: float, priority: int) -> None:
        run = f"r{len(self.models)}"
        self.handles[worker].start(script, self.token, run, ops, id=run, delay=delay, priority=priority)
        self.models[run] = Model(run, ops, self.clock.now() + int(delay * 1_000_000))

    @rule(worker=workers, ops=queue_scripts, queue=st.sampled_from(sorted(QUEUES)), key=st.sampled_from([None, "a"]))
    def start_in_queue(self, worker: int, ops: list[list[Any]], queue: str, key: str | None) -> None:
        run = f"q{len(self.models)}"
        arguments: Any = (self.token, run, ops, queue)
        options: Any = {"queue": queue} | ({} if key is None else {"queue_key": key})
        self.handles[worker].start(script, *arguments, id=run, **options)
        self.models[run] = Model(run, ops, self.clock.now(), queue)

    @precondition(lambda self: self.models)
    @rule(worker=workers, number=which)
    def start_again(self, worker: int, number: int) -> None:
        run = sorted(self.models)[number % len(self.models)]
        self.handles[worker].start(script, "another", "input", [], id=run, delay=99)

    # -- executing

    def _attempt(self, worker: int, run: str) -> None:
        with suppress(ValueError, StepInDoubt):
            drive(self.handles[worker]._core._engine.attempt(run, script))

    @rule(worker=workers, number=which)
    def execute(self, worker: int, number: int) -> None:
        model = self._choose_run(number)
        if model is not None and model.wake <= self.clock.now():
            self._execute(worker, model)

    def _execute(self, worker: int, model: Model) -> None:
        self._attempt(worker, model.run)
        model.execute(self.clock.now())

    @rule(worker=workers, number=which, moment=st.sampled_from(["before", "after"]))
    def execute_and_die(self, worker: int, number: int, moment: str) -> None:
        model = self._run_at_a_step(number, STEPS)
        if model is None:
            return
        place = (model.run, model.place)
        self.world.plans[place] = moment
        with pytest.raises(Killed):
            self._attempt(worker, model.run)
        model.started = True
        model.extra[place] = model.extra.get(place, 0) + (moment == "after")
        model.doubt = model.op[0] == "careful"

    @rule(worker=workers, number=which)
    def execute_and_lose_the_lease(self, worker: int, number: int) -> None:
        """A worker stops inside a step until its lease has expired. Another continues, and the first cannot write."""
        model = self._run_at_a_step(number, STEPS - {"careful"})
        if model is None:
            return
        place = (model.run, model.place)

        def meanwhile() -> None:
            self.clock.advance(LEASE_EXPIRED)
            self._attempt(worker + 1 - 3 * (worker == 2), model.run)

        self.world.plans[place] = meanwhile
        lost = False
        try:
            self._attempt(worker, model.run)
        except LeaseLost:
            lost = True
        model.extra[place] = model.extra.get(place, 0) + 1
        model.execute(self.clock.now())
        assert lost or model.status != "open"  # the end of a run is written once

    @rule(worker=workers, number=which)
    def claim_and_vanish(self, worker: int, number: int) -> None:
        """A worker on another machine claims a run and disappears. Its lease expires."""
        open_runs = [one for one in self.models.values() if one.status == "open"]
        if open_runs:
            model = open_runs[number % len(open_runs)]
            limits = QUEUES[model.queue].limits if model.queue is not None else None
            now, journal = self.clock.now(), self.handles[worker]._core._engine.journal
            lease = drive(journal.store.claim(self.token, model.run, "ghost", now, now + 30_000_000, limits, True))
            if lease is not None and model.queue is not None:
                self.world.begun.setdefault(model.run, (model.queue, now))
            self.clock.advance(LEASE_EXPIRED)

    @rule(served_by=st.lists(workers, min_size=1, max_size=3, unique=True), concurrency=st.sampled_from([1, 3, 8]))
    def serve(self, served_by: list[int], concurrency: int) -> None:
        self._serve(served_by, concurrency)
        for model in self.models.values():
            if model.wake <= self.clock.now() and model.queue is None:
                model.execute(self.clock.now())
                self._compare(model)

    def _serve(self, served_by: list[int], concurrency: int) -> None:
        errors: list[BaseException] = []

        def body(worker: int) -> None:
            try:
                work = self.handles[worker].work
                work(TASKS, queues=list(QUEUES.values()), until_idle=True, concurrency=concurrency)
            except BaseException as error:  # noqa: BLE001 - raised below
                errors.append(error)

        for _ in range(2):  # a worker may be idle just before another one wakes a parent
            threads = [threading.Thread(target=body, args=(worker,)) for worker in served_by]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert not errors, errors

    @rule(seconds=st.sampled_from([1, 5, 12, LEASE_EXPIRED, 70]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    # -- signals, answers, cancellations and verdicts

    @rule(worker=workers, number=which, repeats=st.integers(0, 2))
    def signal(self, worker: int, number: int, repeats: int) -> None:
        model = self._choose_run(number)
        if model is None or model.wake > self.clock.now():  # a signal starts a delayed run early: not in the model
            return
        self.sent += 1
        payload, key = f"signal {self.sent}", f"s{self.sent}" if repeats else None
        if model.status != "open":
            with pytest.raises(RunError):
                self.handles[worker].signal(model.run, "go", payload, key=key)
            return
        for _ in range(repeats + 1 if key else 1):
            self.handles[worker].signal(model.run, "go", payload, key=key)
        model.signals.append(payload)

    @rule(worker=workers, number=which)
    def answer(self, worker: int, number: int) -> None:
        model = self._choose_run(number)
        if model is None or model.answer is not None:
            return
        self.sent += 1
        if model.status == "open" and model.op[0] == "ask" and model.begun:
            model.answer = f"answer {self.sent}"
            self.handles[worker].answer(model.run, model.answer)
        else:
            with pytest.raises(RunError):
                self.handles[worker].answer(model.run, "there is no question")

    @rule(worker=workers, number=which)
    def cancel(self, worker: int, number: int) -> None:
        model = self._choose_run(number, doubt=False)
        if model is None:
            return
        parent = model.status == "open" and model.op[0] == "child" and model.begun
        if parent and model.due is not None and model.due <= self.clock.now():
            return  # the child may end before the cancellation reaches it
        self.handles[worker].cancel(model.run, "enough")
        model.cancelling = model.status == "open"
        if self.handles[worker].run_info(model.run).status is RunStatus.CANCELLED and model.cancelling:
            assert not model.undoable
            model.status = "cancelled"
        if parent:
            self._execute(worker, model)

    @rule(worker=workers, number=which, verdict=st.sampled_from(["done", "retry", "abort"]))
    def settle(self, worker: int, number: int, verdict: Any) -> None:
        model = self._choose_run(number, status="open", doubt=True)
        if model is None:
            return
        assert self.handles[worker].run_info(model.run).in_doubt == [f"act_carefully#{self._nth(model)}"]
        self.handles[worker].settle(model.run, verdict, [self.token, model.run, model.place])
        model.doubt = False
        if verdict == "done":
            place = (model.run, model.place)
            model._done(None)
            model.effects[place] = (None, 0)
        elif verdict == "abort":
            model.ops = [*model.ops[: model.place], ["aborted"]]

    def _nth(self, model: Model) -> int:
        return sum(1 for op in model.ops[: model.place + 1] if op[0] == "careful")

    # -- checks

    def _compare(self, model: Model) -> None:
        info = self.handles[0].run_info(model.run)
        if model.expected_status is RunStatus.SLEEPING and info.status is RunStatus.WAITING:
            # Another worker claimed the sleeping child. The parent waits for the child instead of sleeping with it.
            assert (model.op[0], info.waiting.startswith("the run ")) == ("child", True), (model, info)
        else:
            assert info.status is model.expected_status, (model, info)
        if model.expected_status is RunStatus.SLEEPING and info.wake is not None:
            assert round(info.wake.timestamp() * 1_000_000) == model.due, (model, info)
        happened = {place: made for place, made in self.world.effects.items() if place[0].rstrip("/") == model.run}
        expected = {place: count + model.extra.get(place, 0) for place, (_, count) in model.effects.items()}
        expected |= {place: count for place, count in model.extra.items() if place not in expected}
        assert {place: len(made) for place, made in happened.items()} == {p: n for p, n in expected.items() if n}, model
        for place, made in happened.items():
            assert len(set(made)) == 1, (place, made)  # the same value, under the same key
            assert place not in model.effects or made[0][0] == model.effects[place][0], (place, made, model)
        if model.status != "open":
            assert [place for place in self.world.undone if place[0] == model.run] == model.undone, model

    def teardown(self) -> None:
        try:
            self._finish_all()
            for model in self.models.values():
                self._compare(model)
                if model.status == "done":
                    assert self.handles[1].handle(model.run).result(0) == model.result
                    assert self.handles[2].replay(model.run) == model.result
            self._check_rates()
            assert not self.world.violations
            assert self.handles[0].verify().ok
        finally:
            del WORLDS[self.token]
            for handle in self.handles:
                handle._core._engine.close()

    def _finish_all(self) -> None:
        """Give all runs the time, workers, answers and signals that they wait for. All must end."""
        for _ in range(80):
            for number, model in enumerate(list(self.models.values())):
                if model.doubt:
                    self.settle(number % 3, [m for m in self.models.values() if m.doubt].index(model), "retry")
            self._serve([0, 1], 8)
            for model in self.models.values():
                self._unblock(model)
            if all(model.status != "open" for model in self.models.values()):
                break
            self.clock.advance(LEASE_EXPIRED)
        left = [info for info in self.handles[0].runs(limit=1000) if info.status in ("queued", "crashed", "sleeping")]
        assert all(model.status != "open" for model in self.models.values()), left
        self._serve([2], 8)
        assert not [info for info in self.handles[0].runs(limit=1000) if info.ended is None]

    def _unblock(self, model: Model) -> None:
        if model.queue is not None:
            info = self.handles[0].run_info(model.run)
            while info.ended is not None and model.status == "open":
                model.execute(2**62 if model.due is None else model.due)
            return
        if model.wake <= self.clock.now():
            model.execute(self.clock.now())
        if model.status == "open" and model.op[0] == "ask" and model.begun and model.answer is None:
            model.answer = "late"
            self.handles[0].answer(model.run, "late")
        elif model.status == "open" and model.op == ["receive"] and not model.signals:
            model.signals.append("late")
            self.handles[1].signal(model.run, "go", "late")

    def _check_rates(self) -> None:
        for name, queue in QUEUES.items():
            if queue.rate is not None:
                begun = [when for one, when in self.world.begun.values() if one == name]
                for end in begun:
                    window = [when for when in begun if end - queue.rate[1] * 1_000_000 < when <= end]
                    assert len(window) <= queue.rate[0], (name, begun)


def run(stores: tuple[Store, ...], examples: int, steps: int = 25) -> None:
    """Run the state machine on these stores."""
    run_state_machine_as_test(
        partial(Runs, stores),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.fixture
def open_stores() -> Iterator[Any]:
    with ExitStack() as stack:

        def open_stores(address: str, count: int) -> list[Store]:
            stores = [open_store(address, {"timeout": 5.0}, Blocking()) for _ in range(count)]
            for store in stores:
                stack.callback(lambda store=store: drive(store.close()))
            return stores

        yield open_stores


PROMISES = ("X2", "X3", "X12", "X13", "X14", "X15", "X16", "X17", "X23", "X26", "X28")


@pytest.mark.promise(*PROMISES)
def test_runs_match_the_model_in_memory(open_stores: Any, everything: bool) -> None:
    run(tuple(open_stores("memory:", 1) * 3), 200 if everything else 30)


@pytest.mark.promise(*PROMISES)
def test_runs_match_the_model_on_sqlite(open_stores: Any, everything: bool, tmp_path: Path) -> None:
    run(tuple(open_stores(str(tmp_path / "agent.db"), 3)), 60 if everything else 10)


@pytest.mark.promise(*PROMISES)
def test_runs_match_the_model_on_postgres(open_stores: Any, everything: bool, postgres_url: str) -> None:
    run(tuple(open_stores(postgres_url, 3)), 30 if everything else 5)


@pytest.mark.promise("X23", "X26")
def test_cancelling_a_parent_stops_its_sleeping_child() -> None:
    clock, acts = FakeClock(), []

    @duramen.step
    def late() -> None:
        acts.append("late")

    @duramen.task
    def sleep_then_act() -> None:
        duramen.sleep(3)
        late()

    @duramen.task
    def parent() -> None:
        sleep_then_act()

    with duramen.open("memory:", clock=clock) as dm:
        dm._core._engine.patience = 0
        dm.start(parent, id="r")
        dm.work([parent, sleep_then_act], until_idle=True)
        dm.cancel("r")
        clock.advance(5)
        with pytest.raises(duramen.errors.RunCancelled):
            dm.resume("r", parent)
        dm.work([parent, sleep_then_act], until_idle=True)
        assert [info.status for info in dm.runs()] == [RunStatus.CANCELLED, RunStatus.CANCELLED]
    assert acts == []
