"""The default embedder, with its real weights, in both precisions."""

from __future__ import annotations

import inspect
import subprocess
import sys
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from duramen.embedders import InstalledModel, MiniLM, Precision, best_precision
from duramen.errors import EmbedderFailed, InvalidInput, WeightsDamaged

TEXTS = (
    "She moved to Lisbon last May with her dog.",
    "In spring she relocated to Portugal's capital, and took the puppy along.",
    "The invoice for the server is overdue.",
    "",
    "日本語のテキスト 😀",
    "Caroline: I went to a support group yesterday and it was so powerful. " * 4,
    "def f(x):\n    return x ** 2\n",
    "OK",
)


needs_int8 = pytest.mark.skipif(
    best_precision() is not Precision.INT8, reason="this processor clips sums of 8-bit products"
)
SUMS_EXACTLY = "duramen.embedders.minilm._sums_int8_exactly"


@pytest.fixture(scope="module", params=[pytest.param("int8", marks=needs_int8), "float32"])
def minilm(request: pytest.FixtureRequest, installed: InstalledModel) -> MiniLM:
    made = MiniLM(installed, precision=request.param)
    assert made.precision == request.param
    return made


def test_vectors_have_length_one(minilm: MiniLM) -> None:
    rows = minilm.embed(TEXTS)
    assert rows.shape == (len(TEXTS), minilm.dims) == (len(TEXTS), 384)
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    assert minilm.embed([]).shape == (0, 384)


def test_a_paraphrase_is_the_most_similar(minilm: MiniLM) -> None:
    rows = minilm.embed(TEXTS)
    similarity = rows[1:] @ rows[0]
    assert similarity.argmax() == 0
    assert similarity[0] > 0.5 > 0.2 > similarity[1]


def test_the_vector_of_a_text_does_not_depend_on_its_batch(minilm: MiniLM) -> None:
    together = minilm.embed(TEXTS * 2)
    for at, text in enumerate(TEXTS):
        alone = minilm.embed([text])[0]
        assert alone.tobytes() == together[at].tobytes() == together[at + len(TEXTS)].tobytes()


def test_texts_of_the_same_length_do_not_affect_each_other(minilm: MiniLM) -> None:
    names = ("Ada", "Ben", "Eve", "Ida", "Max", "Sam", "Tom", "Ann", "Bob", "Jim", "Kim", "Lee")
    texts = [f"{name} bought {count} books." for name in names for count in ("two", "ten", "six")]
    together = minilm.embed(texts)
    assert [row.tobytes() for row in together] == [minilm.embed([text])[0].tobytes() for text in texts]


def test_threads_do_not_affect_each_other(minilm: MiniLM) -> None:
    expected = minilm.embed(TEXTS)
    with ThreadPoolExecutor(4) as pool:
        for rows in pool.map(lambda _: minilm.embed(TEXTS), range(3)):
            assert rows.tobytes() == expected.tobytes()


@needs_int8
def test_precisions_agree_and_have_the_same_identity(installed: InstalledModel) -> None:
    fast, exact = MiniLM(installed, precision="int8"), MiniLM(installed, precision="float32")
    agreement = (fast.embed(TEXTS) * exact.embed(TEXTS)).sum(axis=1)
    assert agreement.min() >= 0.99  # the lowest are texts of one or two words
    assert agreement.mean() >= 0.997
    assert fast.identity == exact.identity
    assert exact.identity.checksum.startswith("53aa5117")


def test_vectors_equal_those_of_sentence_transformers(installed: InstalledModel) -> None:
    """The first four numbers of two texts."""
    rows = MiniLM(installed, precision="float32").embed(["This is an example sentence", "Each sentence is converted"])
    expected = [[0.0676569, 0.0634959, 0.0487131, 0.0793049], [0.0864386, 0.1027626, 0.0053946, 0.0020444]]
    np.testing.assert_allclose(rows[:, :4], expected, atol=1e-5)


@needs_int8
def test_int8_is_also_exact_for_texts_outside_the_calibration(installed: InstalledModel) -> None:
    fast, exact = MiniLM(installed, precision="int8"), MiniLM(installed, precision="float32")
    text = __doc__ or ""
    texts = [" ".join(inspect.getsource(test).split()[:200]) for test in (minilm, test_vectors_have_length_one)]
    texts += [f"{word} {text} {word}" for word in ("Lisbon", "0xff", "!?", "naïve", "ЖЗИ")]
    agreement = (fast.embed(texts) * exact.embed(texts)).sum(axis=1)
    assert agreement.min() >= 0.995
    assert agreement.mean() >= 0.998
    # Repeated tokens give larger values than sentences do. Values beyond the range of a scale would be clipped.
    rows = ["[PAD] " * 40, "," * 99, "," * 254, "nan " * 24, "police " * 254, "?! " * 60, "_" * 256, "no " * 254]
    assert (fast.embed(rows) * exact.embed(rows)).sum(axis=1).min() >= 0.975


