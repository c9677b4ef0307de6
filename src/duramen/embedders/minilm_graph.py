"""Builds all-MiniLM-L6-v2 as ONNX graphs, once, when the model is installed. Start with `build_graphs`.

Both graphs take the token ids of texts of one length and return a vector for each token. The float32 graph uses the
tensors in the model's own file. The int8 graph multiplies 8-bit integers. Both have the same bytes on every machine: no
step depends on the order in which a processor adds. So their SHA-256 is known in advance.

- The input of each product has one scale, which does not depend on the text. So the vector of a text does not depend on
  the other texts of a call, and nothing is measured at run time.
- The scales are in `calibration.json`. `tools/calibrate_minilm.py` measured them.
- The rounding error is smallest if all channels of an input have about the same range. So the mean of each channel is
  subtracted, and the channel is divided by a factor. The weights and the bias compensate for both.
- The output of GELU is used without a factor, up to a limit. A few channels exceed the limit, mostly for the first
  token of a text. These channels are repeated, and each copy covers another part of their range.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from .onnx_writer import GraphWriter

DIMS, MAX_TOKENS = 384, 256
LAYERS, _HEADS = 6, 12
_EPSILON = 1e-12
CALIBRATION = Path(__file__).with_name("calibration.json")
_MICROSOFT = "com.microsoft"

PRODUCTS: Mapping[str, str] = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attention": "attention.output.dense",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
}
"""The matrix products in a layer, and the names of their tensors in the model's file."""

SCALED = ("query", "attention", "intermediate")
"""The products whose input has a scale of its own."""
_GELU_MINIMUM, GELU_LIMIT = -0.17, 5.0
"""The output of GELU is never below the minimum and rarely above the limit."""

Array = npt.NDArray[Any]
Place = tuple[int, str]
"""A product: the number of its layer and its name. Query, key and value have the same input, listed under "query"."""


def build_graphs(model: Path) -> tuple[bytes, bytes]:
    """The contents of the float32 and the int8 ONNX files. They must be stored in the folder of `model`, a safetensors
    file. They are the same on every machine."""
    tensors = Tensors(model)
    return Float32Graph(tensors).build(), _Int8Graph(tensors, load_calibration()).build()


def open_session(graph: bytes, folder: Path | None = None) -> Any:
    """An onnxruntime session for a graph, whose tensors may be in a file of `folder`. Raises the errors of
    onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # The caller distributes texts over threads. That scales better than splitting one small product.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # A higher level would fuse Add and LayerNormalization to SkipLayerNormalization, which takes nine times as long.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    if folder is not None:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


class Tensors(dict[str, Array]):
    """The model's tensors by name, and the offset of each in the file."""

    def __init__(self, path: Path) -> None:
        with safe_open(path, "numpy") as file:
            super().__init__((name, file.get_tensor(name)) for name in file.offset_keys())
        self.path = path
        self.offsets: dict[str, int] = {}
        # The format allows no gaps: the tensors fill the file after its header.
        offset = path.stat().st_size - sum(tensor.nbytes for tensor in self.values())
        for name, tensor in self.items():
            self.offsets[name] = offset
            offset += tensor.nbytes


class _EncoderGraph(ABC):
    """The model as a graph. Subclasses decide how matrices are multiplied."""

    def __init__(self, tensors: Tensors) -> None:
        self._tensors = tensors
        self._graph = GraphWriter()
        self._inputs: dict[Place, str] = {}
        """The names of the inputs of the products, filled by `build`."""

    def build(self) -> bytes:
        """The bytes of the ONNX file."""
        x = self._embed(self._graph.input("ids", "int64", ["texts", "tokens"]))
        for layer in range(LAYERS):
            x = self._apply_layer(layer, x)
        # The caller computes the means over tokens, because ReduceMean sums one text in another order than several.
        self._graph.output(x, "float32", ["texts", "tokens", DIMS])
        return self._graph.save()

    @abstractmethod
    def _multiply(self, layer: int, parts: Sequence[str], x: str) -> list[str]:
        """`x` multiplied by the weights of each part, plus the bias of the part."""

    def _embed(self, ids: str) -> str:
        words = self._graph.node("Gather", [self._external("embeddings.word_embeddings.weight"), ids])
        token_type = self._tensors["embeddings.token_type_embeddings.weight"][0]
        positions = self._tensors["embeddings.position_embeddings.weight"][:MAX_TOKENS] + token_type
        tokens = self._graph.node("Shape", [ids], start=1, end=2)
        slice_inputs = [self._graph.constant(positions), self._graph.constant(np.array([0])), tokens]
        return self._add_and_norm("embeddings", [words, self._graph.node("Slice", slice_inputs)])

    def _apply_layer(self, layer: int, x: str) -> str:
        heads = self._product(layer, ("query", "key", "value"), x)
        seen = self._graph.node("MultiHeadAttention", heads, _MICROSOFT, num_heads=_HEADS)
        attention = self._product(layer, ("attention",), seen)
        x = self._add_and_norm(f"encoder.layer.{layer}.attention.output", [*attention, x])
        wide = self._graph.node("Gelu", self._product(layer, ("intermediate",), x))
        return self._add_and_norm(f"encoder.layer.{layer}.output", [*self._product(layer, ("output",), wide), x])

    def _product(self, layer: int, parts: Sequence[str], x: str) -> list[str]:
        self._inputs[layer, parts[0]] = x
        return self._multiply(layer, parts, x)

    def _add_and_norm(self, name: str, summands: Sequence[str]) -> str:
        total = self._graph.node("Add", summands)
        gain, shift = (self._constant(self._tensors[f"{name}.LayerNorm.{kind}"]) for kind in ("weight", "bias"))
        return self._graph.node("LayerNormalization", [total, gain, shift], axis=-1, epsilon=_EPSILON)

    def _external(self, name: str) -> str:
        return self._graph.external(self._tensors[name], self._tensors.path.name, self._tensors.offsets[name])

    def _constant(self, array: Array | float) -> str:
        return self._graph.constant(np.asarray(array, np.float32))


