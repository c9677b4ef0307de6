"""A handle on one run."""

from __future__ import annotations

from typing import Any

from ...execution.engine.engine import Engine
from ...execution.engine.run_control import RunControl
from ...execution.engine.run_info import RunInfo


class AsyncRunHandle:
    """A run that was started."""

    def __init__(self, engine: Engine, control: RunControl, id: str) -> None:
        self._engine = engine
        self._control = control
        self.id = id

    async def result(self, timeout: float | None = None) -> Any:
        """Wait until a worker has ended it. TimeoutError after so many seconds."""
        return await self._engine.waited(self.id, timeout)

    async def info(self) -> RunInfo:
        """Its status, with its steps and what is in doubt."""
        return await self._control.info(self.id)

    async def signal(self, name: str, payload: Any = None, *, key: str | None = None) -> None:
        """Send it a signal."""
        await self._control.signal(self.id, name, payload, None, key)

    async def answer(self, value: Any) -> None:
        """Answer its question."""
        await self._control.answer(self.id, value, None, None)

    async def cancel(self, reason: str | None = None) -> None:
        """Stop it."""
        await self._control.cancel(self.id, reason, None)
