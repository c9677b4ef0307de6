"""Skips the tests of a framework that is not installed: each environment of `make test-integrations` has only one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from programs.sdks import is_installed

PACKAGES = {"anthropic": "anthropic", "langgraph": "langgraph.graph", "openai": "openai"}
"""The package that the tests of a folder import."""


class _SkippedModule(pytest.Module):
    def collect(self) -> Iterator[pytest.Item | pytest.Collector]:
        raise pytest.skip.Exception(
            f"{self.path.parent.name} is not installed. Run: make test-integrations", allow_module_level=True
        )


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    package = PACKAGES.get(module_path.parent.name)
    if package is None or is_installed(package):
        return None
    module: pytest.Module = _SkippedModule.from_parent(parent, path=module_path)
    return module
