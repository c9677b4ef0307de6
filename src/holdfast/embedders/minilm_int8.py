"""The six layers of all-MiniLM-L6-v2 in onnxruntime, with their products of matrices in 8-bit integers.

Each token has a scale of its own, so that a text gives the same whatever it comes with. Eight bits lose less where all
numbers are of one size. So the channels of an input are shifted by their usual value, which the bias takes in, and
divided by a factor by which the weights are multiplied: neither changes the product, and both are read from what the
sentences of `calibration` put into it. Only for processors that sum such products exactly: see `exact_here`.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .minilm_numpy import DIMS, HEADS, LAYERS, Embedding, Floats, Layer, layer_tensors, unit
from .minilm_onnx import MICROSOFT, joined, session
from .onnxfile import GraphWriter

_TENDER: Mapping[str, float] = {"look": 0.75, "attend": 0.5, "widen": 0.55, "narrow": 0.5}
"""How much of its range an input hands over to the weights; found by trying, over all layers."""
_LOWEST_GELU = -0.17
_RARE = 0.999


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


class Folded(NamedTuple):
    """A product with its input shifted by `centre` and divided by `factor`: the weights in integers, a scale for each
    of their rows, and the bias."""

    centre: npt.NDArray[np.float64]
    factor: npt.NDArray[np.float64]
    weights: npt.NDArray[np.int8]
    scale: npt.NDArray[np.float64]
    bias: npt.NDArray[np.float64]


def build_int8_graph(tensors: Mapping[str, npt.NDArray[Any]], texts: Iterable[Sequence[int]]) -> bytes:
    """The bytes of an ONNX file with all layers, balanced by what these texts, given as ids, put into them."""
    graph = GraphWriter(opset=18)
    for name, value in (("signed", 1 / 127), ("unsigned", 1 / 255)):
        graph.constant(f"{name}.step", np.array(value, np.float32))
    graph.constant("signed.zero", np.array(128, np.uint8))
    graph.constant("unsigned.zero", np.array(0, np.uint8))
    graph.constant("last", np.array([-1], np.int64))
    x = graph.input("embedded", "float32", ["texts", "tokens", DIMS])
    # In float64, of which only the first half is kept: so all processors build the same file, however they sum.
    hidden: list[npt.NDArray[Any]] = [Embedding(tensors)(ids).astype(np.float64) for ids in texts]
    for number in range(LAYERS):
        layer = _Watched({name: one.astype(np.float64) for name, one in layer_tensors(tensors, number).items()})
        hidden = [layer(one) for one in hidden]
        x = _Layer(graph, number, layer.tensors, layer.folded()).applied_to(x)
    graph.output(x, "float32", ["texts", "tokens", DIMS])
    return graph.save()


class _Watched(Layer):
    """A layer that notes what goes into its products."""

    def __init__(self, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        super().__init__(tensors)
        self.tensors = tensors
        self._seen: dict[str, list[npt.NDArray[Any]]] = {part: [] for part in _TENDER}

    def product(self, part: str, x: Floats) -> Floats:
        self._seen[part].append(x)
        return super().product(part, x)

    def folded(self) -> dict[str, Folded]:
        """Its products, balanced by what was seen."""
        return {part: self._folded(part, np.concatenate(seen)) for part, seen in self._seen.items()}

    def _folded(self, part: str, seen: npt.NDArray[Any]) -> Folded:
        weights, bias = self.tensors[f"{part}.weight"], self.tensors[f"{part}.bias"]
        usual = seen.mean(axis=0)
        if part == "narrow":  # from its lowest value upwards: no bit for a sign
            usual = np.zeros_like(usual)
        reach = np.quantile(np.abs(seen - usual), _RARE, axis=0) + 1e-6
        widest = np.abs(weights).max(axis=0) + 1e-6
        factor = reach ** _TENDER[part] / widest ** (1 - _TENDER[part])
        factor /= np.exp(np.log(factor).mean())
        scale = np.abs(weights * factor).max(axis=1, keepdims=True) / 127
        whole = np.rint(weights * factor / scale).astype(np.int8)
        centre = usual + (_LOWEST_GELU if part == "narrow" else 0.0)
        return Folded(centre, factor, whole, scale[:, 0], bias + weights @ centre)


class _Layer:
    def __init__(
        self, graph: GraphWriter, number: int, tensors: Mapping[str, npt.NDArray[Any]], folded: Mapping[str, Folded]
    ) -> None:
        self._graph = graph
        self._at = f"layer{number}"
        self._folded = dict(folded)
        self._fold_attention()
        for part, fold in self._folded.items():
            self._constant(f"{part}.bias", fold.bias)
            if part != "attend":
                self._constant(f"{part}.slope", 1 / fold.factor)
                self._constant(f"{part}.offset", -fold.centre / fold.factor)
        for part in ("attend", "narrow"):
            for kind in ("gain", "shift"):
                self._constant(f"{part}.{kind}", tensors[f"{part}.{kind}"])

    def _fold_attention(self) -> None:
        """Let the values come out as the next product wants them: attention is a mean of them."""
        look, attend = self._folded["look"], self._folded["attend"]
        scale, bias = look.scale.copy(), look.bias.copy()
        scale[-DIMS:] /= attend.factor
        bias[-DIMS:] = (bias[-DIMS:] - attend.centre) / attend.factor
        self._folded["look"] = look._replace(scale=scale, bias=bias)

    def applied_to(self, x: str) -> str:
        whole, largest = self._whole("look", self._balanced("look", x))
        looks = [self._product("look", whole, largest, slice(at, at + DIMS)) for at in range(0, 3 * DIMS, DIMS)]
        inputs = [*looks, f"{self._at}.look.bias"]
        seen = self._node("MultiHeadAttention", inputs, "seen", MICROSOFT, num_heads=HEADS)
        x = joined(self._graph, f"{self._at}.attend", self._product("attend", *self._whole("attend", seen)), x)
        wide = self._product("widen", *self._whole("widen", self._balanced("widen", x)))
        wide = self._node("BiasGelu", [wide, f"{self._at}.widen.bias"], "gelu", MICROSOFT)
        narrow = self._product("narrow", *self._whole("narrow", self._balanced("narrow", wide)))
        return joined(self._graph, f"{self._at}.narrow", narrow, x)

    def _balanced(self, part: str, x: str) -> str:
        sloped = self._node("Mul", [x, f"{self._at}.{part}.slope"], f"{part}.sloped")
        return self._node("Add", [sloped, f"{self._at}.{part}.offset"], f"{part}.balanced")

    def _whole(self, part: str, x: str) -> tuple[str, str]:
        """Every token in integers, and its largest number."""
        kind = _sign(part)
        sizes = x if kind == "unsigned" else self._node("Abs", [x], f"{part}.sizes")
        largest = self._node("ReduceMax", [sizes, "last"], f"{part}.largest")
        parts = self._node("Div", [x, largest], f"{part}.parts")
        steps = [f"{kind}.step", f"{kind}.zero"]
        return self._node("QuantizeLinear", [parts, *steps], f"{part}.whole"), largest

    def _product(self, part: str, whole: str, largest: str, rows: slice = slice(None)) -> str:
        fold, kind, name = self._folded[part], _sign(part), f"{part}.{rows.start or 0}"
        weights = self._constant(f"{name}.weight", fold.weights[rows].T)
        scale = self._constant(f"{name}.scale", fold.scale[rows])
        inputs = [whole, weights, f"{kind}.step", scale, f"{kind}.zero"]
        product = self._node("MatMulIntegerToFloat", inputs, f"{name}.steps", MICROSOFT)
        return self._node("Mul", [product, largest], f"{name}.product")

    def _constant(self, name: str, array: npt.NDArray[Any]) -> str:
        kept = array if array.dtype == np.int8 else array.astype(np.float32)
        return self._graph.constant(f"{self._at}.{name}", kept)

    def _node(self, kind: str, inputs: Sequence[str], output: str, domain: str = "", **attributes: int | float) -> str:
        return self._graph.node(kind, inputs, f"{self._at}.{output}", domain, **attributes)


def _sign(part: str) -> str:
    return "unsigned" if part == "narrow" else "signed"
