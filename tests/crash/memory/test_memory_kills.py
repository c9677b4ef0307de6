"""Kills while memories are stored, indexed or forgotten. A memory exists once or not at all."""

from __future__ import annotations

import json
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from programs.child_processes import ChildProcesses, Gate
from programs.memory_handles import DIMS, contents, open_memory, save_note, take_notes, vectors_of
from programs.seeds import seeded

import duramen
from duramen.embedders import CallableEmbedder
from duramen.errors import InvalidInput, UnknownMemory

APPEND_POINTS = ["append.encoded", "append.begun", "append.inserted", "append.committed"]
STEP_POINTS = ["step.intended", "step.acted", "step.recorded", "run.started", "run.claimed", "run.ended"]
POSTGRES_POINTS = [
    "append.begun",
    "append.committed",
    "step.acted",
    "step.recorded",
    "memory.indexed",
    "memory.forgetting",
]
"""The points that are tested on PostgreSQL too: before and after the server does its work."""


def cases(*points: str) -> list[tuple[str, str]]:
    """Every point on SQLite, and some on PostgreSQL."""
    return [("sqlite", point) for point in points] + [
        ("postgres", point) for point in points if point in POSTGRES_POINTS
    ]


# -- memories of steps


@pytest.mark.promise("X11", "S10")
@pytest.mark.parametrize(("address", "point"), cases(*APPEND_POINTS, *STEP_POINTS), indirect=["address"])
def test_a_memory_exists_once_if_and_only_if_its_step_is_done(
    address: str, processes: ChildProcesses, point: str
) -> None:
    expected = {text for n in range(2) for text in (f"note {n}", f"note {n} once more")} | {"all notes are taken"}
    for visit in (1, 3):
        child = processes.start("memory_handles:run_notes", crash=(point, visit), address=address, count=2)
        ended = child.wait()
        assert ended in (0, -signal.SIGKILL), child.errors()
        with open_memory(address, embedder="none") as dm:
            done = [
                event.data["step"]
                for row in dm.sessions()
                for event in dm.session(row.session).events(types="step.done")
            ]
            known = list(dm.memory.list(everyone=True))
            assert len(known) == 2 * sum(step.startswith("save_note") for step in done) + sum(
                step.startswith("@remember") for step in done
            )
            assert all(one.times == 1 for one in known)
            assert dm.verify().ok
    processes.start("memory_handles:run_notes", address=address, count=2).finish()
    with open_memory(address, embedder="none") as dm:
        known = list(dm.memory.list())
        assert sorted(contents(known)) == sorted(expected)
        assert {one.times for one in known} == {1}
        assert sorted(contents(dm.memory.recall("notes note", limit=50))) == sorted(expected)
        for one in known:
            session, _, position = one.source.rpartition("#")
            assert next(dm.session(session).events(start=int(position))).data["content"] == one.content


@pytest.mark.promise("X11")
def test_a_step_that_fails_remembers_nothing(any_address: str) -> None:
    @duramen.step
    def fails(times: list[int]) -> None:
        duramen.remember("never")
        times.append(1)
        raise ValueError("no")

    @duramen.step
    def misplaced() -> None:
        duramen.remember("without a subject", scope="subject")

    @duramen.task
    def try_both() -> str:
        times: list[int] = []
        for work, wrong in ((lambda: fails(times), ValueError), (misplaced, InvalidInput)):
            try:
                work()
            except wrong:
                continue
        return save_note("after it")

    with open_memory(any_address, embedder="none") as dm:
        assert dm.run(try_both) == "after it"
        assert contents(dm.memory.list(everyone=True)) == ["after it", "after it once more"]
        assert dm.run(take_notes, 1, subject="ada") == 1
        assert contents(dm.memory.list()) == ["after it", "after it once more"]
        assert len(list(dm.memory.list(subject="ada"))) == 5


# -- memories outside steps


