"""Projections: how a store writes the changes of a batch. There is one projection per type of change."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from ...ports import Touched

Target_contra = TypeVar("Target_contra", contravariant=True)


class Projection(Protocol[Target_contra]):
    """Writes one type of `BatchChange` in the transaction of the batch. The target names the session of the batch.

    The store calls `read` for every change of a batch, then inserts the events, then calls `write` for every change
    with the result of `read`. Only `read` may refuse a batch. `write` must not raise on its own account, because other
    batches may share the transaction.
    """

    def read(self, target: Target_contra, change: Any) -> Any:
        """Read what `write` needs, and return it. Raises a `DuramenError` to refuse the batch. Writes nothing."""
        ...

    def write(self, target: Target_contra, change: Any, answer: Any) -> Touched | None:
        """Write the change. A change of memories returns what it did to them."""
        ...

    def forget(self) -> None:
        """Clear all caches, because another process may have written, or a transaction failed."""
        ...
