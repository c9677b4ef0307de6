"""A small process that forks children on request. See `children` for the side that asks.

It never opens a store and has one thread, so a fork of it is cheap and clean; each child opens its own handle.
Children do not outlive it: when its standard input ends, however that came about, it kills them.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import traceback
from importlib import import_module
from typing import Any

from duramen.stores import postgres, sqlite  # noqa: F401 - loaded once here, so that no child has to
from duramen.testing.crash import die_at

from . import interrupts, matrix, memory_handles, outlets, roles, writer  # noqa: F401 - likewise
from .writer import say_aloud


def _be(order: dict[str, Any]) -> None:
    """Be the child: play the role, then leave without the clean-up that belongs to the parent."""
    status = 1
    try:
        os.dup2(os.open(order["said"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 1)
        os.dup2(os.open(order["said"] + ".stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
        if order["crash"]:
            die_at(*order["crash"])
        module, function = order["role"].split(":")
        getattr(import_module(f"{__package__}.{module}"), function)(say_aloud, **order["given"])
        status = 0
    except BaseException:  # noqa: BLE001 - the test reads it
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _serve() -> None:
    living: set[int] = set()
    try:
        for line in sys.stdin:
            order = json.loads(line)
            if "poll" in order:
                pid, status = os.waitpid(order["poll"], os.WNOHANG)
                living.discard(pid)
                answer = os.waitstatus_to_exitcode(status) if pid else None
            else:
                answer = os.fork()
                if answer == 0:
                    _be(order)
                living.add(answer)
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    finally:
        for pid in living:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in living:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


if __name__ == "__main__":
    _serve()
