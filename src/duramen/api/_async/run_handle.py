"""A handle on one run."""

from __future__ import annotations

from typing import Any

from ...execution.engine.engine import Engine
from ...execution.engine.run_control import RunControl
from ...execution.engine.run_info import RunInfo


class AsyncRunHandle:
    """A handle on one run. `start`, `handle` and `fork_run` return it."""

    def __init__(self, engine: Engine, control: RunControl, id: str) -> None:
        self._engine = engine
        self._control = control
        self.id = id

    async def result(self, timeout: float | None = None) -> Any:
        """Wait until a worker has executed the run, and return its result. Raises the errors of `run`.

        Raises TimeoutError if the run has not ended after `timeout` seconds. Default: no timeout.
        """
        return await self._engine.waited(self.id, timeout)

    async def info(self) -> RunInfo:
        """Return the status of the run, its steps and the steps in doubt."""
        return await self._control.info(self.id)

    async def signal(self, name: str, payload: Any = None, *, key: str | None = None) -> None:
        """Send a signal to the run. See `dm.signal`."""
        await self._control.signal(self.id, name, payload, None, key)

    async def answer(self, value: Any) -> None:
        """Answer the first open question of the run. See `dm.answer`."""
        await self._control.answer(self.id, value, None, None)

    async def cancel(self, reason: str | None = None) -> None:
        """Cancel the run. See `dm.cancel`."""
        await self._control.cancel(self.id, reason, None)
