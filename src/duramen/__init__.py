"""Durable memory and durable execution for AI agents.

    dm = duramen.open("agent.db")                  # or postgresql://…; `aopen` for an event loop
    session = dm.session("trip-456")
    session.append("note", {"text": "aisle seat"}) # durable when it returns
    for event in session.events(): ...             # checked against the hash chain

    @duramen.step                                  # journals the intent before, the outcome after
    def book(flight, *, key): ...
    @duramen.task
    def trip(request): return book(request)
    dm.run(trip, "NYC tomorrow", id="trip-456")    # starts the run, resumes it, or returns its result

    session.say("user", "An aisle seat, please")   # a conversation with tool calls, decisions and errors
    session.context(budget=8_000).anthropic()      # the next prompt, the same bytes after a crash
    session.checkpoint({"messages": messages})     # writes only what changed

A name is imported on its first use, so `import duramen` is fast. `__init__.pyi` lists all names.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any


def _public_names() -> dict[str, str]:
    """The module of each public name, from lines such as `from .api.open import aopen as aopen`."""
    # The loader also reads from a zip file.
    stub = __spec__.loader.get_data(os.path.join(os.path.dirname(__file__), "__init__.pyi"))
    lines = [line.split() for line in stub.decode().splitlines() if line.startswith("from ")]
    return {name: module for _, module, _, name, *_ in lines}


_MODULES = _public_names()
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _installed_version()
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES[name]
    value = import_module(f".{name}", __name__) if module == "." else getattr(import_module(module, __name__), name)
    globals()[name] = value
    return value


def _installed_version() -> str:
    from importlib import metadata  # takes longer to import than duramen

    try:
        return metadata.version("duramen")
    except metadata.PackageNotFoundError:
        return "0+unknown"  # used from a source tree that is not installed


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
