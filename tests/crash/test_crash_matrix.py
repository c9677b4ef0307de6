"""A task of 25 steps of all kinds is killed everywhere. It must end as an undisturbed run does.

Processes kill themselves at crash points, or are killed from outside at random moments. After each kill, the journal,
the log of the steps and the effect server are compared. `make test` kills at every point; `make test-all` kills at
every visit of every point.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from programs import crash_task
from programs.append_audit import verified
from programs.child_processes import ChildProcess, ChildProcesses, complete_lines, until
from programs.cutting_proxy import CuttingProxy
from programs.effect_server import EffectServer
from programs.seeds import seeded

import duramen
from duramen import crash_points as crashpoints
from duramen.api._async.duramen import AsyncDuramen
from duramen.api._sync.duramen import Duramen
from duramen.api.settings import open_journal
from duramen.errors import DuramenError
from duramen.execution.engine.owner import new_owner
from duramen.runtime import Blocking
from duramen.stores.sqlite import SqliteSettings, SqliteStore
from duramen.testing.power_loss import PowerLossDisk

POINTS = [
    "append.encoded", "append.begun", "append.inserted", "append.committed", "run.started", "run.claimed",
    "step.intended", "step.acted", "step.transacted", "step.recorded", "run.ended",
]  # fmt: skip
COMMON = ["append.encoded", "append.begun", "append.committed", "step.intended", "step.acted", "step.recorded"]
"""Points that every step visits."""
CHAINS = [
    ("append.encoded", 7), ("append.begun", 7), ("append.committed", 6), ("step.intended", 2), ("step.acted", 2),
    ("step.recorded", 1), ("step.recorded", 3), ("append.committed", 8),
]  # fmt: skip
"""The point and visit at which each process of a chain is killed. Each process completes at least one more step."""
STRIDE = 9
"""In `make test`, one run is killed at visits 1, 10, 19, … of a point until it ends."""
PARK_AT_ONCE = 0.0
"""The patience of runs that park at every sleep and before every retry."""
LEASE = 1.0
POWER_CUTS = {True: 40, False: 12}
"""With and without `--everything`."""


@pytest.fixture(scope="module")
def effect_server() -> Iterator[EffectServer]:
    with EffectServer() as server:
        yield server


@dataclass
class KilledRun:
    """A run of the trip that is killed and resumed, and everything that can be observed from outside."""

    address: str
    run: str
    effect_server: EffectServer
    processes: ChildProcesses
    log: Path
    patience: float = 5.0
    kills: int = 0
    finished_steps: set[str] = field(default_factory=set)
    reported_page: int = 0
    audited_entries: int = 0
    observer: Duramen | None = None

    def start(self, crash: tuple[str, int] | None = None) -> ChildProcess:
        """Start a child that continues the run. With `crash`, it is killed at that visit of a point."""
        options = {"port": self.effect_server.port, "log": str(self.log), "patience": self.patience}
        return self.processes.start("crash_task:run_trip", crash=crash, address=self.address, run=self.run, **options)

    def kill_at(self, point: str, visit: int) -> bool:
        """Continue the run and kill it at this visit of a point. False if the run ended before."""
        child = self.start((point, visit))
        status = child.wait()
        if status == 0:
            return False
        assert status == -signal.SIGKILL, child.errors()
        self.check_after_kill()
        return True

    def check_after_kill(self) -> None:
        """Count a kill, and audit the state that it left."""
        self.kills += 1
        self.audit()

    def finish(self) -> None:
        """Continue the run to its end, and check that everything was done once."""
        lines = self.start().finish()
        self.check_finished(json.loads(lines[-1]))

    def check_finished(self, result: Any) -> None:
        """Check that result, effects and journal are those of an undisturbed run."""
        assert result == crash_task.RESULT
        self.audit()
        self.check_effects()
        self.check_journal()
        begun = Counter(name for name in self.begun_steps() if name != "flaky#1")
        assert sum(begun.values()) - len(begun) <= self.kills, f"more steps were repeated than killed: {begun}"
        assert not any(name.startswith("undo") for name in begun)

    # -- what can be observed

    def log_entries(self) -> list[tuple[int, str, str]]:
        """The log of the steps: time, verb and step of each entry."""
        if not self.log.exists():
            return []
        lines = [line.split(" ", 2) for line in complete_lines(self.log)]
        return [(int(when), verb, name) for when, verb, name in lines]

    def begun_steps(self) -> list[str]:
        """The step of each execution, in order."""
        return [name for _, verb, name in self.log_entries() if verb == "begin"]

    def events(self) -> list[tuple[str, duramen.Event]]:
        """The events of the run and of its child run, each with the name of its step."""
        with nullcontext(self.observer) if self.observer else duramen.open(self.address) as store:
            own = list(store.session(self.run).events())
            children = [event.data["child"] for event in own if event.data and "child" in event.data]
            inner = [event for child in dict.fromkeys(children) for event in store.session(child).events()]
        named = [(event.data.get("step", ""), event) for event in own]
        return named + [(f"child:{event.data.get('step', '')}", event) for event in inner]

    def rows(self) -> list[str]:
        """The rows that the steps inserted into the user's table."""
        query = "SELECT ref FROM enrolled WHERE ref LIKE "
        if self.address.startswith("postgresql"):
            with psycopg.connect(self.address) as connection:
                try:
                    return [ref for (ref,) in connection.execute(query + "%s", (f"{self.run}/%",))]
                except psycopg.errors.UndefinedTable:
                    return []
        database = apsw.Connection(self.address)
        try:
            return [ref for (ref,) in database.execute(query + "?", (f"{self.run}/%",))]
        except apsw.SQLError:
            return []  # no such table yet
        finally:
            database.close()

    # -- checks after every kill

    def audit(self) -> None:
        """Check that intents precede effects, outcomes follow them, and no finished step ran again."""
        entries = self.log_entries()
        named, rows = self._read_state()
        self._check_order(entries, named)
        new, self.audited_entries = entries[self.audited_entries :], len(entries)
        repeated = {name for _, verb, name in new if verb == "begin"} & self.finished_steps
        assert not repeated, f"these steps were finished before: {repeated}"
        pages = [int(name) for _, verb, name in new if verb == "page"]
        assert all(page > self.reported_page for page in pages), "a reported page was fetched again"
        self.finished_steps = {name for name, event in named if _is_success(event)}
        progress = [event.data["value"] for _, event in named if event.type == "step.progress"]
        self.reported_page = max(progress, default=0)
        self._check_memories_and_rows(named, rows)

    def _read_state(self) -> tuple[list[tuple[str, duramen.Event]], list[str]]:
        """Events and rows of the same moment. A server may still commit the last transaction of a killed client."""
        while True:
            named, rows = self.events(), self.rows()
            if self.events() == named:
                return named, rows

    def _check_order(self, entries: list[tuple[int, str, str]], named: list[tuple[str, duramen.Event]]) -> None:
        intents = Counter(name for name, event in named if event.type == "step.started")
        begun = Counter(name for _, verb, name in entries if verb == "begin")
        assert all(count <= intents[name] for name, count in begun.items()), (begun, intents)
        first = {name: event.time for name, event in reversed(named) if event.type == "step.started"}
        for when, verb, name in entries:
            assert verb != "begin" or first[name] <= when
        ended = {name: when for when, verb, name in entries if verb == "end"}
        for name, event in named:
            if _is_success(event) and not name.removeprefix("child:").startswith("@"):
                assert name in ended or event.type == "step.settled", f"{name} is recorded but did not happen"
                assert event.time >= ended.get(name, 0)

    def _check_memories_and_rows(self, named: list[tuple[str, duramen.Event]], rows: list[str]) -> None:
        """Check that memories and rows exist if and only if their step is finished."""
        memories = Counter(event.data["content"] for _, event in named if event.type == "memory.added")
        memories_of = {
            "enrol#1": ["{}/first is enrolled"],
            "crawl#1": ["{} is read"],
            "learn#1": ["{} likes aisles", "{} hates queues"],
            "timed#1": ["{}/timed was in time"],
            "@remember#1": ["{} was halfway"],
            "enrol#2": ["{}/second is enrolled"],
        }
        finished = self.finished_steps
        expected = [text.format(self.run) for step, texts in memories_of.items() if step in finished for text in texts]
        assert memories == Counter(expected)
        enrolled = {"enrol#1": f"{self.run}/first", "enrol#2": f"{self.run}/second"}
        assert sorted(rows) == sorted(ref for step, ref in enrolled.items() if step in finished)

    # -- checks at the end

    def check_effects(self) -> None:
        """Check that there is one booking and one mail each, and that each booking was requested under one key."""
        for ref in (f"{self.run}/{name}" for name in crash_task.BOOKED):
            assert len(self.effect_server.bookings[ref]) == 1, ref
            assert len(self.effect_server.requested_keys[ref]) == 1, ref
        for ref in (f"{self.run}/{name}" for name in crash_task.MAILED):
            assert self.effect_server.mails[ref] == 1, ref
        assert self.effect_server.flaky_calls[self.run] >= 3

    def check_journal(self) -> None:
        """Check that every step has one outcome, and that all output exists once and in order."""
        named = self.events()
        outcomes = Counter(name for name, event in named if _is_success(event))
        assert set(outcomes.values()) == {1}, outcomes
        assert len(outcomes) == 25 + 2  # the child has two
        outputs: dict[str, list[Any]] = {}
        for name, event in named:
            if event.type == "step.output":
                outputs.setdefault(name, []).append((event.data["index"], event.data["value"]))
        wanted = {
            name: list(enumerate(text.format(self.run) for text in texts))
            for name, texts in crash_task.STREAMED.items()
        }
        assert outputs == wanted
        assert [event.type for _, event in named].count("run.finished") == 2
        assert [event.type for _, event in named].count("run.started") == 2


