"""A program that forks with an open handle: python -m programs.fork_with_handle ADDRESS

The child tries every operation with the handle of its parent and exits normally. Then the parent continues to use the
handle. Prints one JSON document.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

import duramen


def _uses(store: duramen.Duramen) -> dict[str, Callable[[], Any]]:
    session = store.session("a")
    return {
        "append": lambda: session.append("note", "from the child"),
        "append with a key": lambda: session.append("note", "from the child", key="k"),
        "append to another": lambda: store.session("b").append("note"),
        "read": lambda: list(session.events()),
        "head": session.head,
        "follow": lambda: list(session.follow(timeout=0.1)),
        "fork": lambda: session.fork("c"),
        "lease": lambda: session.lease("child"),
        "status": session.status,
        "sessions": lambda: list(store.sessions()),
        "erase": lambda: store.erase("alice"),
        "verify": store.verify,
    }


def _try_everything(store: duramen.Duramen) -> dict[str, str]:
    outcomes = {}
    for name, use in _uses(store).items():
        try:
            use()
            outcomes[name] = "worked"
        except Exception as error:  # noqa: BLE001 - the test reads the name of the error
            outcomes[name] = type(error).__name__
    return outcomes


def main(address: str) -> None:
    store = duramen.open(address)
    store.session("a").append("note", "before", subject="alice")
    list(store.session("a").follow(timeout=0.05))  # opens all connections of the handle
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, json.dumps(_try_everything(store)).encode())
        store.close()
        sys.exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        outcomes = json.loads(pipe.read())
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    for number in range(20):
        store.session("a").append("note", f"after {number}")
    events = [event.data for event in store.session("a").events()]
    sound = store.verify().ok
    store.close()
    sys.stdout.write(json.dumps({"child": outcomes, "status": status, "events": events, "sound": sound}))


if __name__ == "__main__":
    main(sys.argv[1])
