"""The embedded default: one SQLite file."""

from .connection import SqliteSettings
from .store import SqliteStore

__all__ = ["SqliteSettings", "SqliteStore"]
