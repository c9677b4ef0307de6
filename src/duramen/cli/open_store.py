"""Opens the store that `--store` and `--workspace` name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..api._sync.duramen import Duramen
from ..api._sync.session import Session
from ..api.open import open as open_store
from ..api.settings import Settings
from ..errors import StoreReadOnly, UnknownSession


@contextmanager
def open_readonly(store: str, workspace: str) -> Iterator[Duramen]:
    """Open the workspace without the right to write. Values of unregistered classes are shown by their fields."""
    with open_store(store, workspace=workspace, readonly=True, keep_unknown=True) as dm:
        yield dm


@contextmanager
def open_writable(
    store: str, workspace: str, *, keep_unknown: bool = True, embedder: str | None = None
) -> Iterator[Duramen]:
    """Open the workspace with the right to write. It opens the store readonly first, so that no store is created."""
    with suppress(StoreReadOnly), open_readonly(store, workspace):  # raised for an old schema, which is migrated below
        pass
    settings = Settings(workspace=workspace, keep_unknown=keep_unknown)
    if embedder is not None:
        settings["embedder"] = embedder
    with open_store(store, **settings) as dm:
        yield dm


def existing_session(dm: Duramen, session: str) -> Session:
    """The session. Raises `UnknownSession` if there is none."""
    found = dm.session(session)
    if found.head().position == 0 and not session_listed(dm, session):
        raise UnknownSession(session)
    return found


def session_listed(dm: Duramen, session: str) -> bool:
    """Whether the catalog lists the session. A fork at position 0 has no events."""
    return any(row.session == session for row in dm.sessions())
