"""Runs about a person: sealed, erased with that person, and redacted like everything else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from programs.faroff import Far, killed

import holdfast
from holdfast import RunStatus
from holdfast.errors import RunError, RunParked

SECRET = "lives in 12 Harbour Street"


@pytest.fixture(params=["sqlite", "postgres"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(request.getfixturevalue("postgres_url") if request.param == "postgres" else tmp_path / "agent.db")


@holdfast.step
def look_up(name: str) -> dict[str, Any]:
    holdfast.emit(f"{name} {SECRET}")
    holdfast.report(SECRET)
    holdfast.remember(f"{name} {SECRET}")
    return {"found": SECRET, "api_key": "sk-live-0123456789abcdef"}


@holdfast.task
def inner(name: str) -> Any:
    return look_up(name)


@holdfast.task
def research(name: str) -> Any:
    found = inner(name)
    holdfast.receive("go")
    return found


def test_a_sealed_run_goes_on_and_is_erased_with_its_subject(address: str, tmp_path: Path) -> None:
    key = holdfast.new_key()
    with holdfast.open(address, key=key) as hf:
        with pytest.raises(RunParked):
            hf.run(research, "Ada", id="r", subject="ada")
        with pytest.raises(RunParked):
            hf.run(research, "Bob", id="other", subject="bob")
    with holdfast.open(address, key=key) as hf:
        hf.signal("r", "go", SECRET)
        assert hf.resume("r")["found"] == SECRET
        report = hf.erase("ada")
        assert report.payloads >= 10
        assert hf.verify().ok
        for session in ("r", *[one.id for one in hf.runs(parent="r")]):
            assert not any(SECRET in str(event.data) for event in hf.session(session).events())
        with pytest.raises(RunError, match="erased"):
            hf.resume("r")
        hf.signal("other", "go")
        assert hf.resume("other")["found"] == SECRET, "another person's run is untouched"
    for file in tmp_path.glob("agent.db*"):
        assert SECRET.encode() not in file.read_bytes()


def test_a_run_whose_subject_was_erased_cannot_go_on_and_says_so(address: str) -> None:
    with holdfast.open(address) as hf:
        with pytest.raises(RunParked):
            hf.run(research, "Ada", id="r", subject="ada")
        hf.erase("ada")
        with pytest.raises(RunError, match="erased"):
            hf.resume("r")
        hf.cancel("r")
        assert hf.run_info("r").status in (RunStatus.CANCELLED, RunStatus.WAITING, RunStatus.CRASHED)


def test_a_subject_erased_in_the_middle_of_a_step_stops_the_run(address: str, far: Far) -> None:
    with holdfast.open(address) as hf:

        @holdfast.step
        def act() -> str:
            hf.erase("ada")
            return far.do("act")

        @holdfast.task
        def job() -> None:
            act()
            far.do("after")

        with pytest.raises(RunError, match="erased"):
            hf.run(job, id="r", subject="ada")
        assert hf.verify().ok


def test_credentials_in_results_are_redacted_also_in_this_execution(address: str) -> None:
    with holdfast.open(address) as hf:

        @holdfast.task
        def job() -> Any:
            return look_up("Ada")

        assert "sk-live" not in str(hf.run(job, id="r"))
        assert not any("sk-live" in str(event.data) for event in hf.session("r").events())


def test_a_killed_sealed_run_is_settled(address: str, far: Far) -> None:
    @holdfast.step(check=lambda: "found" if far.times("act") else None)
    def act() -> str:
        return far.do("act")

    @holdfast.task
    def job() -> str:
        return act()

    key = holdfast.new_key()
    far.die = "after act"
    with holdfast.open(address, key=key) as hf:
        killed(hf, job, id="r")
    with holdfast.open(address, key=key) as hf:
        assert hf.resume("r", job) == "found"
    assert far.times("act") == 1