@pytest.mark.promise("J2", "S4")
@pytest.mark.parametrize(("address", "point"), cases(*APPEND_POINTS), indirect=["address"])
def test_a_kill_while_remembering_stores_all_or_nothing(address: str, processes: ChildProcesses, point: str) -> None:
    for visit in (1, 3, 6):
        before = _total_mentions(address)
        child = processes.start("memory_handles:remember_facts", crash=(point, visit), address=address, count=12)
        assert child.wait() == -signal.SIGKILL, child.errors()
        more = _total_mentions(address) - before
        assert len(child.lines()) <= more <= len(child.lines()) + (point == "append.committed")
    processes.start("memory_handles:remember_facts", address=address, count=12).finish()
    with open_memory(address) as dm:
        assert sorted({one.content for one in dm.memory.list(everyone=True)}) == [f"fact {n}" for n in range(6)]
        assert dm.verify().ok


def _total_mentions(address: str) -> int:
    """How often memories were added in total. Each addition is in the history of one memory."""
    with open_memory(address, embedder="none") as dm:
        known = list(dm.memory.list(everyone=True))
        assert sum(one.times for one in known) == sum(len(dm.memory.history(one.id)) for one in known)
        assert len({one.id for one in known}) == len(known)
        return sum(one.times for one in known)


@pytest.mark.promise("S7", "R9")
@pytest.mark.parametrize(
    ("address", "point"), cases("memory.embedded", "memory.indexed", *APPEND_POINTS[1:]), indirect=["address"]
)
def test_missing_vectors_are_made_after_a_kill(address: str, processes: ChildProcesses, point: str) -> None:
    child = processes.start("memory_handles:remember_facts", crash=(point, 2), address=address, count=80, index=True)
    assert child.wait() == -signal.SIGKILL, child.errors()
    with open_memory(address) as dm:
        known = list(dm.memory.list(everyone=True))
        assert len(dm.memory.recall("fact", everyone=True, limit=100)) == len(known)
        dm.memory.catch_up()
        assert dm.memory.waiting() == 0
        assert dm.verify().ok
    asked: list[str] = []

    def counted(texts: list[str]) -> Any:
        asked.extend(texts)
        return vectors_of(texts)

    with open_memory(address, embedder=CallableEmbedder(counted, name="test", dims=DIMS)) as dm:
        assert len(dm.memory.recall("fact", everyone=True, limit=100)) == len(known)
        dm.memory.catch_up()
    assert asked == ["fact"]


# -- forgetting


@pytest.mark.promise("G3", "J2")
@pytest.mark.parametrize(("address", "point"), cases("memory.forgetting", *APPEND_POINTS), indirect=["address"])
def test_a_kill_while_forgetting_leaves_all_or_nothing(address: str, processes: ChildProcesses, point: str) -> None:
    with open_memory(address) as dm:
        ids = [dm.memory.remember(f"planted {number}").id for number in range(4)]
        dm.memory.remember("planted 1")
        dm.memory.catch_up()
    child = processes.start("memory_handles:forget_each", crash=(point, 2), address=address, ids=ids)
    assert child.wait() == -signal.SIGKILL, child.errors()
    assert child.lines() == ids[:1]
    gone = 2 if point == "append.committed" else 1
    with open_memory(address) as dm:
        assert contents(dm.memory.list()) == [f"planted {number}" for number in range(gone, 4)]
        assert sorted(contents(dm.memory.recall("planted"))) == [f"planted {number}" for number in range(gone, 4)]
        assert dm.verify().ok
        for number, id in enumerate(ids):
            if number < gone:
                with pytest.raises(UnknownMemory):
                    dm.memory.forget(id)
            else:
                assert dm.memory.forget(id).payloads == (2 if number == 1 else 1)
        assert list(dm.memory.recall("planted")) == []
        assert dm.verify().ok


@pytest.mark.promise("G3")
def test_a_memory_repeated_while_it_is_forgotten_leaves_no_trace(
    address: str, processes: ChildProcesses, tmp_path: Path
) -> None:
    with open_memory(address, embedder="none") as dm:
        gate = Gate(tmp_path / "gate")
        made = dm.memory.remember("planted")
        options = {"address": address, "text": "planted", "gate": gate.path, "count": 40}
        children = [processes.start("memory_handles:remember_repeatedly", session=f"s{n}", **options) for n in range(2)]
        for child in children:
            child.wait_for_lines(1)
        gate.open()
        while any(child.ended() is None for child in children):
            try:
                dm.memory.forget(made.id)
            except UnknownMemory:
                continue
            history = dm.memory.history(made.id)
            assert not history or any(one.current for one in history), "recall finds every version that is left"
        for child in children:
            child.finish()
        if dm.memory.history(made.id):
            dm.memory.forget(made.id)
        assert dm.memory.history(made.id) == []
        added = [event for row in dm.sessions() for event in dm.session(row.session).events(types="memory.added")]
        assert len(added) == 81
        assert all(event.erased for event in added)
        assert dm.verify().ok


