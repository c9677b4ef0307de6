"""Identifies the process that owns a lease. The lease of a process that is known to be dead can be taken at once."""

from __future__ import annotations

import os
import secrets
import socket
from functools import lru_cache
from pathlib import Path

from ...ports import LeaseRow


def new_owner() -> str:
    """A unique name for this handle as owner of leases. It contains the machine, the process and its start time."""
    return f"{_machine()}/{os.getpid()}/{_birth(os.getpid()) or 0}/{secrets.token_hex(4)}"


def is_dead(owner: str) -> bool:
    """Whether an owner was a process on this machine that has ended. False if this cannot be determined."""
    parts = owner.rsplit("/", 3)
    if len(parts) != 4 or parts[0] != _machine() or not parts[1].isdecimal():
        return False
    born = _birth(int(parts[1]))
    return born is None or ("0" not in (born, parts[2]) and born != parts[2])


def has_live_owner(lease: LeaseRow | None, now: int) -> bool:
    """Whether a lease is valid and its owner is not known to be dead."""
    return lease is not None and lease.expires > now and not is_dead(lease.owner)


@lru_cache(maxsize=1)
def _machine() -> str:
    """The host name, the boot id and the PID namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        boot, space = "", ""
    return f"{socket.gethostname()}/{boot[:13]}/{''.join(filter(str.isdecimal, space))}"


def _birth(pid: int) -> str | None:
    """The start time of a process, in clock ticks since boot. None if it has ended; a zombie counts as ended. "0" if
    the process exists but its start time is unknown."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return None if Path("/proc/self/stat").exists() else _birth_by_signal(pid)
    except OSError:
        return "0"
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def _birth_by_signal(pid: int) -> str | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        return "0"
    return "0"
