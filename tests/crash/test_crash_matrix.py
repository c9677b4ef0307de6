"""A task of 25 steps of all kinds, killed everywhere: whatever happens, it ends as if nothing had.

Some 800 processes are killed here, by themselves at crash points or from outside at random moments; after each of them
the journal, the steps' own notes and the effect server are compared.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest
from programs import crash_task
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

STORES = ["sqlite", "postgres"]
POINTS = [
    "append.encoded", "append.begun", "append.inserted", "append.committed", "run.started", "run.claimed",
    "step.intended", "step.acted", "step.transacted", "step.recorded", "run.ended",
]  # fmt: skip
COMMON = ["append.encoded", "append.begun", "append.committed", "step.intended", "step.acted", "step.recorded"]
"""Points that every step comes to."""
CHAINS = [
    ("append.encoded", 7), ("append.begun", 7), ("append.committed", 6), ("step.intended", 2), ("step.acted", 2),
    ("step.recorded", 1), ("step.recorded", 3), ("append.committed", 8),
]  # fmt: skip
"""Where each process of a chain dies, so late that it gets on by a step at least."""
STRIDE = 9
"""In `make test`, a process dies at every ninth visit of a point. The chains die at the visits between them."""
PARKING = 0.0
"""Patience of runs that are unwound at every sleep and every second attempt."""
LEASE = 1.0
POWER_CUTS = 40


@pytest.fixture(params=STORES)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture(scope="module")
def effect_server() -> Iterator[EffectServer]:
    with EffectServer() as server:
        yield server


@dataclass
class Journey:
    """One run of the trip through its deaths, and everything that is known about it from outside."""

    address: str
    run: str
    effect_server: EffectServer
    processes: ChildProcesses
    log: Path
    patience: float = 5.0
    kills: int = 0
    finished: set[str] = field(default_factory=set)
    progress: int = 0
    heard: int = 0
    watcher: Duramen | None = None

    def begin(self, crash: tuple[str, int] | None = None) -> ChildProcess:
        """A child that goes on with it."""
        given = {"port": self.effect_server.port, "log": str(self.log), "patience": self.patience}
        return self.processes.start("crash_task:run_trip", crash=crash, address=self.address, run=self.run, **given)

    def die(self, point: str, visit: int) -> bool:
        """Go on until the given point. False if the run got to its end without coming there."""
        child = self.begin((point, visit))
        status = child.wait()
        if status == 0:
            return False
        assert status == -signal.SIGKILL, child.errors()
        self.buried()
        return True

    def buried(self) -> None:
        """It was killed: look at what it left."""
        self.kills += 1
        self.audit()

    def arrive(self) -> None:
        """Go on to the end, and find everything done, once."""
        said = self.begin().finish()
        self.check_arrival(json.loads(said[-1]))

    def check_arrival(self, result: Any) -> None:
        """The result is the one of a run that nobody disturbed, and so is everything else."""
        assert result == crash_task.RESULT
        self.audit()
        self.check_effects()
        self.check_journal()
        begun = Counter(name for _, verb, name in self.deeds() if verb == "begin" and name != "flaky#1")
        assert sum(begun.values()) - len(begun) <= self.kills, f"more steps were repeated than killed: {begun}"
        assert not any(name.startswith("undo") for name in begun)

    # -- what can be seen

    def deeds(self) -> list[tuple[int, str, str]]:
        """What steps wrote down: when, whether they began or ended, and which."""
        if not self.log.exists():
            return []
        lines = [line.split(" ", 2) for line in complete_lines(self.log)]
        return [(int(when), verb, name) for when, verb, name in lines]

    def events(self) -> list[tuple[str, duramen.Event]]:
        """The events of the run and of its child, with the step that each is about."""
        with nullcontext(self.watcher) if self.watcher else duramen.open(self.address) as store:
            found = list(store.session(self.run).events())
            children = [event.data["child"] for event in found if event.data and "child" in event.data]
            inner = [event for child in dict.fromkeys(children) for event in store.session(child).events()]
        named = [(event.data.get("step", ""), event) for event in found]
        return named + [(f"child:{event.data.get('step', '')}", event) for event in inner]

    def rows(self) -> list[str]:
        """The user's own rows."""
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

    # -- what must hold, after every kill

    def audit(self) -> None:
        """Intents come before effects, outcomes after them, and what is done is done once."""
        deeds = self.deeds()
        named = self.events()
        self._check_order(deeds, named)
        new, self.heard = deeds[self.heard :], len(deeds)
        again = {name for _, verb, name in new if verb == "begin"} & self.finished
        assert not again, f"these were done already: {again}"
        pages = [int(name) for _, verb, name in new if verb == "page"]
        assert all(page > self.progress for page in pages), "a page was fetched again that was reported"
        self.finished = {name for name, event in named if _ends(event)}
        self.progress = max([event.data["value"] for _, event in named if event.type == "step.progress"], default=0)
        self._check_attached(named)

    def _check_order(self, deeds: list[tuple[int, str, str]], named: list[tuple[str, duramen.Event]]) -> None:
        intents = Counter(name for name, event in named if event.type == "step.started")
        begun = Counter(name for _, verb, name in deeds if verb == "begin")
        assert all(count <= intents[name] for name, count in begun.items()), (begun, intents)
        first = {name: event.time for name, event in reversed(named) if event.type == "step.started"}
        for when, verb, name in deeds:
            assert verb != "begin" or first[name] <= when
        ended = {name: when for when, verb, name in deeds if verb == "end"}
        for name, event in named:
            if _ends(event) and not name.removeprefix("child:").startswith("@"):
                assert name in ended or event.type == "step.settled", f"{name} is recorded and did not happen"
                assert event.time >= ended.get(name, 0)

    def _check_attached(self, named: list[tuple[str, duramen.Event]]) -> None:
        """A memory and a row are there if and only if the step that brought them is done."""
        memories = Counter(event.data["content"] for _, event in named if event.type == "memory.added")
        brought = {
            "enrol#1": ["{}/first is enrolled"],
            "crawl#1": ["{} is read"],
            "learn#1": ["{} likes aisles", "{} hates queues"],
            "timed#1": ["{}/timed was in time"],
            "@remember#1": ["{} was halfway"],
            "enrol#2": ["{}/second is enrolled"],
        }
        expected = [text.format(self.run) for step, texts in brought.items() if step in self.finished for text in texts]
        assert memories == Counter(expected)
        enrolled = {"enrol#1": f"{self.run}/first", "enrol#2": f"{self.run}/second"}
        assert sorted(self.rows()) == sorted(ref for step, ref in enrolled.items() if step in self.finished)

    # -- what must hold at the end

    def check_effects(self) -> None:
        """One booking and one mail each; every booking was asked for under one key only."""
        for ref in (f"{self.run}/{name}" for name in crash_task.BOOKED):
            assert len(self.effect_server.bookings[ref]) == 1, ref
            assert len(self.effect_server.requested_keys[ref]) == 1, ref
        for ref in (f"{self.run}/{name}" for name in crash_task.MAILED):
            assert self.effect_server.mails[ref] == 1, ref
        assert self.effect_server.flaky_calls[self.run] >= 3

    def check_journal(self) -> None:
        """Every step has one outcome, every piece of output is there once, in order."""
        named = self.events()
        outcomes = Counter(name for name, event in named if _ends(event))
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


