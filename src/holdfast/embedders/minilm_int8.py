"""The six layers of all-MiniLM-L6-v2 in onnxruntime, with their products of matrices in 8-bit integers.

Every product has one scale for what goes into it, whatever the text is, so that a text gives the same whatever it comes
with, and nothing has to be measured on the way. Eight bits lose less where all numbers are of one size. So the channels
of an input are shifted by their usual value, which the bias takes in, and divided by a factor by which the weights are
multiplied: neither changes the product, and both are read from what the sentences of `calibration` put into it. What
comes from GELU is taken as it is, up to a limit; the few channels that go far beyond it, nearly always for the token
that begins a text, have copies of themselves for what is above. Only for processors that sum such products exactly: see
`exact_here`.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .minilm_numpy import DIMS, EPSILON, HEADS, LAYERS, Embedding, Floats, Layer, layer_tensors, unit
from .minilm_onnx import MICROSOFT, session
from .onnxfile import GraphWriter

_TENDER: Mapping[str, float] = {"look": 0.75, "attend": 0.5, "widen": 0.75}
"""How much of its range an input hands over to the weights; found by trying, over all layers."""
_RARE = 0.999
_LOWEST, _HIGHEST = -0.17, 5.0
"""What comes from GELU lies above the one, and rarely above the other."""
_ROW = 16
"""Numbers of channels are multiples of this, as products are computed in such pieces."""


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
    """A product with its input shifted by `centre` and divided by `factor`, and by `step` to give integers counted from
    `zero`: the weights in integers, a scale for each of their rows, and the bias."""

    centre: npt.NDArray[np.float64]
    factor: npt.NDArray[np.float64]
    step: float
    zero: int
    weights: npt.NDArray[np.int8]
    scale: npt.NDArray[np.float64]
    bias: npt.NDArray[np.float64]

    def rows(self, chosen: npt.NDArray[np.intp] | slice) -> Folded:
        """Only some of its outputs."""
        return self._replace(weights=self.weights[chosen], scale=self.scale[chosen], bias=self.bias[chosen])


def build_int8_graph(tensors: Mapping[str, npt.NDArray[Any]], texts: Iterable[Sequence[int]]) -> bytes:
    """The bytes of an ONNX file with all layers, balanced by what these texts, given as ids, put into them."""
    graph = GraphWriter(opset=20)
    x = graph.input("embedded", "float32", ["texts", "tokens", DIMS])
    # In float64, of which only the first half is kept: so all processors build the same file, however they sum.
    hidden: list[npt.NDArray[Any]] = [Embedding(tensors)(ids).astype(np.float64) for ids in texts]
    before: _Summed | None = None
    for number in range(LAYERS):
        layer = _Watched({name: one.astype(np.float64) for name, one in layer_tensors(tensors, number).items()})
        hidden = [layer(one) for one in hidden]
        x, before = _Layer(graph, number, layer.tensors, layer.folded()).applied_to(x, before)
    graph.output(x, "float32", ["texts", "tokens", DIMS])
    return graph.save()


class _Watched(Layer):
    """A layer that notes what goes into its products."""

    def __init__(self, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        super().__init__(tensors)
        self.tensors = tensors
        self._seen: dict[str, list[npt.NDArray[Any]]] = {part: [] for part in (*_TENDER, "narrow")}

    def product(self, part: str, x: Floats) -> Floats:
        self._seen[part].append(x)
        return super().product(part, x)

    def folded(self) -> dict[str, Folded]:
        """Its products, balanced by what was seen."""
        folded = {part: self._balanced(part, np.concatenate(self._seen[part])) for part in _TENDER}
        chosen, above = _copies(np.concatenate(self._seen["narrow"]).max(axis=0))
        widen = folded["widen"].rows(chosen)
        return folded | {"widen": widen._replace(bias=widen.bias - above), "narrow": self._narrow(chosen)}

    def _balanced(self, part: str, seen: npt.NDArray[Any]) -> Folded:
        weights, tender = self.tensors[f"{part}.weight"], _TENDER[part]
        usual = seen.mean(axis=0)
        reach = np.quantile(np.abs(seen - usual), _RARE, axis=0) + 1e-6
        widest = np.abs(weights).max(axis=0) + 1e-6
        factor = reach**tender / widest ** (1 - tender)
        factor /= np.exp(np.log(factor).mean())
        step = float(np.abs((seen - usual) / factor).max()) / 127
        bias = self.tensors[f"{part}.bias"] + weights @ usual
        return Folded(usual, factor, step, 128, *_whole(weights * factor), bias)

    def _narrow(self, chosen: npt.NDArray[np.intp]) -> Folded:
        weights = self.tensors["narrow.weight"][:, chosen]
        step = (_HIGHEST - _LOWEST) / 255
        centre, factor = np.zeros(len(chosen)), np.ones(len(chosen))
        return Folded(centre, factor, step, round(-_LOWEST / step), *_whole(weights), self.tensors["narrow.bias"])


def _whole(weights: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float64]]:
    """Weights in integers, and a scale for each row."""
    scale = np.abs(weights).max(axis=1) / 127
    return np.rint(weights / scale[:, None]).astype(np.int8), scale


def _copies(highest: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.float64]]:
    """The channels of GELU and their copies, and above which value each of them counts. With a limit of 5, one that
    reaches 12 has two copies, for what is above 5 and above 10: GELU leaves large values as they are, and an integer
    cannot stand for more than the limit. The last row is filled up with copies that never count."""
    chosen, above = list(range(len(highest))), [0.0] * len(highest)
    for channel in np.flatnonzero(highest > _HIGHEST).tolist():
        more = np.arange(_HIGHEST, highest[channel], _HIGHEST).tolist()
        chosen += [channel] * len(more)
        above += more
    spare = -len(chosen) % _ROW
    return np.array(chosen + [0] * spare), np.array(above + [1e3] * spare)


class _Summed(NamedTuple):
    """A sum that is still to be normed, and how."""

    part: str
    name: str
    gain: npt.NDArray[np.float64]
    shift: npt.NDArray[np.float64]


class _Layer:
    def __init__(
        self, graph: GraphWriter, number: int, tensors: Mapping[str, npt.NDArray[Any]], folded: Mapping[str, Folded]
    ) -> None:
        self._graph = graph
        self._at = f"layer{number}"
        self._tensors = tensors
        self._folded = dict(folded)
        self._fold_attention()

    def _fold_attention(self) -> None:
        """Let the values come out as the next product wants them: attention is a mean of them."""
        look, attend = self._folded["look"], self._folded["attend"]
        scale, bias = look.scale.copy(), look.bias.copy()
        scale[-DIMS:] /= attend.factor
        bias[-DIMS:] = (bias[-DIMS:] - attend.centre) / attend.factor
        self._folded["look"] = look._replace(scale=scale, bias=bias)

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
        return _Summed(part, total, self._tensors[f"{part}.gain"], self._tensors[f"{part}.shift"])

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
