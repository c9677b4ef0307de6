"""Where a configuration of LangGraph's leads: to which thread, namespace and checkpoint; and what may follow it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig

from ...checkpoints.checkpoints import ANYTHING
from ...errors import InvalidInput
from ...journal.events import check_name

GRAPH = "graph:"
"""What the names of a graph's checkpoints in a session begin with; the namespace follows."""
_ASKED = "__duramen_asked"
"""In the configuration of a loaded checkpoint, which a graph hands on to each `put` of the run: the id that was asked
for, or nothing if the newest was. LangGraph keeps what begins with two underscores out of metadata."""
_REPLAYING = "__pregel_replay_state"


class ConfigPosition(NamedTuple):
    """A checkpoint's place; `id` is None where none is named."""

    thread: str
    namespace: str
    id: str | None

    @property
    def name(self) -> str:
        """The name of the namespace's checkpoints in the session."""
        return GRAPH + self.namespace

    def config(self, asked: str | None = None) -> RunnableConfig:
        """The configuration that leads here."""
        place = {"thread_id": self.thread, "checkpoint_ns": self.namespace, "checkpoint_id": self.id}
        return {"configurable": place if asked is None else {**place, _ASKED: asked}}


def parse_config(config: RunnableConfig) -> ConfigPosition:
    """Where a configuration leads. Raises `InvalidInput` if it names no thread."""
    configurable = config.get("configurable") or {}
    thread = configurable.get("thread_id")
    if thread is None or thread == "":
        raise InvalidInput(
            "the configuration names no thread",
            hint='invoke the graph with config={"configurable": {"thread_id": "…"}}',
        )
    id = configurable.get("checkpoint_id")
    return ConfigPosition(thread_id(thread), str(configurable.get("checkpoint_ns") or ""), None if not id else str(id))


def thread_id(thread: object) -> str:
    """A thread's id as the id of a session."""
    return check_name("thread_id", str(thread))


def expected_newest(config: RunnableConfig, metadata: Mapping[str, Any]) -> Any:
    """What must be the newest checkpoint for a new one to follow it; `ANYTHING` where LangGraph means to branch off.

    A run goes on from what it loaded. It loaded the newest unless it asked for another by its id, which is how a
    graph travels in time: then its first checkpoint begins a branch.
    """
    configurable = config.get("configurable") or {}
    parent, asked = configurable.get("checkpoint_id") or None, configurable.get(_ASKED)
    if asked is not None:
        return ANYTHING if parent is None or parent == asked else parent
    return parent if _began_empty(configurable, metadata) else ANYTHING


def _began_empty(configurable: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    """Whether this is a graph's run on a thread that it found empty, not a program that uses the saver by itself."""
    if configurable.get(_REPLAYING):
        return False  # a subgraph, gone back to an earlier checkpoint or to before its first
    return metadata.get("source") == "update" or any(key.startswith("__pregel_") for key in configurable)
