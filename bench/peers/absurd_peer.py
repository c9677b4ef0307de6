"""Absurd on PostgreSQL with its defaults. One process spawns the task and executes it."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

from .protocol import System, run_peer


class AbsurdSystem(System):
    """A task that calls one step repeatedly."""

    def open(self, address: str, inside: Callable[[int], None]) -> str:
        from absurd_sdk import Absurd  # type: ignore[import-not-found]

        install_schema(address)
        self._app = Absurd(address)
        self._app.create_queue("default")

        @self._app.register_task(name="loop")  # type: ignore[untyped-decorator]
        def loop(params: Any, context: Any) -> int:
            total = 0
            for _ in range(params["steps"]):
                total = context.step("add", lambda number=total: number + 1)
                inside(total)
            return total

        return version("absurd-sdk")

    def run(self, steps: int) -> None:
        task = self._app.spawn("loop", {"steps": steps})["task_id"]
        self._app.work_batch()
        assert self._app.fetch_task_result(task).result == steps


def install_schema(address: str) -> None:
    """Install the schema as `absurdctl init` does, but without psql."""
    import psycopg
    from absurdctl import BUNDLED_SCHEMA_SQL  # type: ignore[import-not-found]

    with psycopg.connect(address, autocommit=True) as connection:
        found = connection.execute("SELECT to_regnamespace('absurd')").fetchone()
        if found == (None,):
            connection.execute(BUNDLED_SCHEMA_SQL)


if __name__ == "__main__":
    run_peer(AbsurdSystem())
