"""From the options of a command to an open store that it cannot change."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from ..api._sync.duramen import Duramen
from ..api._sync.session import Session
from ..api.open import open as open_store
from ..errors import UnknownSession


@contextmanager
def opened(store: str, workspace: str) -> Iterator[Duramen]:
    """The workspace, readonly. Values of the agent's own classes are shown by their fields."""
    with open_store(store, workspace=workspace, readonly=True, keep_unknown=True) as dm:
        yield dm


def existing(dm: Duramen, session: str) -> Session:
    """A session that is there; raises `UnknownSession`."""
    found = dm.session(session)
    if found.head().position == 0 and not listed(dm, session):
        raise UnknownSession(session)
    return found


def listed(dm: Duramen, session: str) -> bool:
    """Whether the catalog knows a session that may have no events: a fork at 0."""
    return any(row.session == session for row in dm.sessions())
