"""Long conversations: the tokens, time, reads and memory of a context do not depend on the length of the conversation,
and the store grows linearly."""

from __future__ import annotations

import gc
import itertools
import statistics
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from programs.conversations import WordCounter, count_tokens

import duramen
from duramen import Draft, Duramen, Session

BATCH = 40
"""Turns in one append."""
WINDOW: dict[str, Any] = {"budget": 2_000}
MEASURED_TURNS = 60


class Cost(NamedTuple):
    """The cost of consecutive contexts: the maximum, and for CPU time the median in seconds."""

    tokens: int
    seconds: float
    cold_seconds: float
    rows: int
    memory: int


def turn(number: int) -> list[Draft]:
    """A question, a tool call with its result (sometimes a long one), an answer, and sometimes a decision."""
    flight, price = f"LH{number:05}", f"{number * 7 % 900:03} euro"
    output = f"{flight} costs {price}\n" * (150 if number % 40 == 0 else 2)
    drafts = [
        Draft("talk.message", {"role": "user", "content": f"What does {flight} cost today?"}),
        Draft("talk.called", {"id": flight, "tool": "search", "arguments": {"flight": flight}}),
        Draft("talk.returned", {"id": flight, "output": output, "error": False}),
        Draft("talk.message", {"role": "assistant", "content": f"{flight} costs {price} today."}),
    ]
    if number % 50 == 0:
        drafts.append(Draft("talk.decided", {"decision": f"Book {flight}", "reason": f"{price} is cheap"}))
    return drafts


class Conversation:
    """A long session whose contexts are measured."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.dm = duramen.open(path)
        self.session: Session = self.dm.session("s")
        self.turns = 0
        self.rows = 0
        store = self.dm._core._journal.store
        for name in ("read", "pick", "talk"):
            monkeypatch.setattr(store, name, self._counted(getattr(store, name)))

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        async def counted(*args: Any) -> Any:
            rows = await call(*args)
            self.rows += len(rows)
            return rows

        return counted

    def talk(self, upto: int) -> None:
        """Continue up to a number of turns, with one context for each batch."""
        while self.turns < upto:
            drafts = [draft for number in range(self.turns, self.turns + BATCH) for draft in turn(number)]
            self.session.append_all(drafts)
            self.turns += BATCH
            assert self.session.context(**WINDOW).tokens <= WINDOW["budget"]

    def measure(self) -> Cost:
        """Take turns one by one, each with a context, and measure them."""
        tokens: list[int] = []
        rows: list[int] = []
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(MEASURED_TURNS):
            self._one_turn(tokens, rows)
        memory = tracemalloc.get_traced_memory()[1] - before
        tracemalloc.stop()
        seconds = [self._one_turn(tokens, rows) for _ in range(MEASURED_TURNS)]
        cold = statistics.median(self._cold() for _ in range(9))
        return Cost(max(tokens), statistics.median(seconds), cold, max(rows), memory)

    def _one_turn(self, tokens: list[int], rows: list[int]) -> float:
        self.session.append_all(turn(self.turns))
        self.turns += 1
        self.rows = 0
        begun = time.process_time()
        context = self.session.context(**WINDOW)
        seconds = time.process_time() - begun
        tokens.append(context.tokens)
        rows.append(self.rows)
        return seconds

    def _cold(self) -> float:
        """The time of the first context of a new handle."""
        with duramen.open(self.path) as dm:
            begun = time.process_time()
            dm.session("s").context(**WINDOW)
            return time.process_time() - begun

    def size(self) -> int:
        """The bytes of the store."""
        (used,) = self._query("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
        return int(used)

    def _query(self, sql: str) -> Any:
        import apsw

        connection = apsw.Connection(str(self.path))
        try:
            return next(iter(connection.execute(sql)))
        finally:
            connection.close()


@pytest.mark.promise("W2", "W10", "C4")
def test_the_cost_of_a_context_does_not_grow_with_the_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, everything: bool
) -> None:
    turns = 10_000 if everything else 3_200
    conversation = Conversation(tmp_path / "agent.db", monkeypatch)
    sizes = []
    conversation.talk(turns // 5)  # enough for summaries of every level
    early = conversation.measure()
    for upto in range(turns // 4, turns + 1, turns // 4):
        conversation.talk(upto)
        sizes.append(conversation.size())
    late = conversation.measure()
    context = conversation.session.context(**WINDOW)
    conversation.dm.close()
    assert late.tokens <= 1.05 * early.tokens <= 1.05 * WINDOW["budget"]
    assert late.rows <= 1.2 * early.rows < 250
    assert late.memory <= 1.3 * early.memory
    # Medians on a busy machine. A cost that grows with the length would be five times higher.
    assert late.seconds <= 2.5 * early.seconds
    assert late.cold_seconds <= 2.5 * early.cold_seconds
    steps = [later - earlier for earlier, later in itertools.pairwise(sizes)]
    assert max(steps) <= 1.15 * min(steps)
    assert sizes[-1] <= 4.4 * sizes[0]
    assert "Book LH00000 because 000 euro is cheap" in context.memory  # the first decision is still known
    assert count_tokens(context, WordCounter().count) > 0


@pytest.mark.promise("W10")
def test_summaries_are_few_and_rarely_made_again(dm: Duramen, everything: bool) -> None:
    turns = 1_000 if everything else 400
    session = dm.session("s")
    for begin in range(0, turns, BATCH):
        session.append_all([draft for number in range(begin, begin + BATCH) for draft in turn(number)])
        context = session.context(**WINDOW)
    written = list(session.events(types="context.summary"))
    compacted = list(session.events(types="context.compacted"))
    assert len(compacted) == turns // BATCH
    assert len(written) <= 2 * len(compacted)  # of all levels
    assert max(event.data["level"] for event in written) <= 8
    assert len(compacted[-1].data["summaries"]) <= 8
    assert sum(one.kind == "summary" for one in context.trace) <= 8
