"""The PostgreSQL store, for many machines. Start with `store`, then `append`."""

from .connection import PostgresSettings
from .store import PostgresStore

__all__ = ["PostgresSettings", "PostgresStore"]
