"""Procedures distilled from runs. Only successful runs qualify."""

from __future__ import annotations

import pytest

import duramen
from duramen import errors

BUILD = ["build the image", "push it", "roll it out"]


@duramen.step
def find_flight(city: str) -> str:
    return f"flight to {city}"


@duramen.step
def book_seat(seat: int) -> int:
    if seat < 0:
        raise ValueError("no such seat")
    return seat


@duramen.task
def plan_journey(city: str, fail: bool = False) -> str:
    """Book a journey with three seats."""
    find_flight(city)
    for seat in range(3):
        book_seat(seat)
    try:
        book_seat(-1)
    except ValueError:
        if fail:
            raise
    duramen.sleep(0)
    if not duramen.ask("Send the tickets?", timeout=0, default=True):
        return "not sent"
    find_flight.keyed("back")(city)
    return "sent"


@duramen.task
def idle() -> int:
    return 1


@pytest.mark.promise("P4")
def test_a_successful_run_becomes_a_procedure_that_recall_offers(any_address: str) -> None:
    with duramen.open(any_address, embedder="none") as dm:
        dm.memory.remember("The office closes at six")
        dm.memory.procedures.save("deploy", BUILD)
        dm.run(plan_journey, "Lisbon", id="trip-1")
        learned = dm.memory.procedures.distill("trip-1", name="journeys")
        assert learned.steps == (
            "find flight",
            "book seat \u00d73",
            "wait",
            "ask: Send the tickets?",
            "find flight",
        )
        assert (learned.name, learned.title, learned.version) == (
            "journeys",
            "Book a journey with three seats",
            1,
        )
        assert (learned.successes, learned.failures) == (1, 0)
        assert "plan_journey('Lisbon')" in learned.memory.content
        assert dm.memory.procedures.distill("trip-1", name="journeys") == learned, "distilling a run twice adds nothing"
        ended = next(dm.session("trip-1").events(types="run.finished"))
        saved = next(dm.session("@procedures").events(start=int(learned.source.partition("#")[2])))
        assert saved.cause == f"trip-1#{ended.position}"
        dm.run(plan_journey, "Rome", id="trip-2")
        again = dm.memory.procedures.distill("trip-2", name="journeys")
        assert (again.version, again.successes) == (1, 2), "the same steps worked twice"
        offered = dm.session("talk").recall("Please book a journey to Oslo")
        assert offered.procedures[0].memory.key == "procedure:journeys"
        assert dm.memory.procedures.distill("trip-2").name == "plan_journey"


@pytest.mark.promise("P4")
def test_only_successful_runs_become_procedures(any_address: str) -> None:
    with duramen.open(any_address, embedder="none") as dm:
        with pytest.raises(ValueError):
            dm.run(plan_journey, "Lisbon", True, id="failed")
        dm.start(plan_journey, "Lisbon", id="waiting")
        dm.start(plan_journey, "Lisbon", id="stopped")
        dm.cancel("stopped")
        dm.run(idle, id="idle")
        for run, why in (("failed", "failed"), ("waiting", "open"), ("stopped", "cancelled"), ("idle", "no steps")):
            with pytest.raises(errors.RunError, match=why) as refused:
                dm.memory.procedures.distill(run)
            assert refused.value.hint
        with pytest.raises(errors.UnknownRun):
            dm.memory.procedures.distill("nothing")
        assert dm.memory.procedures.list() == []


@pytest.mark.promise("P4")
def test_a_procedure_from_a_subjects_run_belongs_to_that_subject(any_address: str) -> None:
    with duramen.open(any_address, embedder="none") as dm:
        dm.run(plan_journey, "Lisbon", id="trip", subject="ada")
        dm.memory.procedures.distill("trip", name="journeys")
        assert dm.memory.procedures.get("journeys") is None
        assert dm.memory.procedures.get("journeys", subject="ada") is not None
        dm.erase("ada")
        assert dm.memory.procedures.list(everyone=True) == []
        with pytest.raises(errors.RunError, match="erased"):
            dm.memory.procedures.distill("trip")
