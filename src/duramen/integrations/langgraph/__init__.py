"""LangGraph on duramen: checkpoints that grow with what is new, and a long-term store, both in the journal.

    dm = duramen.open("agent.db")
    graph = builder.compile(checkpointer=DuramenSaver(dm), store=DuramenStore(dm))

A thread is a session. Needs `pip install 'duramen[langgraph]'`.

    saver.py            DuramenSaver: start here; threads.py does the work, thread_removal.py deletes, prunes and copies
    store.py            DuramenStore, with the filters of search.py
    channels.py         channel values as fields that share what did not change
    snapshot.py         snapshots of messages, to find changes (change_detection.py)
    pending_writes.py   the writes of tasks
    serializer.py       values, ids and bookkeeping as bytes
    config_position.py  what a RunnableConfig refers to
    handle.py           sync and async handles behind sync and async calls
"""

from __future__ import annotations

try:
    import langgraph.checkpoint.base  # noqa: F401
except ImportError as missing:
    raise ImportError("langgraph is not installed: pip install 'duramen[langgraph]'") from missing

from .saver import DuramenSaver
from .store import DuramenStore

__all__ = ["DuramenSaver", "DuramenStore"]
