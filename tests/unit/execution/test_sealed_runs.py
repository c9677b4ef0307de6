"""Runs with a subject: sealed, erased with the subject, and redacted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from programs.side_effects import SideEffects, run_until_killed

import duramen
from duramen import RunStatus
from duramen.errors import RunError, RunParked

SECRET = "lives in 12 Harbour Street"


@duramen.step
def look_up(name: str) -> dict[str, Any]:
    duramen.emit(f"{name} {SECRET}")
    duramen.report(SECRET)
    duramen.remember(f"{name} {SECRET}")
    return {"found": SECRET, "api_key": "sk-live-0123456789abcdef"}


@duramen.task
def inner(name: str) -> Any:
    return look_up(name)


@duramen.task
def research(name: str) -> Any:
    result = inner(name)
    duramen.receive("go")
    return result


def test_a_sealed_run_resumes_and_is_erased_with_its_subject(address: str, tmp_path: Path) -> None:
    key = duramen.new_key()
    with duramen.open(address, key=key) as dm:
        with pytest.raises(RunParked):
            dm.run(research, "Ada", id="r", subject="ada")
        with pytest.raises(RunParked):
            dm.run(research, "Bob", id="other", subject="bob")
    with duramen.open(address, key=key) as dm:
        dm.signal("r", "go", SECRET)
        assert dm.resume("r")["found"] == SECRET
        report = dm.erase("ada")
        assert report.payloads >= 10
        assert dm.verify().ok
        for session in ("r", *[one.id for one in dm.runs(parent="r")]):
            assert not any(SECRET in str(event.data) for event in dm.session(session).events())
        with pytest.raises(RunError, match="erased"):
            dm.resume("r")
        dm.signal("other", "go")
        assert dm.resume("other")["found"] == SECRET, "the run of another subject is unchanged"
    for file in tmp_path.glob("agent.db*"):
        assert SECRET.encode() not in file.read_bytes()


def test_a_run_of_an_erased_subject_cannot_resume(address: str) -> None:
    with duramen.open(address) as dm:
        with pytest.raises(RunParked):
            dm.run(research, "Ada", id="r", subject="ada")
        dm.erase("ada")
        with pytest.raises(RunError, match="erased"):
            dm.resume("r")
        dm.cancel("r")
        assert dm.run_info("r").status in (RunStatus.CANCELLED, RunStatus.WAITING, RunStatus.CRASHED)


def test_erasing_the_subject_during_a_step_stops_the_run(address: str, effects: SideEffects) -> None:
    with duramen.open(address) as dm:

        @duramen.step
        def act() -> str:
            dm.erase("ada")
            return effects.do("act")

        @duramen.task
        def job() -> None:
            act()
            effects.do("after")

        with pytest.raises(RunError, match="erased"):
            dm.run(job, id="r", subject="ada")
        assert dm.verify().ok


def test_credentials_in_results_are_redacted_in_the_first_execution_too(address: str) -> None:
    with duramen.open(address) as dm:

        @duramen.task
        def job() -> Any:
            return look_up("Ada")

        assert "sk-live" not in str(dm.run(job, id="r"))
        assert not any("sk-live" in str(event.data) for event in dm.session("r").events())


def test_doubt_in_a_killed_sealed_run_is_settled(address: str, effects: SideEffects) -> None:
    @duramen.step(check=lambda: "found" if effects.times("act") else None)
    def act() -> str:
        return effects.do("act")

    @duramen.task
    def job() -> str:
        return act()

    key = duramen.new_key()
    effects.die = "after act"
    with duramen.open(address, key=key) as dm:
        run_until_killed(dm, job, id="r")
    with duramen.open(address, key=key) as dm:
        assert dm.resume("r", job) == "found"
    assert effects.times("act") == 1
