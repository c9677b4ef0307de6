"""The six layers of all-MiniLM-L6-v2 in NumPy, in float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

LAYERS, HEADS, DIMS, LONGEST = 6, 12, 384, 256
EPSILON = 1e-12
PARTS: Mapping[str, str] = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "attend": "attention.output.dense",
    "widen": "intermediate.dense",
    "narrow": "output.dense",
}
"""The products of matrices in a layer, and what the model's file calls them."""
_SCALE = np.float32((DIMS // HEADS) ** -0.5)


class Embedding:
    """The model's first stage: ids to vectors. Rows come from the file when they are needed."""

    def __init__(self, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        self._words: Floats = tensors["embeddings.word_embeddings.weight"]
        kinds = tensors["embeddings.token_type_embeddings.weight"]
        self.places: Floats = tensors["embeddings.position_embeddings.weight"][:LONGEST] + kinds[0]
        self.gain: Floats = np.array(tensors["embeddings.LayerNorm.weight"])
        self.shift: Floats = np.array(tensors["embeddings.LayerNorm.bias"])

    def __call__(self, ids: Sequence[int] | Sequence[Sequence[int]]) -> Floats:
        """Of one text, or of several with the same number of ids."""
        words = self._words[np.asarray(ids)]
        return layer_norm(words + self.places[: words.shape[-2]], self.gain, self.shift)


class NumpyRuntime:
    """All layers. Exact to what float32 allows."""

    name = "numpy float32"

    def __init__(self, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
        self._embedding = Embedding(tensors)
        self._layers = [Layer(layer_tensors(tensors, number)) for number in range(LAYERS)]

    def __call__(self, texts: Sequence[Sequence[int]]) -> Floats:
        """A vector of length 1 for each text, which are given as ids, all of the same number."""
        return np.stack([self._one(ids) for ids in texts])

    def _one(self, ids: Sequence[int]) -> Floats:
        hidden = self._embedding(ids)
        for layer in self._layers:
            hidden = layer(hidden)
        return unit(hidden.mean(axis=0))


class Layer:
    """One of the six, on the tokens of one text."""

    def __init__(self, tensors: Mapping[str, Floats]) -> None:
        self._t = tensors

    def __call__(self, x: Floats) -> Floats:
        x = self._normed("attend", self.product("attend", self._attention(x)) + x)
        return self._normed("narrow", self.product("narrow", gelu(self.product("widen", x))) + x)

    def product(self, part: str, x: Floats) -> Floats:
        """One of its products of matrices."""
        product: Floats = x @ self._t[f"{part}.weight"].T + self._t[f"{part}.bias"]
        return product

    def _normed(self, part: str, x: Floats) -> Floats:
        return layer_norm(x, self._t[f"{part}.gain"], self._t[f"{part}.shift"])

    def _attention(self, x: Floats) -> Floats:
        heads = self.product("look", x).reshape(len(x), 3, HEADS, -1).transpose(1, 2, 0, 3)
        scores = heads[0] @ heads[1].transpose(0, 2, 1) * _SCALE
        np.exp(scores - scores.max(axis=-1, keepdims=True), out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        seen: Floats = (scores @ heads[2]).transpose(1, 0, 2).reshape(len(x), DIMS)
        return seen


def layer_tensors(tensors: Mapping[str, npt.NDArray[Any]], number: int) -> dict[str, Floats]:
    """One layer's weights under short names: look (query, key and value at once), attend, widen, narrow."""
    at = f"encoder.layer.{number}."
    named = {}
    for kind in ("weight", "bias"):
        parts = {short: tensors[f"{at}{long}.{kind}"] for short, long in PARTS.items()}
        named[f"look.{kind}"] = np.concatenate([parts.pop(part) for part in ("query", "key", "value")])
        named |= {f"{short}.{kind}": tensor for short, tensor in parts.items()}
    for short, long in (("attend", "attention.output"), ("narrow", "output")):
        named[f"{short}.gain"] = tensors[f"{at}{long}.LayerNorm.weight"]
        named[f"{short}.shift"] = tensors[f"{at}{long}.LayerNorm.bias"]
    return named


def layer_norm(x: Floats, gain: Floats, shift: Floats) -> Floats:
    """Each row with mean 0 and variance 1, then scaled and shifted."""
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    normed: Floats = centred / np.sqrt(variance + np.float32(EPSILON)) * gain + shift
    return normed


def gelu(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """x times the chance that a normal variable is below it; the error function as in Abramowitz and Stegun 7.1.26,
    which is exact to 1.5e-7, about what float32 holds."""
    z = np.abs(x) * np.float32(0.5**0.5)
    t = 1 / (1 + np.float32(0.3275911) * z)
    tail = np.zeros_like(t)
    for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        tail = (tail + np.float32(factor)) * t
    tail *= np.exp(-z * z) * np.float32(0.5)
    activated: npt.NDArray[Any] = x * np.where(x > 0, 1 - tail, tail)
    return activated


def unit(vectors: Floats) -> Floats:
    """A vector, or each of several, with length 1."""
    lengths = np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), np.float32(EPSILON))
    units: Floats = vectors / lengths
    return units
