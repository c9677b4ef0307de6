"""The queries of this store."""

from pathlib import Path

from ..common.sql_file import load_queries

Q = load_queries(Path(__file__).parent / "queries.sql")
