"""A step while it acts: what it may say, what it may write, how long it may take."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from ...errors import InvalidInput, StepTimeout, StoreError
from ...ports import Transaction
from .definitions import Kind

if TYPE_CHECKING:
    from ..engine.run_context import RunContext


class Attached(NamedTuple):
    """An event that is stored with the outcome of a step, if and only if the step is done."""

    type: str
    data: dict[str, Any]
    cause: int | None = None


class StepScope(msgspec.Struct, eq=False):
    """One attempt of a step: what the functions that can be called inside it need."""

    run: RunContext
    step: Any
    """A `Step`, which is a descriptor: as a field's type it would be taken for what it gives."""
    identity: str
    attached: tuple[Attached, ...] = ()
    emitted: int = 0
    """Pieces of output that this attempt streamed."""
    outputs: int = 0
    """Pieces of output that are in the journal: they are not streamed again."""
    progress: Any = None
    transaction: Transaction | None = None
    over: bool = False
    lost: bool = False
    """The store failed the step, not the step itself."""

    def next_attempt(self) -> StepScope:
        """The scope of a new attempt: it streams from the beginning, and what was streamed before is not repeated."""
        return StepScope(self.run, self.step, self.identity, outputs=self.outputs, progress=self.progress)

    def expect_open(self) -> None:
        """An attempt that ran out of time may still act; what it says no longer counts."""
        if self.over:
            raise StepTimeout(self.step.name, self.step.timeout or 0)

    def emit(self, value: Any) -> None:
        """Stream a piece of output, unless an earlier attempt did. Inside a transaction it is stored with the
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
        """The store's connection, in a transaction that ends with the step."""
        if self.step.kind is Kind.ASYNC or self.step.timeout is not None:
            raise InvalidInput(
                f"the step {self.step.name!r} cannot have a transaction",
                hint="only a plain step without timeout can: the store waits for it",
            )
        if self.transaction is None:
            try:
                self.transaction = self.run.engine.journal.store.begin()
            except StoreError:
                self.lost = True
                raise
        return self.transaction.connection

    def end(self) -> None:
        """The end of the attempt. A transaction that was not committed is rolled back."""
        if self.transaction is not None:
            self.lost = self.lost or self.transaction.lost
            self.transaction.roll_back()
        self.over = True


def run_within(seconds: float, name: str, work: Callable[[], Any]) -> Any:
    """Run plain work on a thread of its own for so long. It cannot be stopped: what it does later is lost."""
    outcome: list[tuple[bool, Any]] = []
    context = copy_context()

    def body() -> None:
        try:
            outcome.append((True, context.run(work)))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
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
