"""Hints for tools/generate_sync.py in the code of _async/. They do nothing at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T", bound=type)


def sync_class(name: str, *, fields_of: str) -> Callable[[T], T]:
    """The sync twin has another name than the async class without "Async", and a property for each field of the record
    that the method `fields_of` returns."""
    return lambda cls: cls
