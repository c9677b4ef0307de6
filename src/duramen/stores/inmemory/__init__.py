"""The in-memory store, for tests."""

from .store import InMemoryStore as InMemoryStore
