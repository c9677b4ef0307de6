"""The six layers of all-MiniLM-L6-v2 in onnxruntime, in float32, one text at a time.

The graph is written here, with NumPy alone, and names the places of the large tensors in the model's own file: nothing
is converted, and nothing is on the disk twice. It is in float32 on purpose. In 8-bit integers (a scale for each row of
the input, balanced weights) it took two thirds of the time and found 0.012 less of what it should; docs/embedders.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy.typing as npt

from .minilm_numpy import DIMS, EPSILON, HEADS, LAYERS, PARTS, Embedding, Floats, layer_tensors, unit
from .onnxfile import GraphWriter
from .safetensors import Place

_MICROSOFT = "com.microsoft"


class OnnxRuntime:
    """All layers in onnxruntime on one thread. May be called from several threads at once."""

    name = "onnxruntime float32"

    def __init__(self, graph: Path, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        # Texts are spread over threads by the caller: that scales better than splitting one small product.
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
        self._embedding = Embedding(tensors)

    def __call__(self, ids: Sequence[int]) -> Floats:
        """The text's vector, of length 1."""
        hidden: Floats = self._session.run(None, {"embedded": self._embedding(ids)[None]})[0][0]
        return unit(hidden.mean(axis=0))


def build_graph(file: str, places: Mapping[str, Place], tensors: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """The bytes of an ONNX file with all layers, to be put beside the file of tensors, in which `places` are."""
    graph = GraphWriter(opset=17)
    x = graph.input("embedded", "float32", [1, "n", DIMS])
    for number in range(LAYERS):
        x = _Layer(graph, file, number, places, layer_tensors(tensors, number)).applied_to(x)
    graph.output(x, "float32", [1, "n", DIMS])
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
        seen = self._node("MultiHeadAttention", [*looks, f"{self._at}.look.bias"], "seen", num_heads=HEADS)
        x = self._joined("attend", self._product("attend", seen), x)
        wide = self._node("BiasGelu", [self._product("widen", x), f"{self._at}.widen.bias"], "gelu")
        return self._joined("narrow", self._product("narrow", wide), x)

    def _product(self, part: str, x: str) -> str:
        return self._node("FusedMatMul", [x, f"{self._at}.{part}.weight"], f"{part}.product", transB=1)

    def _joined(self, part: str, y: str, x: str) -> str:
        inputs = [y, x, *(f"{self._at}.{part}.{kind}" for kind in ("gain", "shift", "bias"))]
        return self._node("SkipLayerNormalization", inputs, f"{part}.normed", epsilon=EPSILON)

    def _node(self, kind: str, inputs: Sequence[str], output: str, **attributes: int | float) -> str:
        return self._graph.node(kind, inputs, f"{self._at}.{output}", _MICROSOFT, **attributes)