class Float32Graph(_EncoderGraph):
    def _multiply(self, layer: int, parts: Sequence[str], x: str) -> list[str]:
        return [self._multiply_one(f"encoder.layer.{layer}.{PRODUCTS[part]}", x) for part in parts]

    def _multiply_one(self, name: str, x: str) -> str:
        product = self._graph.node("FusedMatMul", [x, self._external(f"{name}.weight")], _MICROSOFT, transB=1)
        return self._graph.node("Add", [product, self._constant(self._tensors[f"{name}.bias"])])


class Scale(NamedTuple):
    """How an input is converted to integers: (x - centre) / factor / step + zero."""

    centre: Array
    factor: Array
    step: float
    zero: int


class Calibration(NamedTuple):
    """The scale of each product in `SCALED`, and the highest output of each channel of GELU by layer."""

    scales: Mapping[Place, Scale]
    highest: Sequence[Array]


def load_calibration(path: Path = CALIBRATION) -> Calibration:
    """The calibration that is part of this package."""
    packed = msgspec.json.decode(path.read_bytes(), type=dict[str, bytes])
    found = {name: np.frombuffer(values, "<f4").astype(np.float64) for name, values in packed.items()}
    scales = {}
    for layer in range(LAYERS):
        for part in SCALED:
            centre, factor, step = (found[f"{layer}.{part}.{kind}"] for kind in ("centre", "factor", "step"))
            scales[layer, part] = Scale(centre, factor, float(step[0]), 128)
    return Calibration(scales, [found[f"{layer}.highest"] for layer in range(LAYERS)])


_GELU_STEP = (GELU_LIMIT - _GELU_MINIMUM) / 255
_GELU_SCALE = Scale(np.zeros(1), np.ones(1), _GELU_STEP, round(-_GELU_MINIMUM / _GELU_STEP))


class _Int8Graph(_EncoderGraph):
    def __init__(self, tensors: Tensors, calibration: Calibration) -> None:
        super().__init__(tensors)
        self._calibration = calibration

    def _multiply(self, layer: int, parts: Sequence[str], x: str) -> list[str]:
        weights, biases = zip(*(self._weights_and_bias(layer, part) for part in parts), strict=True)
        scale = _GELU_SCALE
        if parts[0] in SCALED:
            scale = self._calibration.scales[layer, parts[0]]
            divided = self._graph.node("Mul", [x, self._constant(1 / scale.factor)])
            x = self._graph.node("Add", [divided, self._constant(-scale.centre / scale.factor)])
        step, zero = self._constant(scale.step), self._graph.constant(np.array(scale.zero, np.uint8))
        integers = self._graph.node("QuantizeLinear", [x, step, zero])
        products = []
        for weight, bias in zip(weights, biases, strict=True):
            rounded, row_scale = _round_rows(weight * scale.factor)
            inputs = [integers, self._graph.constant(rounded.T), step, self._constant(row_scale), zero, ""]
            inputs.append(self._constant(bias + _product_in_order(weight, scale.centre)))
            products.append(self._graph.node("MatMulIntegerToFloat", inputs, _MICROSOFT))
        return products

    def _weights_and_bias(self, layer: int, part: str) -> tuple[Array, Array]:
        name = f"encoder.layer.{layer}.{PRODUCTS[part]}"
        weight, bias = (self._tensors[f"{name}.{kind}"].astype(np.float64) for kind in ("weight", "bias"))
        if part in ("intermediate", "output"):
            channels, above = repeat_channels(self._calibration.highest[layer])
            if part == "output":
                return weight[:, channels], bias
            return weight[channels], bias[channels] - above
        return weight, bias


def _product_in_order(weight: Array, vector: Array) -> Array:
    """The matrix product, added up from left to right, as on every other machine. `@` adds in another order on each."""
    total: Array = (weight * vector).cumsum(axis=1)[:, -1]
    return total


def _round_rows(weights: Array) -> tuple[npt.NDArray[np.int8], Array]:
    """Weights as integers, and the scale of each row."""
    scale = np.abs(weights).max(axis=1) / 127
    return np.rint(weights / scale[:, None]).astype(np.int8), scale


def repeat_channels(highest: Array) -> tuple[npt.NDArray[np.intp], Array]:
    """The channels of GELU with their copies, and the value above which each of them counts. With a limit of 5, a
    channel that reaches 12 has two copies, for the parts above 5 and above 10. This works because GELU(x) is nearly x
    for large x."""
    channels, above = list(range(len(highest))), [0.0] * len(highest)
    for channel in np.flatnonzero(highest > GELU_LIMIT).tolist():
        limits = np.arange(GELU_LIMIT, highest[channel], GELU_LIMIT).tolist()
        channels += [channel] * len(limits)
        above += limits
    return np.array(channels), np.array(above)
