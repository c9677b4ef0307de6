"""The time to resume a run after a crash: duramen and DBOS, both on SQLite."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from .install import Peers
from .protocol import PeerFailed


def resume_ms(folder: Path, peers: Peers, rounds: int) -> dict[str, list[float]]:
    """Milliseconds from the start of a new process until it reaches the step in which the first one was killed."""
    times: dict[str, list[float]] = {"duramen": [], "dbos": []}
    systems = {"duramen": Peers(Path(sys.executable), {}, folder)} | ({"dbos": peers} if peers.has("dbos") else {})
    for number in range(rounds):
        for system, where in systems.items():
            try:
                times[system].append(_resume_ms(where, system, str(folder / f"{system}-{number}.db")))
            except PeerFailed as failure:
                peers.failed[f"{system} resuming"] = str(failure)
    return times


def _resume_ms(where: Peers, system: str, address: str) -> float:
    child = where.child(system, "begin", address)
    try:
        child.read("inside")
    finally:
        child.kill()
    began = time.perf_counter()
    child = where.child(system, "resume", address)
    try:
        child.read("inside")
        return (time.perf_counter() - began) * 1000
    finally:
        child.kill()