NewRun = Callable[..., KilledRun]


def _is_success(event: duramen.Event) -> bool:
    """Whether an event is the successful outcome of a step."""
    return event.type == "step.done" or (event.type == "step.settled" and event.data["verdict"] == "happened")


@pytest.fixture
def new_run(address: str, effect_server: EffectServer, processes: ChildProcesses, tmp_path: Path) -> Iterator[NewRun]:
    """Creates runs with unique names."""
    with ExitStack() as stack:
        # Opening and closing a file changes it, which is part of the test. On a server, one handle is enough.
        observer = None if address.endswith("agent.db") else stack.enter_context(duramen.open(address))

        def new_run(name: str, patience: float = 5.0) -> KilledRun:
            run = f"{tmp_path.name}-{name}"  # all tests share the effect server
            log = tmp_path / f"{name}.log"
            return KilledRun(address, run, effect_server, processes, log, patience, observer=observer)

        yield new_run


def count_visits(address: str, run: str, effect_server: EffectServer) -> Counter[str]:
    """How often an undisturbed run visits each point."""
    seen = Counter[str]()
    crash_task.environment.port, crash_task.environment.log = effect_server.port, os.devnull
    with duramen.open(address) as store:
        crashpoints.listen(lambda point: seen.update([point]))
        try:
            assert crash_task.start_trip(store, run) == crash_task.RESULT
        finally:
            crashpoints.listen(None)
    return seen


