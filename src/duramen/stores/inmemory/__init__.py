"""The in-memory store, for tests. Start with `store`."""

from .store import InMemoryStore as InMemoryStore
