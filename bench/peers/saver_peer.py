"""Runs conversations with one LangGraph saver, each in its own file.

    python -m peers.saver_peer duramen|sqlite|delta FOLDER

It writes its version, then reads requests: {"chat": turns} for one message of 500 bytes per turn, and {"fixed": turns}
for a state of 2 KB with a counter. It answers with the seconds of each `put` and each `put_writes`, and the bytes of
all files at the end.
"""

from __future__ import annotations

import glob
import itertools
import json
import os
import random
import sqlite3
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Annotated, Any, TypedDict

from .protocol import answer_writer

_SAMPLE = """
the of and to in is you that it he was for on are as with his they at be this have from or one had by word but not what
all were we when your can said there use an each which she do how their if will up other about out many then them these
so some her would make like him into time has look two more write go see number no way could people my than first water
been call who oil its now find long down day did get come made may part flight hotel booking agent memory result search
ticket lisbon train weather tomorrow question answer because please thanks detail window seat
"""
_WORDS = _SAMPLE.split()
_files = itertools.count()


def prose(chance: random.Random, size: int) -> str:
    """Random words, `size` bytes in total."""
    return " ".join(chance.choices(_WORDS, k=size // 3))[:size]


class TimedMethod:
    """A method that records the seconds of each call."""

    def __init__(self, method: Callable[..., Any]) -> None:
        self._method = method
        self.seconds: list[float] = []

    def __call__(self, *given: Any, task_path: str = "", **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return self._method(*given, **named)
        finally:
            self.seconds.append(time.perf_counter() - began)


@contextmanager
def open_saver(kind: str, path: str) -> Iterator[Any]:
    """A saver on a new file. At the end, the file is closed and its WAL is merged into it."""
    if kind == "duramen":
        import duramen
        from duramen.integrations.langgraph import DuramenSaver

        with duramen.open(path) as handle:
            yield DuramenSaver(handle)
    else:
        from langgraph.checkpoint.sqlite import SqliteSaver

        connection = sqlite3.connect(path, check_same_thread=False)
        yield SqliteSaver(connection)
        connection.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.close()


def chat(kind: str, turns: int) -> tuple[Any, dict[str, Any]]:
    """A graph that adds one message per turn, and its input."""
    from langchain_core.messages import AIMessage, HumanMessage
    from langgraph.graph.message import add_messages

    chance = random.Random(7)
    reducer: Any = add_messages
    if kind == "delta":
        from langgraph.channels.delta import DeltaChannel

        def add_all(messages: Any, writes: Any) -> Any:
            for write in writes:
                messages = add_messages(messages, write)
            return messages

        reducer = DeltaChannel(add_all)
    state: Any = TypedDict("state", {"messages": Annotated[list, reducer]})  # type: ignore[type-arg]
    left = itertools.count(turns - 1, -1)
    speak = _loop_graph(
        state,
        lambda _: {"messages": [AIMessage(prose(chance, 500), id=f"run-{uuid.uuid4()}")]},
        lambda _: next(left) > 0,
    )
    return speak, {"messages": [HumanMessage(prose(chance, 500))]}


def fixed(kind: str, turns: int) -> tuple[Any, dict[str, Any]]:
    """A graph that increments a counter in a state of 2 KB, and its input."""
    state: Any = TypedDict("state", {"text": str, "count": int})
    count = _loop_graph(state, lambda now: {"count": now["count"] + 1}, lambda now: now["count"] < turns)
    return count, {"text": prose(random.Random(8), 2000), "count": 0}


def _loop_graph(state: Any, node: Callable[[Any], Any], continues: Callable[[Any], bool]) -> Any:
    from langgraph.graph import END, START, StateGraph

    graph: Any = StateGraph(state)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_conditional_edges("node", lambda now: "node" if continues(now) else END, ["node", END])
    return graph


def run(kind: str, folder: str, what: str, turns: int) -> dict[str, Any]:
    """Run one conversation of `turns` turns. Returns the times and the size."""
    path = os.path.join(folder, f"{kind}-{next(_files)}.db")
    graph, given = (chat if what == "chat" else fixed)(kind, turns)
    with open_saver(kind, path) as saver:
        puts, writes = TimedMethod(saver.put), TimedMethod(saver.put_writes)
        saver.put, saver.put_writes = puts, writes
        config = {"configurable": {"thread_id": "chat"}, "recursion_limit": turns + 5}
        graph.compile(checkpointer=saver).invoke(given, config, durability="sync")
    size = sum(map(os.path.getsize, glob.glob(f"{path}*")))
    for file in glob.glob(f"{path}*"):
        os.remove(file)
    return {"puts": puts.seconds, "writes": writes.seconds, "bytes": size}


if __name__ == "__main__":
    answer = answer_writer()
    answer(version=version("langgraph"))
    for line in sys.stdin:
        for what, turns in json.loads(line).items():
            answer(done=run(sys.argv[1], sys.argv[2], what, turns))