def _ends(event: duramen.Event) -> bool:
    """Whether an event is a step's good end."""
    return event.type == "step.done" or (event.type == "step.settled" and event.data["verdict"] == "happened")


@pytest.fixture
def set_out(address: str, effect_server: EffectServer, processes: ChildProcesses, tmp_path: Path) -> Iterator[Any]:
    """Begin a journey of its own."""
    with ExitStack() as stack:
        # A file is opened and closed for each look, as that changes it; at a server one handle looks all the time.
        watcher = None if address.endswith("agent.db") else stack.enter_context(duramen.open(address))

        def begin(run: str, patience: float = 5.0) -> Journey:
            unique = f"{tmp_path.name}-{run}"  # the effect server is shared by all tests
            return Journey(
                address, unique, effect_server, processes, tmp_path / f"{run}.log", patience, watcher=watcher
            )

        yield begin


def verified(address: str) -> None:
    with duramen.open(address) as store:
        found = store.verify()
    assert found.ok, found.problems


def visits(address: str, run: str, effect_server: EffectServer) -> Counter[str]:
    """How often a run that nobody disturbs comes to each point."""
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
def test_a_kill_at_every_point_changes_nothing(
    address: str, effect_server: EffectServer, set_out: Any, point: str, everything: bool
) -> None:
    there = visits(address, set_out("undisturbed").run, effect_server)[point]
    assert there >= (22 if point in COMMON else 2)
    stride = STRIDE if point in COMMON and not everything else 1
    for visit in range(1, there + 1, stride):
        journey = set_out(f"r{visit}")
        assert journey.die(point, visit), f"there is no visit {visit}"
        journey.arrive()
    verified(address)


