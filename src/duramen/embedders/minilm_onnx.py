"""The six layers of all-MiniLM-L6-v2 in onnxruntime, in float32.

The graph is written here, with NumPy alone, and names the places of the large tensors in the model's own file: nothing
is converted, and nothing is on the disk twice. `minilm_int8` has the one in 8-bit integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from .minilm_numpy import DIMS, EPSILON, HEADS, LAYERS, PARTS, Embedding, Floats, layer_tensors, unit
from .onnxfile import GraphWriter
from .safetensors import Place

MICROSOFT = "com.microsoft"


class OnnxRuntime:
    """All layers in onnxruntime on one thread. May be called from several threads at once."""

    name = "onnxruntime float32"

    def __init__(self, graph: Path, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        self._session = session(str(graph))
        self._embedding = Embedding(tensors)

    def __call__(self, texts: Sequence[Sequence[int]]) -> Floats:
        """A vector of length 1 for each text, which are given as ids, all of the same number: so nothing is padded, and
        what a text gives does not depend on the others."""
        hidden: Floats = self._session.run(None, {"embedded": self._embedding(texts)})[0]
        return unit(hidden.mean(axis=1))


def session(graph: str | bytes) -> Any:
    """A graph, from its file or its bytes, to be run on one thread. Raises whatever onnxruntime raises."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # Texts are spread over threads by the caller: that scales better than splitting one small product.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # More would join sums and norms to SkipLayerNormalization, which takes nine times as long as the two of them.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def build_graph(file: str, places: Mapping[str, Place], tensors: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """The bytes of an ONNX file with all layers, to be put beside the file of tensors, in which `places` are."""
    graph = GraphWriter(opset=17)
    x = graph.input("embedded", "float32", ["texts", "tokens", DIMS])
    for number in range(LAYERS):
        x = _Layer(graph, file, number, places, layer_tensors(tensors, number)).applied_to(x)
    graph.output(x, "float32", ["texts", "tokens", DIMS])
    return graph.save()


class _Layer:
    def __init__(
        self, graph: GraphWriter, file: str, number: int, places: Mapping[str, Place], tensors: Mapping[str, Floats]
    ) -> None:
        self._graph = graph
        self._at = f"layer{number}"
        for short, long in PARTS.items():
            name = f"encoder.layer.{number}.{long}.weight"
            graph.external(f"{self._at}.{short}.weight", file, places[name])
        for name, tensor in tensors.items():
            if not name.endswith("weight"):
                graph.constant(f"{self._at}.{name}", tensor)

    def applied_to(self, x: str) -> str:
        looks = [self._product(part, x) for part in ("query", "key", "value")]
        inputs = [*looks, f"{self._at}.look.bias"]
        seen = self._node("MultiHeadAttention", inputs, "seen", MICROSOFT, num_heads=HEADS)
        x = self._joined("attend", self._product("attend", seen), x)
        inputs = [self._product("widen", x), f"{self._at}.widen.bias"]
        wide = self._node("BiasGelu", inputs, "gelu", MICROSOFT)
        return self._joined("narrow", self._product("narrow", wide), x)

    def _product(self, part: str, x: str) -> str:
        return self._node("FusedMatMul", [x, f"{self._at}.{part}.weight"], f"{part}.product", MICROSOFT, transB=1)

    def _joined(self, part: str, y: str, x: str) -> str:
        """A product with its bias added to what it was made of, and normed."""
        at = f"{self._at}.{part}"
        total = self._node("Add", [self._node("Add", [y, f"{at}.bias"], f"{part}.biased"), x], f"{part}.joined")
        inputs = [total, f"{at}.gain", f"{at}.shift"]
        return self._node("LayerNormalization", inputs, f"{part}.normed", axis=-1, epsilon=EPSILON)

    def _node(self, kind: str, inputs: Sequence[str], output: str, domain: str = "", **attributes: int | float) -> str:
        return self._graph.node(kind, inputs, f"{self._at}.{output}", domain, **attributes)
