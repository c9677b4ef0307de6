"""A statement that names its own end expires then. No other statement does."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from programs.memory_handles import contents

import duramen
from duramen.errors import InvalidInput
from duramen.journal.events import micros, moment
from duramen.memory.extraction.expiry import holds_until
from duramen.testing.clock import FakeClock

WEDNESDAY = dt.datetime(2024, 5, 15, 10, tzinfo=dt.UTC)
EXPIRING = {
    "Ada is on holiday until Friday": "05-17",
    "Ada is on holiday until Friday.": "05-17",
    "The staging server is down today": "05-15",
    "Bob is in Rome this week": "05-19",
    "I am sick today": "05-15",
    "Ada works from Lisbon until 3 June": "06-03",
    "The sale runs until 31 May 2024": "05-31",
    "Deploys are frozen until Monday": "05-20",
    "Deploys are frozen until Wednesday": "05-22",
    "Ada is away tomorrow": "05-16",
    "Carol is not back until next week": "05-26",
    "I'm on call this weekend": "05-19",
    "The office is closed until 2024-05-20": "05-20",
    "Do not deploy until tomorrow": "05-16",
    "Ada has a cold at the moment": "05-15",
    "Today the office is closed": "05-15",
    "Bob is travelling next week": "05-26",
    "The road is blocked through Sunday": "05-19",
    "Ada will be in Oslo this month": "05-31",
    "Ada is staying with Bob until the end of the month": "05-31",
    "The printer is broken right now": "05-15",
    "Ada is away until the end of the year": "12-31",
    "Ada is on leave until June 2nd": "06-02",
}
PERMANENT = [
    "Ada lives in Rome", "Ada was in Rome this week", "Ada bought a house today", "Ada was born today",
    "As of today the limit is 5", "Ada stayed until Friday", "Ada works until Friday every week",
    "The shop is open until 9", "Ada said she is sick today", "The shop is open on Sundays until 6", "Ada is 30 today",
    "Ada has moved to Oslo today", "Ada is married since today", "From today on Ada is the boss",
    "Ada is on holiday until Friday. She lives in Rome.", "The offer was valid until 3 June",
    "Ada is happy until 3 May 2020", "Today's menu is pasta", "Ada is called Ada today", "Is Ada in Rome today?",
    "Ada usually is in the office this week", "The contract ends on Friday", "This week was hard",
    "Ada joined Acme today",
    "Ada's birthday is today", "Ada is away until 31 February", "Ada is away until 2024-13-45", "until", "today",
    "Ada is in Rome this week " + "and more " * 30,
]  # fmt: skip


@pytest.mark.promise("S8")
@pytest.mark.parametrize("text", EXPIRING)
def test_a_statement_expires_when_it_says(text: str) -> None:
    end = holds_until(text, micros("at", WEDNESDAY))
    assert end is not None
    last = moment(end) - dt.timedelta(days=1, hours=12)
    assert f"{last:%m-%d %H}" == f"{EXPIRING[text]} 00", (
        "twelve hours after the day: then it has ended in every time zone"
    )


@pytest.mark.promise("S8")
@pytest.mark.parametrize("text", PERMANENT)
def test_a_statement_without_a_clear_end_does_not_expire(text: str) -> None:
    assert holds_until(text, micros("at", WEDNESDAY)) is None


@example("Ada is sick today", 2**63)
@example("Ada is away next month", -(2**63))
@example("Ada is away until next year", 253_402_300_799_000_000)
@given(st.text() | st.sampled_from([*EXPIRING, *PERMANENT]), st.integers(-(2**63), 2**63))
def test_any_text_at_any_time_is_accepted(text: str, at: int) -> None:
    end = holds_until(text, at)
    assert end is None or end > at or moment(at).year == 1


@pytest.fixture
def dm(any_address: str, clock: FakeClock) -> Iterator[duramen.Duramen]:
    clock.advance((WEDNESDAY - moment(clock.now())).total_seconds())
    with duramen.open(any_address, embedder="none", clock=clock) as handle:
        yield handle


@pytest.mark.promise("S8")
def test_an_expiring_memory_is_recalled_until_its_end(dm: duramen.Duramen, clock: FakeClock) -> None:
    made = dm.memory.remember("Ada is on holiday until Friday")
    assert made.valid_to == dt.datetime(2024, 5, 18, 12, tzinfo=dt.UTC)
    assert dm.memory.remember("Ada is in Rome this week", lasting=True).valid_to is None
    assert dm.memory.remember("Ada is in Oslo this week", ttl=60).valid_to is None
    assert dm.memory.remember("Ada is in Bonn this week", kind="episode").valid_to is None
    assert contents(dm.memory.recall("holiday", threshold=0.5)) == [made.content]
    clock.advance(3 * 24 * 3600 + 3 * 3600)
    assert contents(dm.memory.recall("holiday", threshold=0.5)) == []
    assert dm.memory.get(made.id).content == made.content, "it is not forgotten"
    again = dm.memory.remember("Ada is on holiday until Friday")
    assert (again.times, again.valid_to) == (2, dt.datetime(2024, 5, 25, 12, tzinfo=dt.UTC))
    assert contents(dm.memory.recall("holiday", threshold=0.5)) == [made.content]
    with pytest.raises(InvalidInput, match="lasting"):
        dm.memory.remember("Ada is in Rome", lasting="yes")  # type: ignore[arg-type]


@pytest.mark.promise("S8", "X11")
def test_memories_from_a_run_expire_too(dm: duramen.Duramen) -> None:
    @duramen.step
    def look() -> None:
        duramen.remember("The shop is closed today")

    @duramen.task
    def visit() -> None:
        look()
        duramen.remember("The gym is closed today")
        duramen.remember("The bar is closed today", lasting=True)

    dm.run(visit, id="visit")
    ends = {one.content: one.valid_to for one in dm.memory.list()}
    end = dt.datetime(2024, 5, 16, 12, tzinfo=dt.UTC)
    assert ends == {"The shop is closed today": end, "The gym is closed today": end, "The bar is closed today": None}
