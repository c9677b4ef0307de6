"""The owner of a lease: a process of a machine. A lease of a process that is known to be dead can be taken at once."""

from __future__ import annotations

import os
import secrets
import socket
from functools import lru_cache
from pathlib import Path

from ...ports import LeaseRow


def new_owner() -> str:
    """A name for this process as owner of leases: where it runs, which process it is, and which handle."""
    return f"{_machine()}/{os.getpid()}/{_birth(os.getpid()) or 0}/{secrets.token_hex(4)}"


def is_dead(owner: str) -> bool:
    """Whether an owner was a process of this machine that lives no longer. False if that cannot be known."""
    parts = owner.rsplit("/", 3)
    if len(parts) != 4 or parts[0] != _machine() or not parts[1].isdecimal():
        return False
    born = _birth(int(parts[1]))
    return born is None or ("0" not in (born, parts[2]) and born != parts[2])


def has_live_owner(lease: LeaseRow | None, now: int) -> bool:
    """Whether a lease is good and its owner not known to be dead."""
    return lease is not None and lease.expires > now and not is_dead(lease.owner)


@lru_cache(maxsize=1)
def _machine() -> str:
    """This machine since its last start, and the space in which process numbers count."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        space = os.readlink("/proc/self/ns/pid")
    except OSError:
        boot, space = "", ""
    return f"{socket.gethostname()}/{boot[:13]}/{''.join(filter(str.isdecimal, space))}"


def _birth(pid: int) -> str | None:
    """When a process began, in ticks since the machine's start; None if it has ended (a zombie counts as ended)."""
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
