"""duramen in a separate process that can be killed or traced.

    python -m peers.duramen_peer steps PATH COUNT

executes one run of COUNT steps and exits. `protocol` describes the other modes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import duramen

from .protocol import System, run_peer


class DuramenSystem(System):
    """A task that calls one step repeatedly."""

    def open(self, address: str, inside: Callable[[int], None]) -> str:
        self.use(duramen.open(address), inside)
        return duramen.__version__

    def use(self, handle: duramen.Duramen, inside: Callable[[int], None]) -> None:
        """Declare the task and use this handle for its runs."""

        @duramen.step
        def add(number: int) -> int:
            inside(number + 1)
            return number + 1

        @duramen.task
        def loop(steps: int) -> int:
            total = 0
            for _ in range(steps):
                total = add(total)
            return total

        self._loop = loop
        self.handle = handle

    def run(self, steps: int) -> None:
        assert self.handle.run(self._loop, steps) == steps

    def begin(self, steps: int) -> None:
        self.handle.run(self._loop, steps, id="trip")

    resume = begin


if __name__ == "__main__":
    if sys.argv[1] == "steps":
        system = DuramenSystem()
        system.open(sys.argv[2], lambda number: None)
        system.run(int(sys.argv[3]))
        system.handle.close()
    else:
        run_peer(DuramenSystem())
