"""Counts how often a run of duramen syncs its file."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path


def count_syncs(folder: Path, steps: int) -> int:
    """The number of syncs in a process that opens a new file, executes `steps` steps and closes it."""
    path = folder / f"syncs-{steps}.db"
    if shutil.which("strace") is None:
        return _count_in_file_layer(path.name, steps)
    report = path.with_suffix(".strace")
    strace = ["strace", "-f", "-c", "-e", "trace=fsync,fdatasync", "-o", str(report)]
    program = [sys.executable, "-m", "peers.duramen_peer", "steps", str(path), str(steps)]
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    subprocess.run([*strace, *program], check=True, env=environment, stderr=subprocess.DEVNULL)
    # columns: % time, seconds, usecs/call, calls, errors (may be empty), syscall
    calls = re.findall(r"^\s*\S+\s+\S+\s+\S+\s+(\d+)\s.*\b(?:fsync|fdatasync)$", report.read_text(), re.MULTILINE)
    return sum(int(number) for number in calls)


def _count_in_file_layer(name: str, steps: int) -> int:
    """The number of syncs without strace: those that SQLite requests from its file layer."""
    from duramen.api._async.duramen import AsyncDuramen
    from duramen.api._sync.duramen import Duramen
    from duramen.api.settings import open_journal
    from duramen.runtime import Blocking
    from duramen.stores.sqlite.connection import SqliteSettings
    from duramen.stores.sqlite.store import SqliteStore
    from duramen.testing.power_loss import PowerLossDisk

    from .duramen_peer import DuramenSystem

    with PowerLossDisk() as disk:
        runtime = Blocking()
        store = SqliteStore(SqliteSettings(name, timeout=5.0, vfs=disk.vfs_name), runtime)
        with Duramen(AsyncDuramen(open_journal(store, {}), runtime)) as handle:
            system = DuramenSystem()
            system.use(handle, lambda number: None)
            system.run(steps)
        return disk._power.made["xSync"]
