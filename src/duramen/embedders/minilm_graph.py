"""Builds all-MiniLM-L6-v2 as ONNX graphs, once, when the model is installed. Start with `build_graphs`.

Both graphs take the token ids of texts of one length and return a vector for each token. The float32 graph uses the
tensors in the model's own file. The int8 graph multiplies 8-bit integers:

- The input of each product has one scale, which does not depend on the text. So the vector of a text does not depend on
  the other texts of a call, and nothing is measured at run time.
- The scales come from calibration: the float32 graph embeds the lines of `calibration.txt` and returns the inputs of
  all products. The last lines repeat one word or mark, as tables and logs do. Their values are larger than those of any
  sentence.
- The rounding error is smallest if all channels of an input have about the same range. So the mean of each channel is
  subtracted, and the channel is divided by a factor. The weights and the bias compensate for both.
- The output of GELU is used without a factor, up to a limit. A few channels exceed the limit, mostly for the first
  token of a text. These channels are repeated, and each copy covers another part of their range.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from .onnx_writer import GraphWriter
from .wordpiece import WordPiece

DIMS, MAX_TOKENS = 384, 256
_LAYERS, _HEADS = 6, 12
_EPSILON = 1e-12
_MICROSOFT = "com.microsoft"

_PRODUCTS: Mapping[str, str] = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attention": "attention.output.dense",
    "intermediate": "intermediate.dense",
    "output": "output.dense",
}
"""The matrix products in a layer, and the names of their tensors in the model's file."""

_MOVED_RANGE: Mapping[str, float] = {"query": 0.75, "attention": 0.5, "intermediate": 0.75}
"""How much of a channel's range is moved from the input to the weights. Found by experiment, for all layers
together."""
_USUAL = 0.999
"""The range of a channel covers this share of its values."""
_GELU_MINIMUM, _GELU_LIMIT = -0.17, 5.0
"""The output of GELU is never below the minimum and rarely above the limit."""

Array = npt.NDArray[Any]
Place = tuple[int, str]
"""A product: the number of its layer and its name. Query, key and value have the same input, listed under "query"."""


def build_graphs(model: Path, tokenizer: WordPiece) -> tuple[bytes, bytes]:
    """The contents of the float32 and the int8 ONNX files. They must be stored in the folder of `model`, a safetensors
    file. Raises the errors of onnxruntime."""
    tensors = _Tensors(model)
    lines = Path(__file__).with_name("calibration.txt").read_text(encoding="utf-8").splitlines()
    inputs = _calibrate(tensors, [tokenizer.encode(line, MAX_TOKENS) for line in lines])
    return _Float32Graph(tensors).build(), _Int8Graph(tensors, inputs).build()


