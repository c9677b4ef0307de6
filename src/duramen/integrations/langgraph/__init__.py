"""LangGraph on duramen: a checkpointer that stores only what changed, and a long-term store, both in the journal.

    dm = duramen.open("agent.db")
    graph = builder.compile(checkpointer=DuramenSaver(dm), store=DuramenStore(dm))

A thread is a session. Needs `pip install 'duramen[langgraph]'`.

    saver.py             DuramenSaver. Start here.
    threads.py           saves and loads checkpoints for DuramenSaver
    thread_removal.py    deletes, prunes and copies threads
    store.py             DuramenStore
    search.py            filters and ranking for DuramenStore
    channels.py          converts channel values to fields that share unchanged parts
    snapshot.py          snapshots of messages, to find in-place changes
    change_detection.py  a faster check that messages did not change
    pending_writes.py    the writes of tasks
    serializer.py        values, ids and metadata as bytes
    config_position.py   the thread, namespace and checkpoint of a RunnableConfig
    handle.py            sync and async calls on both kinds of handle
"""

from __future__ import annotations

try:
    import langgraph.checkpoint.base  # noqa: F401
except ImportError as missing:
    raise ImportError("langgraph is not installed. Run: pip install 'duramen[langgraph]'") from missing

from .saver import DuramenSaver
from .store import DuramenStore

__all__ = ["DuramenSaver", "DuramenStore"]
