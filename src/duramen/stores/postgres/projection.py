"""Projections, as in `common.projection`, but in two round trips to the server."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from ...ports import Record, Touched
from .connection import Connection


class Target(NamedTuple):
    """The session of a batch, and the records to store. `records` is empty while projections `ask`."""

    connection: Connection
    workspace: str
    session: str
    records: list[Record]


class Projection(Protocol):
    """Writes one type of `BatchChange` in the transaction of the batch, inside a pipeline.

    The store calls `ask` for every change of a batch, then `read`, then sends the events, then calls `write`. Only
    `read` may refuse a batch. `write` must not raise on its own account. A statement whose result is not fetched costs
    no round trip.
    """

    def ask(self, target: Target, change: Any) -> Any:
        """Send the statements that lock rows and read what `read` needs, without waiting for their results."""
        ...

    def read(self, target: Target, change: Any, asked: Any) -> Any:
        """Fetch what `write` needs, and return it. Raises a `DuramenError` to refuse the batch. Writes nothing."""
        ...

    def write(self, target: Target, change: Any, answer: Any) -> Touched | None:
        """Write the change. A change of memories returns what it did to them."""
        ...