@pytest.mark.promise("X1", "X2", "X3", "X6", "X8", "X10", "X11")
@pytest.mark.parametrize(("point", "visit"), CHAINS)
def test_a_run_that_is_killed_at_every_step_gets_to_its_end(address: str, set_out: Any, point: str, visit: int) -> None:
    journey = set_out("r")
    while journey.die(point, visit):
        assert journey.kills < 60, "it does not get on"
    assert journey.kills >= 7
    journey.arrive()
    verified(address)


@pytest.mark.promise("X2", "X3", "X5", "X6", "X8", "X10", "X11", "X14")
@pytest.mark.parametrize("seed", range(3))
def test_a_run_killed_at_any_points_in_any_order_gets_to_its_end(address: str, set_out: Any, seed: int) -> None:
    chance = seeded(seed)
    for number in range(3):
        journey = set_out(f"r{number}", patience=chance.choice([PARKING, 5.0]))
        for _ in range(20):
            point, visit = chance.choice(COMMON), chance.randrange(1, 7)
            if not journey.die(point, visit):
                break
        journey.arrive()
    verified(address)


@pytest.mark.promise("X2", "X3", "X6", "X8", "X10", "X11")
@pytest.mark.parametrize("seed", range(2))
def test_runs_killed_at_random_moments_get_to_their_end(
    address: str, set_out: Any, seed: int, everything: bool
) -> None:
    chance = seeded(seed)
    for number in range(40 if everything else 4):
        journey = set_out(f"r{number}")
        for _ in range(6):
            child, steps = journey.begin(), len(journey.deeds())
            wanted = steps + chance.randrange(1, 12)
            until(lambda: len(journey.deeds()) >= wanted or child.ended() is not None, "a few steps")  # noqa: B023
            time.sleep(chance.uniform(0, 0.006))  # not to wait for anything: to hit any instruction
            if child.kill() == 0:
                break
            journey.buried()
        journey.arrive()
    verified(address)


@pytest.mark.promise("X5", "X6", "X8")
@pytest.mark.parametrize("effect", ["mail#1", "sign#1", "mail#2"])
def test_a_kill_while_doubt_is_settled_changes_nothing(address: str, set_out: Any, effect: str) -> None:
    journey = set_out("r")
    visit = {"mail#1": 4, "sign#1": 5, "mail#2": 18}[effect]
    assert journey.die("step.acted", visit)
    assert journey.deeds()[-1][1:] == ("end", effect)
    for _ in range(2):
        assert journey.die("step.settled", 1)  # found to have happened, and killed before that is written down
    journey.arrive()
    assert [name for _, verb, name in journey.deeds() if verb == "begin"].count(effect) == 1


