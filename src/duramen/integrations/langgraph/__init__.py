"""LangGraph on duramen: checkpoints that grow with what is new, and a long-term store, both in the journal.

    dm = duramen.open("agent.db")
    graph = builder.compile(checkpointer=DuramenSaver(dm), store=DuramenStore(dm))

A thread is a session. Needs `pip install 'duramen[langgraph]'`.
"""

from __future__ import annotations

try:
    import langgraph.checkpoint.base  # noqa: F401
except ImportError as missing:
    raise ImportError("langgraph is not installed: pip install 'duramen[langgraph]'") from missing

from .saver import DuramenSaver
from .store import DuramenStore

__all__ = ["DuramenSaver", "DuramenStore"]