@pytest.mark.promise("G3")
def test_recall_omits_memories_forgotten_by_another_process(
    address: str, processes: ChildProcesses, tmp_path: Path
) -> None:
    gates = [Gate(tmp_path / f"gate{number}") for number in range(3)]
    with open_memory(address) as dm:
        ids = [dm.memory.remember(f"fact {number}", subject="ada" if number == 3 else None).id for number in range(4)]
        dm.memory.catch_up()
        options = {"address": address, "query": "fact", "gates": [gate.path for gate in gates]}
        child = processes.start("memory_handles:recall_after_gates", **options)
        assert len(json.loads(child.wait_for_lines(1)[0])) == 4
        dm.memory.forget(ids[0])
        gates[0].open()
        assert sorted(json.loads(child.wait_for_lines(2)[1])) == ["fact 1", "fact 2", "fact 3"]
        dm.erase("ada")
        gates[1].open()
        assert sorted(json.loads(child.wait_for_lines(3)[2])) == ["fact 1", "fact 2"]
        dm.memory.remember("fact 9")
        gates[2].open()
        assert sorted(json.loads(child.finish()[3])) == ["fact 1", "fact 2", "fact 9"]


# -- concurrency


@pytest.mark.promise("S4")
def test_concurrent_remember_and_recall_lose_and_duplicate_nothing(any_address: str) -> None:
    chance, faults = seeded("pauses"), list[BaseException]()
    with open_memory(any_address) as dm:

        def work(name: int) -> None:
            try:
                for number in range(12):
                    dm.session(f"s{name}").remember(f"shared {number}")
                    dm.memory.remember(f"own {name} {number}", subject=f"p{name}")
                    hits = dm.memory.recall(f"own {name} {number}", subject=f"p{name}", threshold=0.99)
                    assert f"own {name} {number}" in contents(hits)
                    time.sleep(chance.random() / 1000)
            except BaseException as error:  # noqa: BLE001 - the test reports it
                faults.append(error)

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert faults == []
        dm.memory.catch_up()
        shared = list(dm.memory.list())
        assert sorted((one.content, one.times) for one in shared) == sorted((f"shared {n}", 4) for n in range(12))
        assert len(list(dm.memory.list(everyone=True))) == 12 * 5
        assert dm.verify().ok


@pytest.mark.promise("G3")
def test_erasing_a_subject_while_vectors_are_made_leaves_no_vector(any_address: str) -> None:
    begun, go = threading.Event(), threading.Event()

    def slow(texts: list[str]) -> list[list[float]]:
        if texts != ["planted"] or begun.is_set():
            return [[1.0, 0.0]] * len(texts)
        begun.set()
        assert go.wait(30)
        return [[1.0, 0.0]]

    with open_memory(any_address, embedder=CallableEmbedder(slow, name="slow", dims=2)) as dm:
        dm.memory.remember("planted", subject="ada")
        assert begun.wait(30)
        report = dm.erase("ada")
        assert (report.memories, report.vectors) == (1, 0)
        dm.memory.remember("planted", subject="ada")
        go.set()
        dm.memory.catch_up()
        assert contents(dm.memory.recall("planted", subject="ada")) == ["planted"]
        report = dm.erase("ada")
        assert (report.memories, report.vectors) == (1, 1)
        assert list(dm.memory.recall("planted", everyone=True)) == []
        assert dm.verify().ok


def test_closing_a_handle_while_vectors_are_made_is_quick(any_address: str) -> None:
    begun = threading.Event()

    def slow(texts: list[str]) -> list[list[float]]:
        begun.set()
        time.sleep(0.05)
        return [[1.0, 0.0]] * len(texts)

    with open_memory(any_address, embedder=CallableEmbedder(slow, name="slow", dims=2)) as dm:
        for number in range(3):
            dm.memory.remember(f"fact {number}")
        assert begun.wait(30)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert not [thread for thread in threading.enumerate() if thread.name == "duramen-memory"]
    with pytest.raises(duramen.errors.DuramenError):
        dm.memory.remember("after it")
