"""all-MiniLM-L6-v2 in 8-bit integers for onnxruntime: the file is written here once, with NumPy alone.

Each product of matrices is done in integers, with a scale for each row of its input and each column of its weights. A
scale for each row, not for the whole input, keeps a text's vector closer to the exact one. Three choices keep it the
same on every processor: weights have 7 bits, because the AVX2 kernel for 8 saturates where newer ones do not; sums of
integers are exact in any order; and the balance between input and weights is in powers of two, which do not round.

The balance: a few channels of the input are far larger than the rest, and would take all the precision. They are made
smaller and their weights larger by the same factor, found by looking at a handful of sentences (as in SmoothQuant).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .minilm_numpy import DIMS, EPSILON, HEADS, LAYERS, Embedding, Floats, NumpyRuntime, layer_tensors, unit
from .onnxfile import GraphWriter

_MICROSOFT = "com.microsoft"
_LARGEST_INPUT, _LARGEST_WEIGHT, _ZERO = 127, 63, 128
_SMALLEST = 1e-3


class OnnxRuntime:
    """All layers in onnxruntime on one thread, one text at a time. May be called from several threads at once."""

    name = "onnxruntime int8"

    def __init__(self, model: bytes, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        # Texts are spread over threads by the caller: that scales better than splitting one small product.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self._embedding = Embedding(tensors)

    def __call__(self, ids: Sequence[int]) -> Floats:
        """The text's vector, of length 1."""
        feeds = {"embedded": self._embedding(ids)[None], "zeros": np.full(len(ids), _ZERO, np.uint8)}
        hidden: Floats = self._session.run(None, feeds)[0][0]
        return unit(hidden.mean(axis=0))


def build_int8(tensors: Mapping[str, npt.NDArray[Any]], samples: Sequence[Sequence[int]]) -> bytes:
    """The bytes of an ONNX file with all layers; `samples` are the ids of some sentences to balance by."""
    peaks: dict[str, Floats] = {}

    def watch(part: str, x: Floats) -> None:
        peaks[part] = np.maximum(peaks.get(part, np.float32(0)), np.abs(x).max(axis=0))

    exact = NumpyRuntime(tensors)
    for ids in samples:
        exact(ids, watch)
    return Int8Graph(tensors, peaks).save()


class Int8Graph:
    def __init__(self, tensors: Mapping[str, npt.NDArray[Any]], peaks: Mapping[str, Floats]) -> None:
        self._graph = GraphWriter(opset=18)
        self._peaks = peaks
        x = self._graph.input("embedded", "float32", [1, "n", DIMS])
        self._graph.input("zeros", "uint8", ["n"])
        self._graph.constant("zero", np.array(_ZERO, np.uint8))
        self._graph.constant("step", np.array(1 / _LARGEST_INPUT, np.float32))
        self._graph.constant("flat", np.array([-1], np.int64))
        self._graph.constant("last", np.array([2], np.int64))
        for number in range(4):
            self._graph.constant(f"edge{number}", np.array([number * DIMS], np.int64))
        for number in range(LAYERS):
            x = self._layer(str(number), x, layer_tensors(tensors, number))
        self._graph.output(x, "float32", [1, "n", DIMS])

    def save(self) -> bytes:
        return self._graph.save()

    def _layer(self, at: str, x: str, t: Mapping[str, Floats]) -> str:
        graph = self._graph
        for name, tensor in t.items():
            if not name.endswith("weight"):
                graph.constant(f"{at}.{name}", tensor)
        looks = graph.node("Add", [self._product(f"{at}.look", x, t["look.weight"]), f"{at}.look.bias"], f"{at}.looks")
        parts = [
            graph.node("Slice", [looks, f"edge{i}", f"edge{i + 1}", "last"], f"{at}.{part}")
            for i, part in enumerate(("query", "key", "value"))
        ]
        seen = graph.node("MultiHeadAttention", parts, f"{at}.seen", _MICROSOFT, num_heads=HEADS)
        x = self._joined(f"{at}.attend", self._product(f"{at}.attend", seen, t["attend.weight"]), x)
        wide = self._product(f"{at}.widen", x, t["widen.weight"])
        wide = graph.node("BiasGelu", [wide, f"{at}.widen.bias"], f"{at}.gelu", _MICROSOFT)
        return self._joined(f"{at}.narrow", self._product(f"{at}.narrow", wide, t["narrow.weight"]), x)

    def _joined(self, at: str, y: str, x: str) -> str:
        inputs = [y, x, f"{at}.gain", f"{at}.shift", f"{at}.bias"]
        return self._graph.node("SkipLayerNormalization", inputs, f"{at}.normed", _MICROSOFT, epsilon=EPSILON)

    def _product(self, at: str, x: str, weight: Floats) -> str:
        graph = self._graph
        balance = _balance(self._peaks[at], np.abs(weight).max(axis=0))
        balanced = (weight * balance).T
        scales = np.abs(balanced).max(axis=0) / np.float32(_LARGEST_WEIGHT)
        graph.constant(f"{at}.balance", 1 / balance)
        graph.constant(f"{at}.integers", np.rint(balanced / scales).astype(np.int8))
        graph.constant(f"{at}.scales", scales)
        x = graph.node("Mul", [x, f"{at}.balance"], f"{at}.balanced")
        peak = graph.node("ReduceMax", [graph.node("Abs", [x], f"{at}.sizes"), "last"], f"{at}.peak")
        rows = graph.node("Mul", [peak, "step"], f"{at}.rows")
        flat = graph.node("Reshape", [rows, "flat"], f"{at}.flat")
        x = graph.node("QuantizeLinear", [x, flat, "zeros"], f"{at}.rounded", axis=1)
        y = graph.node("MatMulInteger", [x, f"{at}.integers", "zero"], f"{at}.sums")
        y = graph.node("Mul", [graph.node("Cast", [y], f"{at}.floats", to=1), rows], f"{at}.by_row")
        return graph.node("Mul", [y, f"{at}.scales"], f"{at}.product")


def _balance(inputs: Floats, weights: Floats) -> Floats:
    ratio = np.maximum(inputs, _SMALLEST) / np.maximum(weights, _SMALLEST)
    return np.exp2(np.rint(np.log2(ratio) / 2)).astype(np.float32)
