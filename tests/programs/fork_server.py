"""A small process that forks children on request. `child_processes` is the other side.

It never opens a store and has one thread, so a fork is cheap and safe. Each child opens its own handle. When standard
input ends, the server kills its children and exits.
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

from duramen.stores import postgres, sqlite  # noqa: F401 - imported once here, not in each child
from duramen.testing.crash import die_at

from . import crash_task, file_outlet, interrupted_appends, memory_handles, store_clients, writer  # noqa: F401
from .writer import print_line


def _run_child(request: dict[str, Any]) -> None:
    """Call the function in the child, then exit without the clean-up of the parent."""
    status = 1
    try:
        os.dup2(os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 1)
        os.dup2(os.open(request["output"] + ".stderr", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 2)
        if request["crash"]:
            die_at(*request["crash"])
        _find(request["function"])(print_line, **request["arguments"])
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:  # noqa: BLE001 - the test reads the traceback
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        os._exit(status)


def _find(name: str) -> Any:
    """The function "module:function" of this folder."""
    module, function = name.split(":")
    return getattr(import_module(f"{__package__}.{module}"), function)


def _handle_requests() -> None:
    running: set[int] = set()
    try:
        for line in sys.stdin:
            request = json.loads(line)
            if "poll" in request:
                pid, status = os.waitpid(request["poll"], os.WNOHANG)
                running.discard(pid)
                answer = os.waitstatus_to_exitcode(status) if pid else None
            else:
                answer = os.fork()
                if answer == 0:
                    _run_child(request)
                running.add(answer)
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()
    finally:
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in running:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        _find(name)()
    _handle_requests()
