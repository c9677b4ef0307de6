"""DBOS on SQLite or PostgreSQL, with its defaults."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from .protocol import System, run_peer


class DbosSystem(System):
    """A workflow that calls one step repeatedly."""

    def open(self, address: str, inside: Callable[[int], None]) -> str:
        from dbos import DBOS, SetWorkflowID  # type: ignore[import-not-found]

        @DBOS.step()  # type: ignore[untyped-decorator]
        def add(number: int) -> int:
            inside(number + 1)
            return number + 1

        @DBOS.workflow()  # type: ignore[untyped-decorator]
        def loop(steps: int) -> int:
            total = 0
            for _ in range(steps):
                total = add(total)
            return total

        self._loop = loop
        self._named: Callable[[str], Any] = SetWorkflowID
        self._retrieve = DBOS.retrieve_workflow
        url = address if "://" in address else f"sqlite:///{address}"
        DBOS(config={"name": "bench", "system_database_url": url})
        DBOS.launch()
        return version("dbos")

    def run(self, steps: int) -> None:
        assert self._loop(steps) == steps

    def begin(self, steps: int) -> None:
        with self._named("trip"):
            self._loop(steps)

    def resume(self, steps: int) -> None:
        """Wait for the run. `launch` has already resumed it."""
        assert self._retrieve("trip").get_result() == steps


if __name__ == "__main__":
    run_peer(DbosSystem())
