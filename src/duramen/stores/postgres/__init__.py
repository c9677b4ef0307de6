"""PostgreSQL: the store for many machines."""

from .connection import PostgresSettings
from .store import PostgresStore

__all__ = ["PostgresSettings", "PostgresStore"]
