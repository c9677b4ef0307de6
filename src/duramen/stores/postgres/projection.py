"""How changes of a batch are written here: as in `common.projection`, in two round trips."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ...ports import Record, Touched
from .connection import Connection


class Target(NamedTuple):
    """Where a batch goes. There are no records yet while projections `ask`."""

    connection: Connection
    workspace: str
    session: str
    records: list[Record]


class Projection(Protocol):
    """Writes one type of `BatchChange` in the transaction of the batch, inside a pipeline.

    The store calls `ask` for every change of a batch, then `read`, then sends the events, then calls `write`. A batch is
    refused only by `read`; `write` must not raise for a reason of its own. What is sent without fetching costs no
    round trip.
    """

    def ask(self, target: Target, change: Any) -> Any:
        """Lock what the change touches and send what `read` wants to know, without waiting for answers."""
        ...

    def read(self, target: Target, change: Any, asked: Any) -> Any:
        """What `write` needs to know. Raises a `DuramenError` if the batch must be refused."""
        ...

    def write(self, target: Target, change: Any, answer: Any) -> Touched | None:
        """Write the change. Says what it did to memories, if that is what it changes."""
        ...