def test_a_processor_that_clips_sums_uses_float32(installed: InstalledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SUMS_EXACTLY, lambda: False)
    assert MiniLM(installed).precision == "float32"
    with pytest.raises(InvalidInput, match="8-bit"):
        MiniLM(installed, precision="int8")
    monkeypatch.setattr(SUMS_EXACTLY, lambda: True)
    assert MiniLM(installed).precision == "int8"


def test_clipped_sums_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    class Clipping:
        """Adds two products as a processor without 8-bit instructions does: the sum stays below 2**15."""

        def run(self, names: None, inputs: dict[str, npt.NDArray[np.uint8]]) -> list[npt.NDArray[np.int32]]:
            pairs = np.minimum(inputs["given"].astype(np.int32).reshape(64, 32, 2).sum(axis=2) * 127, 2**15 - 1)
            return [np.repeat(pairs.sum(axis=1, keepdims=True), 64, axis=1)]

    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    monkeypatch.setattr("duramen.embedders.minilm.open_session", lambda graph: Clipping())
    assert best_precision() is Precision.FLOAT32


def test_int8_is_used_only_on_processors_where_it_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "arm64")
    assert best_precision() is Precision.FLOAT32


def test_only_the_first_256_tokens_count(minilm: MiniLM) -> None:
    one, other = minilm.embed(["word " * 254 + "dog", "word " * 254 + "cat"])
    assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("wrong", ["a text", [1], [None], [b"x"]])
def test_only_a_sequence_of_texts_is_embedded(minilm: MiniLM, wrong: object) -> None:
    with pytest.raises(InvalidInput):
        minilm.embed(wrong)  # type: ignore[arg-type]


def test_a_broken_onnxruntime_is_reported(installed: InstalledModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", types.ModuleType("onnxruntime"))
    for precision in Precision:
        with pytest.raises(EmbedderFailed, match="SessionOptions"):
            MiniLM(installed, precision=precision)


def test_a_damaged_file_is_reported_by_name(installed: InstalledModel, tmp_path: Path) -> None:
    for name in ("float32.onnx", "int8.onnx", "manifest.json", "model.safetensors"):
        (tmp_path / name).symlink_to(installed.folder / name)
    (tmp_path / "tokenizer.json").write_bytes(b"{" + installed.tokenizer.read_bytes()[1:-1] + b"!")
    with pytest.raises(WeightsDamaged, match=r"tokenizer\.json") as damaged:
        MiniLM(InstalledModel(tmp_path))
    assert "duramen model install" in damaged.value.hint
    with pytest.raises(EmbedderFailed, match="cannot be read") as missing:
        MiniLM(InstalledModel(tmp_path / "gone"))
    assert "duramen model install" in missing.value.hint


def test_an_error_while_computing_is_translated(minilm: MiniLM, monkeypatch: pytest.MonkeyPatch) -> None:
    class Failing:
        def run(self, names: None, given: object) -> None:
            raise MemoryError

    monkeypatch.setattr(minilm, "_session", Failing())
    with pytest.raises(EmbedderFailed, match="MemoryError"):
        minilm.embed(["a"])


def test_an_unknown_precision_is_refused(installed: InstalledModel) -> None:
    with pytest.raises(InvalidInput, match="unknown precision 'float16'") as refused:
        MiniLM(installed, precision="float16")
    assert "int8" in refused.value.hint


def test_only_the_needed_packages_are_imported(installed: InstalledModel) -> None:
    program = (
        "import sys; from duramen.embedders import MiniLM, load_embedder; heavy = ('openai', 'torch', 'rich', 'apsw');"
        "print('onnxruntime' in sys.modules); load_embedder().embed(['a']);"
        "print([name for name in heavy if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.split() == ["False", "[]"]


def test_two_processes_give_the_same_bytes(minilm: MiniLM) -> None:
    program = (
        "import sys; from duramen.embedders import MiniLM;"
        f"sys.stdout.buffer.write(MiniLM.load(precision={minilm.precision.value!r}).embed({list(TEXTS[:3])!r}).tobytes())"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=120)
    assert result.stdout == minilm.embed(TEXTS[:3]).tobytes()
