"""A writer that tests kill. It appends to sessions in turn and prints a line for each append that returned.

    python writer.py ADDRESS WRITER FIRST COUNT SESSION...

With DURAMEN_CRASH_AT=append.committed:3, it is killed at the third visit of that point.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import duramen

if __name__ == "__main__":
    from append_audit import write_one
else:
    from .append_audit import write_one


def append_with_new_handles(
    say: Callable[[str], None], address: str, writer: str, count: int, sessions: list[str]
) -> None:
    """Append `count` events, each with a new handle."""
    for number in range(count):
        with duramen.open(address) as store:
            write_one(store.session(sessions[number % len(sessions)]), writer, number, say)


def write(
    say: Callable[[str], None], address: str, writer: str, first: int, count: int, sessions: list[str], threads: int = 1
) -> None:
    """Append `count` events in each thread, numbered from `first`. Threads share one handle."""
    with duramen.open(address) as store:

        def work(name: str) -> None:
            for number in range(first, first + count):
                write_one(store.session(sessions[number % len(sessions)]), name, number, say)

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, [f"{writer}.{index}" for index in range(threads)]))


def print_line(line: str) -> None:
    """Print a line with one system call: it is written completely or not at all."""
    os.write(sys.stdout.fileno(), f"{line}\n".encode())


if __name__ == "__main__":
    from duramen.testing.crash import arm_from_environment

    arm_from_environment()
    write(print_line, sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5:])