@pytest.mark.promise("X1", "X2", "X3", "X5", "X6", "X8", "X10", "X11", "X12", "X15", "X19", "X26", "C8")
@pytest.mark.parametrize("point", POINTS)
def test_a_kill_at_every_crash_point_changes_nothing(
    address: str, effect_server: EffectServer, new_run: NewRun, point: str, everything: bool
) -> None:
    if everything:
        visits = count_visits(address, new_run("undisturbed").run, effect_server)[point]
        assert visits >= (22 if point in COMMON else 2)
        for visit in range(1, visits + 1):
            run = new_run(f"r{visit}")
            assert run.kill_at(point, visit), f"there is no visit {visit}"
            run.finish()
    else:
        run = new_run("r")
        visit = 1
        while run.kill_at(point, visit):
            visit += STRIDE if point in COMMON else 1
        assert run.kills >= (2 if point in COMMON else 1)
        run.finish()
    verified(address)


@pytest.mark.promise("X1", "X2", "X3", "X6", "X8", "X10", "X11")
@pytest.mark.parametrize(("point", "visit"), CHAINS)
def test_a_run_killed_every_few_steps_still_finishes(
    address: str, new_run: NewRun, point: str, visit: int, everything: bool
) -> None:
    run = new_run("r")
    while run.kill_at(point, visit if everything else 2 * visit):
        assert run.kills < 60, "the run makes no progress"
    assert run.kills >= (7 if everything else 3)
    run.finish()
    verified(address)


