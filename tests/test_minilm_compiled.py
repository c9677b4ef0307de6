"""The compiled layers: texts of all lengths, alone and together, and what they refuse."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from programs.compiling import HAS_COMPILER

from duramen.embedders import Installed, MiniLM, minilm_compiled
from duramen.embedders.minilm_compiled import CompiledRuntime, compiled_here
from duramen.embedders.minilm_numpy import NumpyRuntime, gelu
from duramen.embedders.safetensors import read_safetensors
from duramen.errors import EmbedderFailed, InvalidInput, WeightsDamaged

compiled = pytest.mark.skipif(not compiled_here(), reason="there was no compiler, or this processor has no VNNI")
LENGTHS = (1, 2, 3, 5, 6, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 49, 64, 65, 255, 256)
"""Around the sizes of what is computed together: 6 and 8 rows, 16 keys."""


@pytest.fixture(scope="module")
def runtime(installed: Installed) -> CompiledRuntime:
    return CompiledRuntime(installed.layers, read_safetensors(installed.weights))


def some_ids(length: int, seed: int = 0) -> list[int]:
    chance = np.random.default_rng([length, seed])
    return [101, *chance.integers(1000, 28_000, length).tolist(), 102][:length]


@pytest.mark.skipif(not HAS_COMPILER, reason="there is no compiler")
def test_it_is_there_where_it_could_be_compiled() -> None:
    """Or a build that fails would only be seen by its slowness."""
    assert minilm_compiled._layers is not None


@compiled
def test_it_is_what_computes_if_nothing_else_is_asked_for(installed: Installed) -> None:
    assert MiniLM(installed).runtime == "compiled int8"


@compiled
@pytest.mark.parametrize("length", LENGTHS)
def test_texts_of_all_lengths_are_near_to_float32(runtime: CompiledRuntime, installed: Installed, length: int) -> None:
    exact = NumpyRuntime(read_safetensors(installed.weights))
    texts = [some_ids(length, seed) for seed in range(3)]
    assert (runtime(texts) * exact(texts)).sum(axis=1).min() >= 0.98


@compiled
def test_a_text_gives_the_same_whatever_it_comes_with(runtime: CompiledRuntime) -> None:
    texts = [some_ids(length) for length in LENGTHS]
    alone = [runtime([text])[0].tobytes() for text in texts]
    assert [row.tobytes() for row in runtime(texts)] == alone
    assert [row.tobytes() for row in runtime(texts[::-1])] == alone[::-1]
    assert [row.tobytes() for row in runtime(texts[3:9])] == alone[3:9]


def test_the_pieces_of_the_curve_are_gelu() -> None:
    square, slope, rest = minilm_compiled._curve()
    x = np.linspace(0, 3.999, 4000)
    at, part = np.divmod(x * 8, 1)
    piece = at.astype(int)
    curve = (square[piece] * part + slope[piece]) * part + rest[piece]
    made = (curve - minilm_compiled.GELU_ZERO) * minilm_compiled.GELU_STEP
    assert np.abs(made - gelu(-x)).max() < 3e-5
    assert np.abs(made + x - gelu(x)).max() < 3e-5


def embed(runtime: CompiledRuntime, texts: Sequence[Sequence[int]], **other: Any) -> npt.NDArray[np.float32]:
    given: dict[str, Any] = {
        "layers": runtime._layers,
        "words": runtime._words,
        "ids": np.array([id for text in texts for id in text], np.int32),
        "lengths": np.array([len(text) for text in texts], np.int32),
        "out": np.zeros((len(texts), 384), np.float32),
        "groups": 1,
        "turn": np.zeros(1, np.int64),
    }
    given |= other
    minilm_compiled._layers.embed(*given.values())
    out: npt.NDArray[np.float32] = given["out"]
    return out


@compiled
def test_what_does_not_fit_is_refused(runtime: CompiledRuntime) -> None:
    """Rather than read or written beyond an end."""
    texts = [some_ids(9), some_ids(4)]
    whole = np.array(runtime._layers)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"lengths": np.array([9, 5], np.int32)}, "add up"),
        ({"lengths": np.array([9, 3], np.int32)}, "add up"),
        ({"lengths": np.array([13, 0], np.int32)}, "1 to 256"),
        ({"lengths": np.array([14, -1], np.int32)}, "1 to 256"),
        ({"ids": np.full(13, 30_522, np.int32)}, "vocabulary"),
        ({"ids": np.full(13, -1, np.int32)}, "vocabulary"),
        ({"words": np.zeros((100, 384), np.float32)}, "vocabulary"),
        ({"out": np.zeros((1, 384), np.float32)}, "another size"),
        ({"groups": 0}, "a group"),
        ({"turn": np.zeros(2, np.int64)}, "turn"),
        ({"turn": np.zeros(1, np.int32)}, "turn"),
        ({"turn": np.zeros(9, np.uint8)[1:]}, "turn"),
        ({"layers": whole[:-64]}, "no file of layers"),
        ({"layers": whole[:32]}, "no file of layers"),
        ({"layers": b""}, "no file of layers"),
        ({"layers": bytes(len(whole))}, "no file of layers"),
        ({"layers": np.concatenate([whole, np.zeros(64, np.uint8)])}, "no file of layers"),
    ]
    for other, reason in wrong:
        with pytest.raises(ValueError, match=reason):
            embed(runtime, texts, **other)
    with pytest.raises(TypeError):
        embed(runtime, texts, ids=[1, 2, 3])
    with pytest.raises(ValueError, match="1 to 256"):
        runtime([some_ids(257)])
    assert embed(runtime, texts).tobytes() == runtime(texts).tobytes()
    assert runtime([]).shape == (0, 384)


@compiled
def test_what_changes_meanwhile_changes_nothing(runtime: CompiledRuntime) -> None:
    """Ids and lengths were checked: no others are used, though `out` lies over them, or another thread is at them."""
    count = 40
    buffer = np.zeros(count * 384 * 4 + 64, np.uint8)
    lengths = buffer[: count * 4].view(np.int32)
    lengths[:] = 3
    texts = [some_ids(3, seed) for seed in range(count)]
    out = buffer[8 : 8 + count * 384 * 4]
    embed(runtime, texts, lengths=lengths, out=out)
    assert out.tobytes() == runtime(texts).tobytes()
    ids, end = np.full(256 * 4, 2000, np.int32), threading.Event()

    def flip() -> None:
        while not end.is_set():
            ids[-1] = 2**31 - 1
            ids[-1] = 2000

    expected = embed(runtime, [[2000] * 256] * 4).tobytes()
    thread = threading.Thread(target=flip)
    thread.start()
    try:
        for _ in range(20):
            with suppress(ValueError):
                assert embed(runtime, [[2000] * 256] * 4, ids=ids).tobytes() == expected
    finally:
        end.set()
        thread.join()


def test_at_the_end_of_a_process_there_are_still_vectors(installed: Installed) -> None:
    program = (
        "import atexit; from duramen.embedders import MiniLM; minilm = MiniLM.load(fetch=False);"
        "atexit.register(lambda: print(minilm.embed(['a text'] * 20).shape))"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert (told.stdout.strip(), told.stderr) == ("(20, 384)", "")


@compiled
def test_a_damaged_file_of_layers_is_named(installed: Installed, tmp_path: Path) -> None:
    for file in installed.folder.iterdir():
        (tmp_path / file.name).symlink_to(file)
    (tmp_path / "layers-int8.bin").unlink()
    with pytest.raises(EmbedderFailed, match="layers-int8") as gone:
        MiniLM(Installed(tmp_path))
    assert "duramen model install" in gone.value.hint
    whole = installed.layers.read_bytes()
    for damaged in (
        whole[:-1],
        whole[:5_000_000] + bytes(4096) + whole[5_004_096:],
        whole[:64] + b"\xff" * (len(whole) - 64),
    ):
        (tmp_path / "layers-int8.bin").write_bytes(damaged)
        with pytest.raises(WeightsDamaged, match=r"layers-int8\.bin"):
            MiniLM(Installed(tmp_path))


def test_where_it_was_not_compiled_it_is_refused_by_name(installed: Installed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm_compiled, "_layers", None)
    assert MiniLM(installed).runtime != "compiled int8"
    with pytest.raises(InvalidInput, match="compiled parts"):
        MiniLM(installed, runtime="compiled-int8")


@compiled
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_threads_share_all_texts(runtime: CompiledRuntime, threads: int) -> None:
    chance = np.random.default_rng(threads)
    for count in (0, 1, 2, 5, 60):
        texts = [some_ids(int(length), 1) for length in chance.integers(1, 257, count)]
        expected = [runtime([text])[0].tobytes() for text in texts]
        assert [row.tobytes() for row in runtime(texts, threads)] == expected


@compiled
def test_groups_of_all_numbers_give_the_same(runtime: CompiledRuntime) -> None:
    texts = [some_ids(length) for length in LENGTHS]
    expected = runtime(texts).tobytes()
    for groups in (1, 2, 3, 7, len(texts), 1000, 2**62):
        turn = np.zeros(1, np.int64)
        assert embed(runtime, texts, groups=groups, turn=turn).tobytes() == expected
        assert 1 <= turn[0] <= len(texts) + 1
        nothing = embed(runtime, texts, groups=groups, turn=turn)
        assert not nothing.any(), "they were all computed before"
