"""One attempt of a step: its output, progress, transaction and timeout."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...errors import InvalidInput, StepTimeout, StoreError, shown
from ...ports import Transaction
from .definitions import Kind

if TYPE_CHECKING:
    from ..engine.run_context import RunContext


class Attached(NamedTuple):
    """An event that is stored in the same append as `step.done`. It is dropped if the step fails."""

    type: str
    data: dict[str, Any]
    cause: int | None = None


class StepScope(msgspec.Struct, eq=False):
    """One attempt of a step. Used by the functions that can be called inside a step."""

    run: RunContext
    step: Any
    """A `Step`. Not declared as such: `Step` is a descriptor, and type checkers would use the type of its `__get__`."""
    identity: str
    attached: tuple[Attached, ...] = ()
    emitted: int = 0
    """Number of chunks that this attempt has streamed."""
    outputs: int = 0
    """Number of chunks in the journal. They are not streamed again."""
    progress: Any = None
    transaction: Transaction | None = None
    over: bool = False
    lost: bool = False
    """The attempt failed because of the store, and not because of the step's own code."""

    def next_attempt(self) -> StepScope:
        """The scope of the next attempt. It skips the chunks that are already in the journal."""
        return StepScope(self.run, self.step, self.identity, outputs=self.outputs, progress=self.progress)

    def expect_open(self) -> None:
        """Raise `StepTimeout` if the attempt is over: after a timeout its thread may still run."""
        if self.over:
            raise StepTimeout(self.step.name, self.step.timeout or 0)

    def emit(self, value: Any) -> None:
        """Stream a chunk of output, unless an earlier attempt did. Inside a transaction it is stored with the
        outcome."""
        index, self.emitted = self.emitted, self.emitted + 1
        if index < self.outputs:
            return
        data = {"step": self.identity, "index": index, "value": value}
        if self.transaction is not None:
            self.attached += (Attached("step.output", data),)
            return
        self.outputs = index + 1
        self.run.journal.write_soon(self.run.journal.encode("step.output", data))

    def begin(self) -> Any:
        """Begin a transaction that ends with the step, or use the one that was begun. Returns the store's connection.
        Raises `InvalidInput` in an async step and in a step with a timeout."""
        if self.step.kind is Kind.ASYNC or self.step.timeout is not None:
            raise InvalidInput(
                f"step {shown(self.step.name)} cannot use a transaction because it is async or has a timeout",
                hint="use a plain step without timeout",
            )
        if self.transaction is None:
            try:
                self.transaction = self.run.engine.journal.store.begin()
            except StoreError:
                self.lost = True
                raise
        return self.transaction.connection

    def end(self) -> None:
        """End the attempt. Roll back its transaction if it was not committed."""
        if self.transaction is not None:
            self.lost = self.lost or self.transaction.lost
            self.transaction.roll_back()
        self.over = True


def run_within(seconds: float, name: str, work: Callable[[], Any]) -> Any:
    """Run a function on a new thread. Raises `StepTimeout` after `seconds`; the thread continues, and its result is
    ignored."""
    outcome: list[tuple[bool, Any]] = []
    context = copy_context()

    def body() -> None:
        try:
            outcome.append((True, context.run(work)))
        except BaseException as error:  # noqa: BLE001 - raised in the calling thread
            outcome.append((False, error))

    thread = threading.Thread(target=body, name=f"duramen-step-{name}", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise StepTimeout(name, seconds)
    worked, value = outcome[0]
    if worked:
        return value
    raise value