@pytest.mark.promise("X2", "X3", "X5", "X6", "X8", "X10", "X11", "X14")
@pytest.mark.parametrize("seed", range(3))
def test_a_run_killed_at_random_points_still_finishes(
    address: str, new_run: NewRun, seed: int, everything: bool
) -> None:
    chance = seeded(seed)
    for number in range(10 if everything else 1):
        run = new_run(f"r{number}", patience=chance.choice([PARK_AT_ONCE, 5.0]))
        for _ in range(20):
            point, visit = chance.choice(COMMON), chance.randrange(1, 7)
            if not run.kill_at(point, visit):
                break
        run.finish()
    verified(address)


@pytest.mark.promise("X2", "X3", "X6", "X8", "X10", "X11")
@pytest.mark.parametrize("seed", range(2))
def test_runs_killed_at_random_moments_still_finish(address: str, new_run: NewRun, seed: int, everything: bool) -> None:
    chance = seeded(seed)
    for number in range(40 if everything else 2):
        run = new_run(f"r{number}")
        for _ in range(6):
            child, entries = run.start(), len(run.log_entries())
            wanted = entries + chance.randrange(1, 12)
            until(lambda: len(run.log_entries()) >= wanted or child.ended() is not None, "a few steps")  # noqa: B023
            time.sleep(chance.uniform(0, 0.006))  # so that the kill can hit any instruction
            if child.kill() == 0:
                break
            run.check_after_kill()
        run.finish()
    verified(address)


@pytest.mark.promise("X5", "X6", "X8")
@pytest.mark.parametrize("effect", ["mail#1", "sign#1", "mail#2"])
def test_a_kill_while_doubt_is_settled_changes_nothing(address: str, new_run: NewRun, effect: str) -> None:
    run = new_run("r")
    visit = {"mail#1": 4, "sign#1": 5, "mail#2": 18}[effect]
    assert run.kill_at("step.acted", visit)
    assert run.log_entries()[-1][1:] == ("end", effect)
    for _ in range(2):
        assert run.kill_at("step.settled", 1)  # after the check found the effect, before the verdict is stored
    run.finish()
    assert run.begun_steps().count(effect) == 1


@pytest.mark.promise("X2", "X14")
def test_a_kill_while_a_run_parks_changes_nothing(
    address: str, effect_server: EffectServer, processes: ChildProcesses, new_run: NewRun
) -> None:
    run = new_run("r")
    options = {"address": address, "run": run.run, "port": effect_server.port, "log": str(run.log)}
    for _ in range(2):  # the task sleeps twice
        child = processes.start("crash_task:run_sleeper", crash=("run.parked", 1), **options)
        assert child.wait() == -signal.SIGKILL, child.errors()
    lines = processes.start("crash_task:run_sleeper", **options).finish()
    assert json.loads(lines[-1]) == [{"seat": 1}, {"sent": True}, 1]
    assert run.begun_steps() == ["book#1", "mail#1", "enrol#1"]
    assert run.rows() == [f"{run.run}/first"]
    verified(address)


