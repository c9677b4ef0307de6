"""The thread, namespace and checkpoint of a LangGraph configuration, and the checkpoint that must be the newest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from langchain_core.runnables import RunnableConfig

from ...checkpoints.checkpoints import ANYTHING
from ...errors import InvalidInput
from ...journal.events import check_name

GRAPH = "graph:"
"""The prefix of the names of a graph's checkpoints in a session. The namespace follows."""
_ASKED = "__duramen_asked"
"""The key in the configuration of a loaded checkpoint for the id that was requested; "" if the newest was. A graph
passes the configuration to each `put` of the run. LangGraph does not copy keys with two underscores into metadata."""
_REPLAYING = "__pregel_replay_state"


class ConfigPosition(NamedTuple):
    """The position of a checkpoint. `id` is None if the configuration has none."""

    thread: str
    namespace: str
    id: str | None

    @property
    def name(self) -> str:
        """The name of the namespace's checkpoints in the session."""
        return GRAPH + self.namespace

    def config(self, asked: str | None = None) -> RunnableConfig:
        """The configuration of this position."""
        place = {"thread_id": self.thread, "checkpoint_ns": self.namespace, "checkpoint_id": self.id}
        return {"configurable": place if asked is None else {**place, _ASKED: asked}}


def parse_config(config: RunnableConfig) -> ConfigPosition:
    """The position of a configuration. Raises `InvalidInput` if it has no thread_id."""
    configurable = config.get("configurable") or {}
    thread = configurable.get("thread_id")
    if thread is None or thread == "":
        raise InvalidInput(
            "the configuration has no thread_id",
            hint='invoke the graph with config={"configurable": {"thread_id": "…"}}',
        )
    id = configurable.get("checkpoint_id")
    return ConfigPosition(thread_id(thread), str(configurable.get("checkpoint_ns") or ""), None if not id else str(id))


def thread_id(thread: object) -> str:
    """The session id of a thread. Raises `InvalidInput` if it cannot be one."""
    return check_name("thread_id", str(thread))


def expected_newest(config: RunnableConfig, metadata: Mapping[str, Any]) -> Any:
    """The id of the checkpoint that must be the newest for this save; `ANYTHING` if LangGraph starts a branch.

    A run continues from the checkpoint that it loaded. That is the newest one, unless the run requested another by its
    id (time travel). In that case its first checkpoint starts a branch.
    """
    configurable = config.get("configurable") or {}
    parent, asked = configurable.get("checkpoint_id") or None, configurable.get(_ASKED)
    if asked is not None:
        return ANYTHING if parent is None or parent == asked else parent
    return parent if _began_empty(configurable, metadata) else ANYTHING


def _began_empty(configurable: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    """Whether a graph runs on a thread that was empty. False for a program that calls the saver directly."""
    if configurable.get(_REPLAYING):
        return False  # a subgraph that went back to an earlier checkpoint, or to before its first
    return metadata.get("source") == "update" or any(key.startswith("__pregel_") for key in configurable)
