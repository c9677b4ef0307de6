"""Hints in the code of _async/ for tools/generate_sync.py. They do nothing at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T", bound=type)


def sync_class(name: str, *, fields_of: str) -> Callable[[T], T]:
    """Name the sync twin, where it is not the name of the async class without "Async".

    The twin also gets a property for each field of the record that the method `fields_of` returns.
    """
    return lambda cls: cls