@pytest.mark.promise("X4", "X5", "X6")
@pytest.mark.parametrize("visit", [2, 4, 5, 10, 19])
def test_a_step_that_may_have_happened_is_reported_in_doubt(address: str, new_run: NewRun, visit: int) -> None:
    run = new_run("r")
    assert run.kill_at("step.acted", visit)
    _, verb, step = run.log_entries()[-1]
    assert verb == "end"
    with duramen.open(address) as store:
        info = store.run_info(run.run)
    assert (info.status, info.in_doubt) == ("crashed", [step])
    run.finish()
    settled = [event.data for _, event in run.events() if event.type == "step.settled"]
    has_check = step.startswith(("mail", "sign"))
    verdict = ("check", "happened") if has_check else ("declaration", "rerun")
    assert [(one["step"], one["by"], one["verdict"]) for one in settled] == [(step, *verdict)]
    assert run.begun_steps().count(step) == (1 if has_check else 2)
    with duramen.open(address) as store:
        assert store.run_info(run.run).in_doubt == []


# -- power cuts


def run_until_power_cut(disk: PowerLossDisk, run: str, synchronous: str) -> None:
    """Run the trip on this disk until its power is cut."""
    with suppress(apsw.Error, DuramenError):
        store = SqliteStore(SqliteSettings("agent.db", vfs=disk.vfs_name), Blocking())
        if synchronous != "full":  # make a store that never syncs
            store._access.writer.connection.pragma("synchronous", synchronous)
            store._access.writer._sync_commits = lambda synced: None  # type: ignore[method-assign]
        handle = Duramen(AsyncDuramen(open_journal(store, {}), Blocking()))
        # The run belongs to a dead process, so that its lease can be taken over at once.
        handle._core._engine._owner = new_owner().replace(f"/{os.getpid()}/", f"/{2**22 + 1}/")
        try:
            crash_task.start_trip(handle, run)
        finally:
            handle.close()


def runs_after_power_cuts(
    effect_server: EffectServer, processes: ChildProcesses, directory: Path, synchronous: str, cuts: int
) -> Iterator[KilledRun]:
    """Runs whose power was cut at different calls of the disk, each with the files that survived."""
    crash_task.environment.port, crash_task.environment.log = effect_server.port, os.devnull
    with PowerLossDisk() as disk:
        run_until_power_cut(disk, f"{directory.name}-whole", synchronous)
        calls = disk.calls
    assert calls > cuts
    for number in range(cuts):
        call = 1 + number * (calls - 1) // (cuts - 1)
        run = f"{directory.name}-{call}"
        log = directory / f"{call}.log"
        crash_task.environment.log = str(log)
        with PowerLossDisk(seed=call) as disk:
            disk.cut_at(call)
            run_until_power_cut(disk, run, synchronous)
            survivors = disk.survivors(directory / str(call))
        yield KilledRun(str(survivors / "agent.db"), run, effect_server, processes, log, kills=1)


def resume_after_reboot(run: KilledRun) -> None:
    """Finish the run and check everything."""
    run.audit()
    with duramen.open(run.address) as store:
        result = crash_task.start_trip(store, run.run)
    run.check_finished(result)
    verified(run.address)


@pytest.mark.promise("X1", "X2", "X3", "X8", "X10", "X11", "J3", "C8")
def test_a_power_cut_at_any_moment_changes_nothing(
    effect_server: EffectServer, processes: ChildProcesses, tmp_path: Path, everything: bool
) -> None:
    for run in runs_after_power_cuts(effect_server, processes, tmp_path, "full", POWER_CUTS[everything]):
        resume_after_reboot(run)


@pytest.mark.promise("X1")
def test_power_cuts_reveal_intents_that_are_not_durable(
    effect_server: EffectServer, processes: ChildProcesses, tmp_path: Path, everything: bool
) -> None:
    failures = 0
    for run in runs_after_power_cuts(effect_server, processes, tmp_path, "normal", POWER_CUTS[everything]):
        try:
            resume_after_reboot(run)
        except AssertionError:
            failures += 1
    assert failures > POWER_CUTS[everything] / 4


# -- a stopped worker


