"""How a store writes the changes of a batch: one projection for each type of change."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from ...ports import Touched

Target_contra = TypeVar("Target_contra", contravariant=True)


class Projection(Protocol[Target_contra]):
    """Writes one type of `BatchChange` in the transaction of the batch. The target says where the batch goes.

    The store calls `read` for every change of a batch, then inserts the events, then calls `write` for every change with
    what `read` returned. A batch is refused only by `read`: `write` must not raise for a reason of its own, because
    other batches may share the transaction.
    """

    def read(self, target: Target_contra, change: Any) -> Any:
        """What `write` needs to know. Raises a `DuramenError` if the batch must be refused. Writes nothing."""
        ...

    def write(self, target: Target_contra, change: Any, answer: Any) -> Touched | None:
        """Write the change. Says what it did to memories, if that is what it changes."""
        ...

    def forget(self) -> None:
        """Drop what is remembered between transactions: another process may have written, or a transaction failed."""
        ...
