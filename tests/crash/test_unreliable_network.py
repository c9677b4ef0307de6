"""Runs on a PostgreSQL behind a network that delays, drops and half-closes connections."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from programs.seeds import seeded
from programs.unreliable_proxy import UnreliableProxy

import duramen
from duramen.errors import RunActive, StoreError

RUNS = {True: 4, False: 2}
effects: Counter[str] = Counter()


@duramen.step
def create() -> None:
    duramen.transaction().execute("CREATE TABLE IF NOT EXISTS paid (run text, number integer)")


@duramen.task
def set_up() -> None:
    create()


@duramen.step
def act(number: int, *, key: str) -> int:
    effects[key] += 1
    return number


@duramen.step
def pay(run: str, number: int) -> int:
    duramen.transaction().execute("INSERT INTO paid VALUES (%s, %s)", (run, number))
    duramen.remember(f"{run} paid {number}")
    return number


@duramen.task
def job(run: str) -> list[Any]:
    values: list[Any] = []
    for number in range(6):
        values += [act(number), pay(run, number)]
        values.append(duramen.receive("news"))
    return values


def retry(work: Any) -> Any:
    """Call `work` until it succeeds, like a user whose database is unreachable at times."""
    for _ in range(200):
        try:
            return work()
        except (StoreError, RunActive):
            continue
    raise AssertionError("the call never succeeded")


@pytest.mark.promise("B8", "X3", "X10", "X11", "X15")
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_duplicated_or_lost_on_an_unreliable_network(postgres_url: str, seed: int, everything: bool) -> None:
    runs = RUNS[everything]
    with UnreliableProxy(postgres_url, seeded("network", seed)) as proxy, duramen.open(proxy.url, timeout=20) as dm:
        dm.run(set_up, id="set-up")
        proxy.set_unreliable(True)
        for number in range(runs):
            run = f"{seed}-{number}"
            retry(lambda run=run: dm.start(job, run, id=run))
            for news in range(6):
                retry(lambda run=run, news=news: dm.signal(run, "news", news, key=f"news-{news}"))
            values = retry(lambda run=run: dm.run(job, run, id=run))
            assert values == [value for number in range(6) for value in (number, number, number)]
        proxy.set_unreliable(False)
        assert sum(proxy.faults.values()) > 20, proxy.faults
        assert proxy.faults["dropped"] + proxy.faults["half-closed"] > 0, proxy.faults
        for number in range(runs):
            run = f"{seed}-{number}"
            events = list(dm.session(run).events())
            steps = Counter(event.data["step"] for event in events if event.type == "step.done")
            assert set(steps.values()) == {1}, "each step has one outcome"
            memories = [event.data["content"] for event in events if event.type == "memory.added"]
            assert memories == [f"{run} paid {paid}" for paid in range(6)]
            assert [event.data["payload"] for event in events if event.type == "signal.sent"] == list(range(6))
        assert dm.verify().ok
    import psycopg

    with psycopg.connect(postgres_url) as connection:
        rows = connection.execute("SELECT run, number, count(*) FROM paid GROUP BY 1, 2").fetchall()
    assert len(rows) == runs * 6
    assert {count for _, _, count in rows} == {1}
