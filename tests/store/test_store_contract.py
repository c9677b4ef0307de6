"""Each store passes the store contract, through both APIs."""

from __future__ import annotations

from pathlib import Path

import pytest

from duramen.testing.store_contract import StoreContract


class TestInMemory(StoreContract):
    shared = False

    def address(self, tmp_path: Path) -> str:
        return "memory:"


class TestSqlite(StoreContract):
    def address(self, tmp_path: Path) -> str:
        return str(tmp_path / "agent.db")


class TestPostgres(StoreContract):
    @pytest.fixture(autouse=True)
    def _url(self, postgres_url: str) -> None:
        self._address = postgres_url

    def address(self, tmp_path: Path) -> str:
        return self._address
