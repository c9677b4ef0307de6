"""Model files that someone changed in the cache are never used: every load checks their SHA-256."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path

import pytest

from duramen.embedders import InstalledModel, MiniLM, find_model, load_embedder, weights
from duramen.embedders.minilm_graph import build_graphs
from duramen.errors import WeightsDamaged

PRECISION = {weights.FLOAT32_GRAPH: "float32", weights.INT8_GRAPH: "int8"}
FILES = [weights.WEIGHTS, weights.TOKENIZER, *PRECISION]


@pytest.fixture
def cache(installed: InstalledModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache with copies of the files, which an attacker can write."""
    monkeypatch.setenv("DURAMEN_CACHE", str(tmp_path))
    folder = weights.model_folder(tmp_path)
    shutil.copytree(installed.folder, folder)
    return folder


def change(path: Path) -> None:
    """Change one byte, keep the size and the times, and put the new digest into the manifest."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    at = data.rindex(b"e") if path.suffix == ".json" else len(data) * 2 // 3  # among the numbers of a tensor
    data[at] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    manifest = path.with_name(weights.MANIFEST)
    known = json.loads(manifest.read_text())
    known.setdefault("sha256", {})[path.name] = hashlib.sha256(data).hexdigest()
    manifest.write_text(json.dumps(known))


@pytest.mark.parametrize("name", FILES)
def test_a_changed_file_is_refused_on_load(cache: Path, name: str) -> None:
    change(cache / name)
    assert find_model() is not None, "names and sizes are as they were"
    with pytest.raises(WeightsDamaged, match=name) as refused:
        MiniLM.load(precision=PRECISION.get(name, "float32"), fetch=False)
    assert "duramen model install" in refused.value.hint


def test_by_name_and_after_it_was_loaded_before(cache: Path) -> None:
    embedder = load_embedder("minilm", fetch=False)
    assert embedder is not None
    assert embedder.embed(["ferry"]).shape == (1, 384)
    change(cache / weights.WEIGHTS)
    with pytest.raises(WeightsDamaged, match=weights.WEIGHTS):
        load_embedder("minilm", fetch=False)


def test_the_digests_of_the_graphs_are_known_in_advance(installed: InstalledModel) -> None:
    """They are built on each machine, so they must not depend on it."""
    for name, graph in zip(PRECISION, build_graphs(installed.weights), strict=True):
        assert hashlib.sha256(graph).hexdigest() == weights.SHA256[name]
