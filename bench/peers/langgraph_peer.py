"""LangGraph on SQLite: a graph with one node in a loop, checkpointed after every step.

`durability="sync"` gives the same guarantee as the other systems: a step is on disk before the next one begins. With
the default ("async"), the next step may begin earlier.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, TypedDict

from .protocol import System, run_peer


class Total(TypedDict):
    """The state of the graph."""

    total: int
    steps: int


class LangGraphSystem(System):
    """A graph that executes one node repeatedly."""

    def open(self, address: str, inside: Callable[[int], None]) -> str:
        from langgraph.checkpoint.sqlite import SqliteSaver
        from langgraph.graph import END, START, StateGraph

        def add(state: Total) -> dict[str, Any]:
            inside(state["total"] + 1)
            return {"total": state["total"] + 1}

        def onward(state: Total) -> str:
            return "add" if state["total"] < state["steps"] else str(END)

        graph = StateGraph(Total)
        graph.add_node("add", add)
        graph.add_edge(START, "add")
        graph.add_conditional_edges("add", onward, ["add", END])
        saver = SqliteSaver(sqlite3.connect(address, check_same_thread=False))
        self._graph: Any = graph.compile(checkpointer=saver)
        return version("langgraph")

    def run(self, steps: int) -> None:
        config = {"configurable": {"thread_id": uuid.uuid4().hex}, "recursion_limit": steps + 5}
        end = self._graph.invoke({"total": 0, "steps": steps}, config, durability="sync")
        assert end["total"] == steps


if __name__ == "__main__":
    run_peer(LangGraphSystem())
