"""The six layers of all-MiniLM-L6-v2 in 8-bit integers (see `minilm_folding`), compiled: several times as fast as
anything else here. It is there if duramen was compiled when it was installed, and for processors with AVX-512 VNNI.

The file of the layers holds what `_layers.c` reads, in that order: every array begins at a multiple of 64 bytes, and
weights lie as the instructions want them, four numbers of a channel side by side, 64 channels in a panel.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .minilm_folding import GELU_STEP, GELU_ZERO, Folded, FoldedLayer
from .minilm_numpy import DIMS, HEADS, Embedding, Floats, gelu

try:
    from . import _layers
except ImportError:  # there was no compiler when this was installed
    _layers = None  # type: ignore[assignment]

_MAGIC = 0x314C4648
_ALIGNMENT, _PANEL, _TOGETHER = 64, 64, 4
_SHARPNESS = (DIMS // HEADS) ** -0.5 / np.log(2)
"""By what queries are scaled: attention is computed with powers of two."""
_MANY = 448
"""Tokens that are computed together: the weights should be of use for many, and what is between two products should
fit beside them in a core's own cache."""
_STEPS, _BEND = 32, 4.0
"""Pieces of a curve, each a parabola, that stand for GELU up to this distance from 0."""


class CompiledRuntime:
    """All layers. May be called from several threads at once. Texts may be of different lengths."""

    name = "compiled int8"

    def __init__(self, layers: Path, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        """Raises OSError or ValueError if the file of the layers is not what was built."""
        self._layers = np.memmap(layers, dtype=np.uint8, mode="r")
        self._words = np.ascontiguousarray(tensors["embeddings.word_embeddings.weight"], dtype=np.float32)
        self([[0]])
        if zlib.crc32(self._layers[_ALIGNMENT:].data) != self._layers[:_ALIGNMENT].view(np.uint32)[-1]:
            raise ValueError(f"{layers.name} is damaged")

    def __call__(self, texts: Sequence[Sequence[int]], threads: int = 1) -> Floats:
        """A vector of length 1 for each text, which are given as ids."""
        lengths = np.fromiter(map(len, texts), np.int32, len(texts))
        ids = np.fromiter(chain.from_iterable(texts), np.int32, int(lengths.sum()))
        rows = np.empty((len(texts), DIMS), np.float32)
        # As many groups for each thread, of about the same size.
        groups = threads * max(math.ceil(len(ids) / _MANY / threads), 1)
        turn = np.zeros(1, np.int64)

        def work(_: int) -> None:
            _layers.embed(self._layers, self._words, ids, lengths, rows, groups, turn)

        if threads > 1:
            with suppress(RuntimeError), ThreadPoolExecutor(threads) as pool:  # none at the end of the interpreter
                list(pool.map(work, range(threads)))
        work(0)  # what is left
        return rows


def compiled_here() -> bool:
    """Whether duramen was compiled, and this processor has what that needs."""
    return _layers is not None and _layers.can_embed()


def build_layers(embedding: Embedding, layers: Sequence[FoldedLayer]) -> bytes:
    """The bytes of the file of all layers."""
    header = np.zeros(_ALIGNMENT // 4, np.int32)
    header[:2] = _MAGIC, len(layers)
    header[2] = np.float32(_BEND / _STEPS / GELU_STEP).view(np.int32)
    header[3 : 3 + len(layers)] = [len(layer.products["widen"].weights) for layer in layers]
    looks = [layer.products["look"] for layer in layers]
    arrays: list[npt.NDArray[Any]] = [_curve(), embedding.places, *_norm(embedding.gain, embedding.shift, looks[0])]
    for layer, following in zip(layers, [*looks[1:], None], strict=True):
        products, norms = layer
        arrays += _product(_interleaved(products["look"], products["attend"]))
        arrays += _product(products["attend"])
        arrays += _norm(norms["attend.gain"], norms["attend.shift"], products["widen"])
        arrays += [*_product(_in_steps(products["widen"])), *_product(products["narrow"])]
        arrays += _norm(norms["narrow.gain"], norms["narrow.shift"], following)
    sections = b"".join(_section(array) for array in arrays)
    header[-1] = np.uint32(zlib.crc32(sections)).view(np.int32)
    return _section(header) + sections


def _section(array: npt.NDArray[Any]) -> bytes:
    raw = (array if array.dtype.kind == "i" else array.astype(np.float32)).tobytes()
    return raw + bytes(-len(raw) % _ALIGNMENT)


def _curve() -> npt.NDArray[np.float64]:
    """By how much GELU is less than the larger of its input and 0, the same on both sides of 0; in the integers that
    are after it, from what 0 is there. The factors of the squares of all pieces, those of their inputs, the rest."""
    # Where a parabola has to meet a curve to stay nearest to it.
    a, b, c = (1 - 0.75**0.5) / 2, 0.5, (1 + 0.75**0.5) / 2
    starts = np.arange(_STEPS, dtype=np.float64)
    at_a, at_b, at_c = ((gelu(-(starts + part) * _BEND / _STEPS) / GELU_STEP + GELU_ZERO) for part in (a, b, c))
    first, second = (at_b - at_a) / (b - a), (at_c - at_b) / (c - b)
    square = (second - first) / (c - a)
    return np.stack([square, first - square * (a + b), at_a - first * a + square * a * b])


def _norm(gain: npt.NDArray[Any], shift: npt.NDArray[Any], into: Folded | None) -> list[npt.NDArray[Any]]:
    """How a sum is normed, and how for the integers that go into a product."""
    if into is None:
        return [gain, shift, np.zeros(DIMS), np.zeros(DIMS)]
    return [gain, shift, gain / into.factor / into.step, (shift - into.centre) / into.factor / into.step + into.zero]


def _interleaved(look: Folded, attend: Folded) -> Folded:
    """Queries, keys and values of the same two heads side by side; queries scaled for attention, and values in the
    integers of the next product: attention is a mean of them."""
    scale, bias = look.scale.copy(), look.bias.copy()
    scale[:DIMS] *= _SHARPNESS
    bias[:DIMS] *= _SHARPNESS
    scale[-DIMS:] /= attend.step
    bias[-DIMS:] = bias[-DIMS:] / attend.step + attend.zero
    order = np.arange(3 * DIMS).reshape(3, -1, _PANEL).transpose(1, 0, 2).ravel()
    return look._replace(scale=scale, bias=bias).rows(order)


def _in_steps(widen: Folded) -> Folded:
    """With what goes into GELU in steps of its curve."""
    return widen._replace(scale=widen.scale * _STEPS / _BEND, bias=widen.bias * _STEPS / _BEND)


def _product(folded: Folded) -> list[npt.NDArray[Any]]:
    """What its sums begin with, as the integers are not counted from 0; scale, bias and weights."""
    start = -folded.zero * folded.weights.astype(np.int32).sum(axis=1)
    width, depth = folded.weights.shape
    panels = [folded.weights[at : at + _PANEL] for at in range(0, width, _PANEL)]
    packed = [one.reshape(len(one), depth // _TOGETHER, _TOGETHER).transpose(1, 0, 2).ravel() for one in panels]
    return [start.astype(np.int32), folded.scale * folded.step, folded.bias, np.concatenate(packed)]
