"""The six layers of all-MiniLM-L6-v2 in onnxruntime, with their products of matrices in 8-bit integers: see
`minilm_folding`. Only for processors that sum such products exactly: see `exact_here`."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .minilm_folding import Folded, FoldedLayer
from .minilm_numpy import DIMS, EPSILON, HEADS, Embedding, Floats, unit
from .minilm_onnx import MICROSOFT, session
from .onnxfile import GraphWriter


class Int8Runtime:
    """All layers in onnxruntime on one thread. May be called from several threads at once."""

    name = "onnxruntime int8"

    def __init__(self, graph: Path, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        self._session = session(str(graph))
        self._embedding = Embedding(tensors)

    def __call__(self, texts: Sequence[Sequence[int]]) -> Floats:
        """A vector of length 1 for each text, which are given as ids, all of the same number."""
        hidden: Floats = self._session.run(None, {"embedded": self._embedding(texts)})[0]
        return unit(hidden.mean(axis=1))


def exact_here() -> bool:
    """Whether this processor sums products of 8-bit integers without an overflow, as those do that have instructions
    for it (VNNI). Others clip sums of two, and take about as long as in float32. Raises whatever onnxruntime raises."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False  # nobody has measured it there
    size = 64
    graph = GraphWriter()
    given = graph.input("given", "uint8", ["rows", size])
    weights = graph.constant("weights", np.full((size, size), 127, np.int8))
    graph.output(graph.node("MatMulInteger", [given, weights], "product"), "int32", ["rows", size])
    product = session(graph.save()).run(None, {"given": np.full((size, size), 255, np.uint8)})[0]
    return bool((product == 255 * 127 * size).all())


def build_int8_graph(layers: Iterable[FoldedLayer]) -> bytes:
    """The bytes of an ONNX file with all layers."""
    graph = GraphWriter(opset=20)
    x = graph.input("embedded", "float32", ["texts", "tokens", DIMS])
    before: _Summed | None = None
    for number, folded in enumerate(layers):
        x, before = _Layer(graph, number, folded).applied_to(x, before)
    graph.output(x, "float32", ["texts", "tokens", DIMS])
    return graph.save()


class _Summed(NamedTuple):
    """A sum that is still to be normed, and how."""

    part: str
    name: str
    gain: npt.NDArray[np.float64]
    shift: npt.NDArray[np.float64]


class _Layer:
    def __init__(self, graph: GraphWriter, number: int, layer: FoldedLayer) -> None:
        self._graph = graph
        self._at = f"layer{number}"
        self._folded, self._norms = layer

    def applied_to(self, x: str, before: _Summed | None) -> tuple[str, _Summed]:
        """Its output, and the sum that was normed to it; `before` is that of its input."""
        balanced = self._scaled(x, "look") if before is None else self._normed(before, "look")
        whole, look = self._whole("look", balanced), self._folded["look"]
        thirds = [(f"look{at}", look.rows(slice(at, at + DIMS))) for at in range(0, 3 * DIMS, DIMS)]
        looks = [self._product(name, third, whole) for name, third in thirds]
        seen = self._node("MultiHeadAttention", looks, "seen", MICROSOFT, num_heads=HEADS)
        summed = self._summed("attend", self._part("attend", seen), x)
        x = self._normed(summed)
        wide = self._node("Gelu", [self._part("widen", self._normed(summed, "widen"))], "gelu")
        summed = self._summed("narrow", self._part("narrow", wide), x)
        return self._normed(summed), summed

    def _part(self, part: str, x: str) -> str:
        return self._product(part, self._folded[part], self._whole(part, x))

    def _whole(self, part: str, x: str) -> str:
        """An input in integers."""
        step = self._constant(f"{part}.step", np.array(self._folded[part].step))
        zero = self._constant(f"{part}.zero", np.array(self._folded[part].zero, np.uint8))
        return self._node("QuantizeLinear", [x, step, zero], f"{part}.whole")

    def _product(self, name: str, folded: Folded, whole: str) -> str:
        part = name.rstrip("0123456789")
        weights = self._constant(f"{name}.weight", folded.weights.T)
        scale, bias = self._constant(f"{name}.scale", folded.scale), self._constant(f"{name}.bias", folded.bias)
        inputs = [whole, weights, f"{self._at}.{part}.step", scale, f"{self._at}.{part}.zero", "", bias]
        return self._node("MatMulIntegerToFloat", inputs, f"{name}.product", MICROSOFT)

    def _summed(self, part: str, product: str, x: str) -> _Summed:
        total = self._node("Add", [product, x], f"{part}.summed")
        return _Summed(part, total, self._norms[f"{part}.gain"], self._norms[f"{part}.shift"])

    def _normed(self, summed: _Summed, part: str = "") -> str:
        """A sum, normed; and balanced for a product: to norm twice takes no longer than to balance."""
        gain, shift, name = summed.gain, summed.shift, f"{summed.part}.normed"
        if part:
            folded, name = self._folded[part], f"{part}.input"
            gain, shift = gain / folded.factor, (shift - folded.centre) / folded.factor
        inputs = [summed.name, self._constant(f"{name}.gain", gain), self._constant(f"{name}.shift", shift)]
        return self._node("LayerNormalization", inputs, name, axis=-1, epsilon=EPSILON)

    def _scaled(self, x: str, part: str) -> str:
        """What was normed elsewhere, balanced for a product."""
        folded = self._folded[part]
        slope = self._constant(f"{part}.slope", 1 / folded.factor)
        offset = self._constant(f"{part}.offset", -folded.centre / folded.factor)
        sloped = self._node("Mul", [x, slope], f"{part}.sloped")
        return self._node("Add", [sloped, offset], f"{part}.balanced")

    def _constant(self, name: str, array: npt.NDArray[Any]) -> str:
        kept = array if array.dtype in (np.int8, np.uint8) else array.astype(np.float32)
        return self._graph.constant(f"{self._at}.{name}", kept)

    def _node(self, kind: str, inputs: Sequence[str], output: str, domain: str = "", **attributes: int | float) -> str:
        return self._graph.node(kind, inputs, f"{self._at}.{output}", domain, **attributes)
