"""Names of steps, signals and questions that look like credentials: a run resumes, whatever redaction makes of them."""

from __future__ import annotations

from pathlib import Path

import pytest

import duramen

KEY = "sk-proj-" + "abcdefghij0123456789ABCDEF"


@duramen.step(name="pk_users_2026_11_18_daily_export")
def first() -> int:
    return 1


@duramen.step(name=KEY)
def second() -> int:
    return 2


@duramen.task
def errand() -> object:
    before = first() + second()
    signal = duramen.receive(KEY)
    return [before, signal, duramen.ask(f"Use {KEY}?")]


@pytest.mark.promise("X3")
def test_a_run_resumes_past_names_that_look_like_credentials(tmp_path: Path) -> None:
    with duramen.open(tmp_path / "agent.db") as dm:
        dm._core._engine.patience = 0
        dm.start(errand, id="r")
        dm.work([errand], until_idle=True)
        dm.signal("r", KEY, "go")
        dm.work([errand], until_idle=True)
    with duramen.open(tmp_path / "agent.db") as dm:
        dm.answer("r", True, question=f"Use {KEY}?")
        dm.work([errand], until_idle=True)
        assert dm.run(errand, id="r") == [3, "go", True]
        assert KEY not in repr(list(dm.session("r").events()))
    assert not any(KEY.encode() in path.read_bytes() for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    "text",
    [
        "pk_users_2026_11_18_daily_export",
        "sk-learn-contrib-2024-release-notes",
        "rk-3588-orangepi-5-plus-board",
        "hf_hub_download_from_repo_2024_with_cache",
        "jina_embeddings_v3_base_en",
        "e2b_code_interpreter_v1_beta",
        "xai-explainability-course-notes",
        "pypi-server-deployment-notes-x",
        "MyVeryLongClassNameInModule.method.anotherVeryLongAttributeNameForThis",
        "s." + "abcdefghijklmnopqrstuvwx",
        'if pem.startswith("-----BEGIN PRIVATE KEY-----"):\n    load(pem)\n',
    ],
)
def test_ordinary_identifiers_and_code_are_unchanged(text: str) -> None:
    with duramen.open("memory:") as dm:
        stored = dm.session("s").append("note", text).data
    assert stored.replace("-----BEGIN [redacted]", "-----BEGIN PRIVATE KEY-----") == text
