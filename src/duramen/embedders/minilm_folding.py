"""The products of the six layers of all-MiniLM-L6-v2 in 8-bit integers.

Every product has one scale for what goes into it, whatever the text is, so that a text gives the same whatever it comes
with, and nothing has to be measured on the way. Eight bits lose less where all numbers are of one size. So the channels
of an input are shifted by their usual value, which the bias takes in, and divided by a factor by which the weights are
multiplied: neither changes the product, and both are read from what the sentences of `calibration` put into it. What
comes from GELU is taken as it is, up to a limit; the few channels that go far beyond it, nearly always for the token
that begins a text, have copies of themselves for what is above.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .minilm_numpy import DIMS, LAYERS, Embedding, Floats, Layer, layer_tensors

_TENDER: Mapping[str, float] = {"look": 0.75, "attend": 0.5, "widen": 0.75}
"""How much of its range an input hands over to the weights; found by trying, over all layers."""
_RARE = 0.999
_LOWEST, _HIGHEST = -0.17, 5.0
"""What comes from GELU lies above the one, and rarely above the other."""
GELU_STEP = (_HIGHEST - _LOWEST) / 255
GELU_ZERO = round(-_LOWEST / GELU_STEP)
"""What 1 is in integers after GELU, and what 0 is."""
_ROW = 16
"""Numbers of channels are multiples of this, as products are computed in such pieces."""


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


class FoldedLayer(NamedTuple):
    """A layer: its products (look, attend, widen and narrow), and by `attend.gain`, `narrow.shift` and the like how
    their sums with what was there before are normed."""

    products: Mapping[str, Folded]
    norms: Mapping[str, npt.NDArray[np.float64]]


def folded_layers(tensors: Mapping[str, npt.NDArray[Any]], texts: Iterable[Sequence[int]]) -> Iterator[FoldedLayer]:
    """All layers, balanced by what these texts, given as ids, put into them."""
    # In float64, of which only the first half is kept: so all processors build the same, however they sum.
    hidden: list[npt.NDArray[Any]] = [Embedding(tensors)(ids).astype(np.float64) for ids in texts]
    for number in range(LAYERS):
        layer = _Watched({name: one.astype(np.float64) for name, one in layer_tensors(tensors, number).items()})
        hidden = [layer(one) for one in hidden]
        norms = {name: tensor for name, tensor in layer.tensors.items() if name.endswith((".gain", ".shift"))}
        yield FoldedLayer(layer.folded(), norms)


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
        folded["look"] = _look_for(folded["look"], folded["attend"])
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
        centre, factor = np.zeros(len(chosen)), np.ones(len(chosen))
        return Folded(centre, factor, GELU_STEP, GELU_ZERO, *_whole(weights), self.tensors["narrow.bias"])


def _look_for(look: Folded, attend: Folded) -> Folded:
    """Let the values come out as the next product wants them: attention is a mean of them."""
    scale, bias = look.scale.copy(), look.bias.copy()
    scale[-DIMS:] /= attend.factor
    bias[-DIMS:] = (bias[-DIMS:] - attend.centre) / attend.factor
    return look._replace(scale=scale, bias=bias)


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