@pytest.mark.promise("X2", "X14")
def test_a_kill_where_a_run_is_unwound_changes_nothing(
    address: str, effect_server: EffectServer, processes: ChildProcesses, set_out: Any
) -> None:
    journey = set_out("r")
    given = {"address": address, "run": journey.run, "port": effect_server.port, "log": str(journey.log)}
    for _ in range(2):  # two sleeps
        child = processes.start("crash_task:run_doze", crash=("run.parked", 1), **given)
        assert child.wait() == -signal.SIGKILL, child.errors()
    said = processes.start("crash_task:run_doze", **given).finish()
    assert json.loads(said[-1]) == [{"seat": 1}, {"sent": True}, 1]
    assert [name for _, verb, name in journey.deeds() if verb == "begin"] == ["book#1", "mail#1", "enrol#1"]
    assert journey.rows() == [f"{journey.run}/first"]
    verified(address)


@pytest.mark.promise("X4", "X5", "X6")
@pytest.mark.parametrize("visit", [2, 4, 5, 10, 19])
def test_a_step_that_may_have_happened_is_said_to_be_in_doubt(address: str, set_out: Any, visit: int) -> None:
    journey = set_out("r")
    assert journey.die("step.acted", visit)
    last = journey.deeds()[-1]
    assert last[1] == "end"
    with duramen.open(address) as store:
        info = store.run_info(journey.run)
    assert (info.status, info.in_doubt) == ("crashed", [last[2]])
    journey.arrive()
    settled = [event.data for name, event in journey.events() if event.type == "step.settled"]
    checked = last[2].startswith(("mail", "sign"))
    found = {"by": "check", "verdict": "happened"} if checked else {"by": "declaration", "verdict": "rerun"}
    assert [(one["step"], one["by"], one["verdict"]) for one in settled] == [(last[2], *found.values())]
    assert [name for _, verb, name in journey.deeds() if verb == "begin"].count(last[2]) == (1 if checked else 2)
    with duramen.open(address) as store:
        assert store.run_info(journey.run).in_doubt == []


# -- power cuts


def cut_short(disk: PowerLossDisk, run: str, synchronous: str = "full") -> None:
    """Run the trip on this disk until its power is cut."""
    with suppress(apsw.Error, DuramenError):
        store = SqliteStore(SqliteSettings("agent.db", vfs=disk.vfs_name), Blocking())
        if synchronous != "full":  # a store that never waits for the disk
            store._access.writer.connection.pragma("synchronous", synchronous)
            store._access.writer._sync_commits = lambda synced: None  # type: ignore[method-assign]
        handle = Duramen(AsyncDuramen(open_journal(store, {}), Blocking()))
        # The machine that went down was another one, and nobody has to wait for its lease.
        handle._core._engine._owner = new_owner().replace(f"/{os.getpid()}/", f"/{2**22 + 1}/")
        try:
            crash_task.start_trip(handle, run)
        finally:
            handle.close()


def journeys_through_power_cuts(
    effect_server: EffectServer, processes: ChildProcesses, directory: Path, synchronous: str
) -> Iterator[Journey]:
    """Runs that were cut short at many calls, each on the machine after its reboot."""
    crash_task.environment.port, crash_task.environment.log = effect_server.port, os.devnull
    with PowerLossDisk() as disk:
        cut_short(disk, f"{directory.name}-whole", synchronous)
        calls = disk.calls
    assert calls > POWER_CUTS
    for number in range(POWER_CUTS):
        call = 1 + number * (calls - 1) // (POWER_CUTS - 1)
        run = f"{directory.name}-{call}"
        log = directory / f"{call}.log"
        crash_task.environment.log = str(log)
        with PowerLossDisk(seed=call) as disk:
            disk.cut_at(call)
            cut_short(disk, run, synchronous)
            survivors = disk.survivors(directory / str(call))
        yield Journey(str(survivors / "agent.db"), run, effect_server, processes, log, kills=1)


def go_on(journey: Journey) -> None:
    """What a reboot must bring."""
    journey.audit()
    with duramen.open(journey.address) as store:
        result = crash_task.start_trip(store, journey.run)
    journey.check_arrival(result)
    verified(journey.address)


