"""The SQLite store: the embedded default, one file. Start with `store`, then `append` and `writer`."""

from .connection import SqliteSettings
from .store import SqliteStore

__all__ = ["SqliteSettings", "SqliteStore"]
