"""Checksums for all rows except events and blobs, such as sessions, subjects, leases and cursors.

The hash chain covers events, and the address covers a blob. A flipped bit in any other row must be detected too:
otherwise, for example, a former owner could appear to hold a lease.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any

import msgspec

from ...errors import StoreDamaged


def checksum(*fields: object) -> bytes:
    """A short checksum over the fields of a row."""
    return blake2b(msgspec.msgpack.encode(fields), digest_size=8, person=b"duramen.row").digest()


def expect_intact(what: str, stored: bytes, *fields: object) -> None:
    """Raise `StoreDamaged` if the fields do not match the stored checksum."""
    if checksum(*fields) != stored:
        raise StoreDamaged(f"the row of {what} does not match its checksum", hint="restore it from a backup")


def mismatches(rows: Iterable[Any]) -> Iterator[str]:
    """The names of the rows that do not match their checksums. A row is (name, checksum, fields …)."""
    for name, stored, *fields in rows:
        if checksum(*fields) != stored:
            yield name
