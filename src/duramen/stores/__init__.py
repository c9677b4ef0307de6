"""The stores: in-memory (for tests), SQLite and PostgreSQL. `duramen.ports.store` states what they promise."""
