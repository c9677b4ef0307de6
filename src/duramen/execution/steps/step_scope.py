"""A step while it acts: what it may say, what it may write, how long it may take."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import msgspec

from ...errors import InvalidInput, StepTimeout, StoreError
from ...journal.events import Draft
from ...ports import Transaction
from .definitions import Kind

if TYPE_CHECKING:
    from ..engine.run_context import RunContext


class StepScope(msgspec.Struct, eq=False):
    """A step while it acts: what the functions that can be called inside it need."""

    run: RunContext
    step: Any
    """A `Step`, which is a descriptor: as a field's type it would be taken for what it gives."""
    identity: str
    attached: tuple[Draft, ...] = ()
    """Events that are stored with the outcome."""
    emitted: int = 0
    outputs: int = 0
    progress: Any = None
    transaction: Transaction | None = None
    over: bool = False
    lost: bool = False
    """The store failed the step, not the step itself."""

    def again(self) -> StepScope:
        """The scope of a new attempt: it streams from the beginning, and what was streamed before is not repeated."""
        following = StepScope(self.run, self.step, self.identity)
        following.outputs, following.progress = max(self.outputs, self.emitted), self.progress
        return following

    def expect_open(self) -> None:
        """An attempt that ran out of time may still act; what it says no longer counts."""
        if self.over:
            raise StepTimeout(self.step.name, self.step.timeout or 0)

    def begin(self) -> Any:
        """The store's connection, in a transaction that ends with the step."""
        if self.step.kind is Kind.ASYNC or self.step.timeout is not None:
            raise InvalidInput(
                f"the step {self.step.name!r} cannot have a transaction",
                hint="only a plain step without timeout can: the store waits for it",
            )
        if self.transaction is None:
            self.run.keep_quiet(True)
            try:
                self.transaction = self.run.journal.store.begin()
            except StoreError:
                self.lost = True
                raise
        return self.transaction.connection

    def end(self) -> None:
        """The end of the transaction, if there is one still: nothing of it happened."""
        if self.transaction is not None:
            self.lost = self.lost or self.transaction.lost
            self.transaction.roll_back()
        self.over = True
        self.run.keep_quiet(False)


def within(seconds: float, name: str, work: Callable[[], Any]) -> Any:
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
