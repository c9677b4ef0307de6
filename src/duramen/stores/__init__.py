"""The places where journals live: memory for tests, SQLite, PostgreSQL."""