def open_session(graph: str | bytes) -> Any:
    """An onnxruntime session for a graph, given by its path or its bytes. Raises the errors of onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # The caller distributes texts over threads. That scales better than splitting one small product.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # A higher level would fuse Add and LayerNormalization to SkipLayerNormalization, which takes nine times as long.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    return onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])


class _Tensors(dict[str, Array]):
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

    def __init__(self, tensors: _Tensors) -> None:
        self._tensors = tensors
        self._graph = GraphWriter()
        self._inputs: dict[Place, str] = {}
        """The names of the inputs of the products, filled by `build`."""

    def build(self) -> bytes:
        """The bytes of the ONNX file."""
        x = self._embed(self._graph.input("ids", "int64", ["texts", "tokens"]))
        for layer in range(_LAYERS):
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


class _Float32Graph(_EncoderGraph):
    def build_for_calibration(self) -> tuple[bytes, list[Place]]:
        """The graph with the inputs of all products as additional outputs, and the products in the order of these."""
        self.build()
        for name in self._inputs.values():
            self._graph.output(name, "float32", ["texts", "tokens", "channels"])
        return self._graph.save(), list(self._inputs)

    def _multiply(self, layer: int, parts: Sequence[str], x: str) -> list[str]:
        return [self._multiply_one(f"encoder.layer.{layer}.{_PRODUCTS[part]}", x) for part in parts]

    def _multiply_one(self, name: str, x: str) -> str:
        product = self._graph.node("FusedMatMul", [x, self._external(f"{name}.weight")], _MICROSOFT, transB=1)
        return self._graph.node("Add", [product, self._constant(self._tensors[f"{name}.bias"])])


def _calibrate(tensors: _Tensors, texts: Iterable[Sequence[int]]) -> dict[Place, Array]:
    """The inputs of all products for these texts: a row for each token."""
    graph, places = _Float32Graph(tensors).build_for_calibration()
    file = tensors.path.with_name("calibration.onnx")  # in the same folder, because it refers to the model's tensors
    file.write_bytes(graph)
    try:
        session = open_session(str(file))
        runs = [session.run(None, {"ids": np.array([ids])})[1:] for ids in texts]
    finally:
        file.unlink()
    rows = (np.concatenate([one[0] for one in of_product]) for of_product in zip(*runs, strict=True))
    return dict(zip(places, rows, strict=True))


class _Scale(NamedTuple):
    """How an input is converted to integers: (x - centre) / factor / step + zero."""

    centre: Array
    factor: Array
    step: float
    zero: int


_GELU_STEP = (_GELU_LIMIT - _GELU_MINIMUM) / 255
_GELU_SCALE = _Scale(np.zeros(1), np.ones(1), _GELU_STEP, round(-_GELU_MINIMUM / _GELU_STEP))


class _Int8Graph(_EncoderGraph):
    def __init__(self, tensors: _Tensors, calibration: Mapping[Place, Array]) -> None:
        super().__init__(tensors)
        self._calibration = calibration

    def _multiply(self, layer: int, parts: Sequence[str], x: str) -> list[str]:
        weights, biases = zip(*(self._weights_and_bias(layer, part) for part in parts), strict=True)
        scale = _GELU_SCALE
        if parts[0] in _MOVED_RANGE:
            seen = self._calibration[layer, parts[0]].astype(np.float64)
            scale = _input_scale(seen, np.concatenate(weights), _MOVED_RANGE[parts[0]])
            divided = self._graph.node("Mul", [x, self._constant(1 / scale.factor)])
            x = self._graph.node("Add", [divided, self._constant(-scale.centre / scale.factor)])
        step, zero = self._constant(scale.step), self._graph.constant(np.array(scale.zero, np.uint8))
        integers = self._graph.node("QuantizeLinear", [x, step, zero])
        products = []
        for weight, bias in zip(weights, biases, strict=True):
            rounded, row_scale = _round_rows(weight * scale.factor)
            inputs = [integers, self._graph.constant(rounded.T), step, self._constant(row_scale), zero, ""]
            inputs.append(self._constant(bias + weight @ np.broadcast_to(scale.centre, weight.shape[1])))
            products.append(self._graph.node("MatMulIntegerToFloat", inputs, _MICROSOFT))
        return products

    def _weights_and_bias(self, layer: int, part: str) -> tuple[Array, Array]:
        name = f"encoder.layer.{layer}.{_PRODUCTS[part]}"
        weight, bias = (self._tensors[f"{name}.{kind}"].astype(np.float64) for kind in ("weight", "bias"))
        if part in ("intermediate", "output"):
            channels, above = _repeat_channels(self._calibration[layer, "output"].max(axis=0))
            if part == "output":
                return weight[:, channels], bias
            return weight[channels], bias[channels] - above
        return weight, bias


def _input_scale(seen: Array, weights: Array, moved: float) -> _Scale:
    """The scale of an input, from its values in the calibration."""
    centre = seen.mean(axis=0)
    input_range = np.quantile(np.abs(seen - centre), _USUAL, axis=0) + 1e-6
    weight_range = np.abs(weights).max(axis=0) + 1e-6
    factor = input_range**moved / weight_range ** (1 - moved)
    factor /= np.exp(np.log(factor).mean())
    return _Scale(centre, factor, float(np.abs((seen - centre) / factor).max()) / 127, 128)


def _round_rows(weights: Array) -> tuple[npt.NDArray[np.int8], Array]:
    """Weights as integers, and the scale of each row."""
    scale = np.abs(weights).max(axis=1) / 127
    return np.rint(weights / scale[:, None]).astype(np.int8), scale


def _repeat_channels(highest: Array) -> tuple[npt.NDArray[np.intp], Array]:
    """The channels of GELU with their copies, and the value above which each of them counts. With a limit of 5, a
    channel that reaches 12 has two copies, for the parts above 5 and above 10. This works because GELU(x) is nearly x
    for large x."""
    channels, above = list(range(len(highest))), [0.0] * len(highest)
    for channel in np.flatnonzero(highest > _GELU_LIMIT).tolist():
        limits = np.arange(_GELU_LIMIT, highest[channel], _GELU_LIMIT).tolist()
        channels += [channel] * len(limits)
        above += limits
    return np.array(channels), np.array(above)
