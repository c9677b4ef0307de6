"""LangGraph on holdfast: checkpoints that grow with what is new, and a long-term store, both in the journal.

    hf = holdfast.open("agent.db")
    graph = builder.compile(checkpointer=HoldfastSaver(hf), store=HoldfastStore(hf))

A thread is a session. Needs `pip install 'holdfast[langgraph]'`.
"""

from __future__ import annotations

try:
    import langgraph.checkpoint.base  # noqa: F401
except ImportError as missing:
    raise ImportError("langgraph is not installed: pip install 'holdfast[langgraph]'") from missing

from .saver import HoldfastSaver
from .store import HoldfastStore

__all__ = ["HoldfastSaver", "HoldfastStore"]