@pytest.mark.promise("X1", "X2", "X3", "X8", "X10", "X11", "J3", "C8")
def test_a_power_cut_at_any_moment_changes_nothing(
    effect_server: EffectServer, processes: ChildProcesses, tmp_path: Path
) -> None:
    for journey in journeys_through_power_cuts(effect_server, processes, tmp_path, "full"):
        go_on(journey)


@pytest.mark.promise("X1")
def test_the_matrix_would_catch_intents_that_are_not_durable(
    effect_server: EffectServer, processes: ChildProcesses, tmp_path: Path
) -> None:
    caught = 0
    for journey in journeys_through_power_cuts(effect_server, processes, tmp_path, "normal"):
        try:
            go_on(journey)
        except AssertionError:
            caught += 1
    assert caught > POWER_CUTS / 4


# -- a worker that was away


@pytest.mark.promise("X16", "X17")
@pytest.mark.parametrize("where", ["step.intended:1", "step.acted:1", "step.intended:2", "step.recorded:2", "killed"])
def test_a_worker_that_was_away_for_longer_than_its_lease_writes_nothing(
    address: str, effect_server: EffectServer, processes: ChildProcesses, tmp_path: Path, where: str
) -> None:
    run = f"{tmp_path.name}-run"
    given = {"address": address, "run": run, "port": effect_server.port, "log": str(tmp_path / "log"), "lease": LEASE}
    with duramen.open(address) as store:
        handle = store.start(crash_task.errand, run, id=run)
        stopped = "step.acted:2" if where == "killed" else where
        away = processes.start("crash_task:work_with_lease", stop_at=stopped, **given)
        assert away.wait_for_lines(2) == ["working", "stopping"], away.errors()
        if where == "killed":
            away.kill()
        other = processes.start("crash_task:work_with_lease", stop_at=None, **given)
        assert handle.result(timeout=30) == [{"seat": 1}, 1, {"seat": 1}]
        other.kill()
        before = [(event.type, event.hash) for event in store.session(run).events()]
        away.signal(signal.SIGCONT)
        if where != "killed":
            said = away.finish()
            assert said[-1] == "stopped"
            assert [line for line in said if line.startswith("log") and "lease" in line], said
        assert [(event.type, event.hash) for event in store.session(run).events()] == before
        types = Counter(kind for kind, _ in before)
        assert (types["run.finished"], types["run.resumed"], types["memory.added"]) == (1, 1, 3)
        assert store.verify().ok
    for ref in (f"{run}/flight", f"{run}/hotel"):
        assert (len(effect_server.bookings[ref]), len(effect_server.requested_keys[ref])) == (1, 1)
    assert Journey(address, run, effect_server, processes, tmp_path / "log").rows() == [f"{run}/first"]


# -- a network that breaks


@pytest.mark.promise("B8", "X3", "X8", "X10", "X11")
@pytest.mark.parametrize("text", [b"", b"COMMIT"], ids=["any answer", "the answer to a commit"])
@pytest.mark.parametrize("point", ["append.encoded", "append.begun", "step.intended", "step.transacted"])
def test_a_connection_cut_in_the_middle_of_a_run_doubles_nothing(
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
        for visit in (1, 2) if point == "step.transacted" else range(1, 42, 5 if everything else 13):
            run = f"{tmp_path.name}-{visit}"
            journey = Journey(postgres_url, run, effect_server, processes, tmp_path / f"{visit}.log")
            crash_task.environment.log = str(journey.log)
            journey.kills = proxy.cuts
            result = _through(proxy, run, point, visit, text)
            journey.kills = proxy.cuts - journey.kills
            journey.check_arrival(result)
        assert proxy.cuts >= 2
    verified(postgres_url)


def _through(proxy: CuttingProxy, run: str, point: str, visit: int, text: bytes) -> Any:
    """The result of a trip whose connection is cut after a point; whoever is told of the cut tries again."""
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
            proxy.cut_after(b"nothing that anybody sends")