@pytest.mark.promise("X16", "X17")
@pytest.mark.parametrize("where", ["step.intended:1", "step.acted:1", "step.intended:2", "step.recorded:2", "killed"])
def test_a_worker_stopped_for_longer_than_its_lease_writes_nothing(
    address: str, effect_server: EffectServer, processes: ChildProcesses, tmp_path: Path, where: str
) -> None:
    run = f"{tmp_path.name}-run"
    log = tmp_path / "log"
    options = {"address": address, "run": run, "port": effect_server.port, "log": str(log), "lease": LEASE}
    with duramen.open(address) as store:
        handle = store.start(crash_task.errand, run, id=run)
        stop_at = "step.acted:2" if where == "killed" else where
        stopped = processes.start("crash_task:work_with_lease", stop_at=stop_at, **options)
        assert stopped.wait_for_lines(2) == ["working", "stopping"], stopped.errors()
        if where == "killed":
            stopped.kill()
        other = processes.start("crash_task:work_with_lease", stop_at=None, **options)
        assert handle.result(timeout=60) == [{"seat": 1}, 1, {"seat": 1}]
        other.kill()
        before = [(event.type, event.hash) for event in store.session(run).events()]
        stopped.signal(signal.SIGCONT)
        if where != "killed":
            lines = stopped.finish()
            assert lines[-1] == "stopped"
            assert [line for line in lines if line.startswith("log") and "lease" in line], lines
        assert [(event.type, event.hash) for event in store.session(run).events()] == before
        types = Counter(kind for kind, _ in before)
        assert (types["run.finished"], types["run.resumed"], types["memory.added"]) == (1, 1, 3)
        assert store.verify().ok
    for ref in (f"{run}/flight", f"{run}/hotel"):
        assert (len(effect_server.bookings[ref]), len(effect_server.requested_keys[ref])) == (1, 1)
    assert KilledRun(address, run, effect_server, processes, log).rows() == [f"{run}/first"]


# -- a broken connection


@pytest.mark.promise("B8", "X3", "X8", "X10", "X11")
@pytest.mark.parametrize("text", [b"", b"COMMIT"], ids=["any answer", "the answer to a commit"])
@pytest.mark.parametrize("point", ["append.encoded", "append.begun", "step.intended", "step.transacted"])
def test_a_connection_cut_during_a_run_duplicates_nothing(
    postgres_url: str,
    effect_server: EffectServer,
    processes: ChildProcesses,
    tmp_path: Path,
    point: str,
    text: bytes,
    everything: bool,
) -> None:
    crash_task.environment.port = effect_server.port
    with CuttingProxy(postgres_url) as proxy:
        visits = (1, 2) if point == "step.transacted" else range(1, 42, 5) if everything else (1, 20)
        if not everything:
            visits = visits[:1] if text else visits[1:]
        for visit in visits:
            log = tmp_path / f"{visit}.log"
            run = KilledRun(postgres_url, f"{tmp_path.name}-{visit}", effect_server, processes, log)
            crash_task.environment.log = str(log)
            cuts_before = proxy.cuts
            result = _run_trip_through(proxy, run.run, point, visit, text)
            run.kills = proxy.cuts - cuts_before
            run.check_finished(result)
        assert proxy.cuts >= (2 if everything else 1)
    verified(postgres_url)


def _run_trip_through(proxy: CuttingProxy, run: str, point: str, visit: int, text: bytes) -> Any:
    """Run a trip whose connection is cut after a visit of a point. Retries like a user who gets an error."""
    left = visit

    def listen(reached: str) -> None:
        nonlocal left
        left -= reached == point
        if left == 0 and reached == point:
            left = -1
            proxy.cut_after(text)

    with duramen.open(proxy.url, timeout=10) as store:
        store._core._engine.lease_seconds = LEASE
        crashpoints.listen(listen)
        try:
            for _ in range(3):
                with suppress(DuramenError):
                    return crash_task.start_trip(store, run)
            return crash_task.start_trip(store, run)
        finally:
            crashpoints.listen(None)
            proxy.cut_after(b"a text that is never sent")
