"""A hand-off stays within its budget."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import duramen
from duramen import Duramen, Progress
from duramen.context.handoff import Handoff
from duramen.context.tokens.counters import counter_for


@pytest.mark.promise("H4", "W2")
def test_a_long_line_does_not_displace_the_others(dm: Duramen) -> None:
    old = dm.session("old")
    old.decide("keep sqlite", reason="simple")
    old.decide("X " * 50_000, reason="y")
    old.progress.begin("Migrate everything " * 400, next_action="Do the small thing " * 300, context="word " * 5_000)
    old.progress.complete("one")
    old.progress.block("waiting " * 5_000)
    context = dm.session("new", continues="old").context()
    assert context.tokens <= context.budget
    for needed in ("keep sqlite", "Next: Do the small thing", "Done, do not repeat: one", "Blocked by: waiting"):
        assert needed in context.memory


texts = st.text(min_size=1, max_size=60).filter(lambda text: text.strip() != "")
words = st.one_of(texts, st.integers(1, 400).map(lambda count: "word " * count), st.just("日本語" * 200))


@pytest.mark.promise("H4", "W2")
@settings(max_examples=40, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(words, max_size=4),
    st.lists(words, max_size=12),
    st.lists(words, max_size=4),
    words,
    words,
    st.integers(100, 4_000),
)
def test_a_handoff_never_exceeds_its_budget(
    questions: list[str], steps: list[str], doubt: list[str], goal: str, blocker: str, budget: int
) -> None:
    counter = counter_for(None)
    next_action = "an action that is not a step"
    progress = Progress(goal, tuple(steps), blocker, next_action, "\n".join(questions))
    handoff = Handoff("old", 7, progress, tuple(questions), tuple(steps), tuple(doubt))
    text = handoff.text(counter, budget)
    assert counter.count(text) <= budget
    assert "old" in text
    with duramen.open("memory:") as dm:
        old = dm.session("old")
        old.progress.begin(goal, next_action=next_action)
        for step in steps:
            old.progress.complete(step)
            old.decide(step, reason=goal)
        old.progress.block(blocker)
        context = dm.session("new", continues="old").context(budget=budget)
        assert context.tokens <= budget
        assert counter.count(context.memory) <= 0.4 * budget + 60  # the delimiters come on top
        assert context.memory == dm.session("new").context(budget=budget).memory
