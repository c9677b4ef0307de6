"""Which SDKs are installed. Tests of a missing one are skipped."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def is_installed(package: str) -> bool:
    try:
        spec = find_spec(package)
    except ModuleNotFoundError:  # its parent package is missing
        return False
    # A folder of tests with the same name is found as a namespace package, which has no origin.
    return spec is not None and spec.origin is not None


def needs(*packages: str) -> pytest.MarkDecorator:
    """Skips a test unless all packages are installed."""
    missing = [package for package in packages if not is_installed(package)]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


PROTOCOLS = [pytest.param(name, marks=needs(name)) for name in ("anthropic", "openai")]
"""The protocols of model providers. Each has an SDK of the same name."""
