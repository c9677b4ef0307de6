"""Measures the scales of the int8 graph of all-MiniLM-L6-v2, and writes them for the package.

    python tools/calibrate_minilm.py

The float32 graph embeds the lines of `minilm_calibration.txt` and returns the inputs of all products. The last lines
repeat one word or mark, as tables and logs do. Their values are larger than those of any sentence. The scales differ a
little from machine to machine, so they are measured once. After a change, put the new SHA-256 of the graphs into
`weights.py`, and increase its `_BUILD`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from duramen.embedders.minilm_graph import (
    CALIBRATION,
    GELU_LIMIT,
    LAYERS,
    MAX_TOKENS,
    PRODUCTS,
    Float32Graph,
    Place,
    Tensors,
    build_graphs,
    open_session,
)
from duramen.embedders.weights import find_model
from duramen.embedders.wordpiece import WordPiece

MOVED_RANGE: Mapping[str, float] = {"query": 0.75, "attention": 0.5, "intermediate": 0.75}
"""How much of a channel's range is moved from the input to the weights. Found by experiment, for all layers
together."""
USUAL = 0.999
"""The range of a channel covers this share of its values."""
Array = npt.NDArray[Any]


class CalibrationGraph(Float32Graph):
    """The float32 graph with the inputs of all products as additional outputs."""

    def build_for_calibration(self) -> tuple[bytes, list[Place]]:
        """The bytes of the file, and the products in the order of the additional outputs."""
        self.build()
        for name in self._inputs.values():
            self._graph.output(name, "float32", ["texts", "tokens", "channels"])
        return self._graph.save(), list(self._inputs)


def measure(tensors: Tensors, texts: Iterable[Sequence[int]]) -> dict[Place, Array]:
    """The inputs of all products for these texts: a row for each token."""
    graph, places = CalibrationGraph(tensors).build_for_calibration()
    session = open_session(graph, tensors.path.parent)
    runs = [session.run(None, {"ids": np.array([ids])})[1:] for ids in texts]
    rows = (np.concatenate([one[0] for one in of_product]) for of_product in zip(*runs, strict=True))
    return dict(zip(places, rows, strict=True))


def input_scale(seen: Array, weights: Array, moved: float) -> dict[str, Array]:
    """The scale of an input, from its values in the calibration. It covers all of these values."""
    centre = seen.mean(axis=0)
    input_range = np.quantile(np.abs(seen - centre), USUAL, axis=0) + 1e-6
    weight_range = np.abs(weights).max(axis=0) + 1e-6
    factor = input_range**moved / weight_range ** (1 - moved)
    factor /= np.exp(np.log(factor).mean())
    return {"centre": centre, "factor": factor, "step": np.abs((seen - centre) / factor).max(keepdims=True)[0] / 127}


def calibration(tensors: Tensors, inputs: Mapping[Place, Array]) -> dict[str, Array]:
    """The tensors of the file."""
    found: dict[str, Array] = {}
    for layer in range(LAYERS):
        for part, moved in MOVED_RANGE.items():
            parts = ("query", "key", "value") if part == "query" else (part,)
            weights = [tensors[f"encoder.layer.{layer}.{PRODUCTS[one]}.weight"] for one in parts]
            # A channel of GELU that is repeated has the same weights, so it changes no range.
            seen = inputs[layer, part].astype(np.float64)
            scale = input_scale(seen, np.concatenate(weights).astype(np.float64), moved)
            found |= {f"{layer}.{part}.{kind}": value.astype(np.float32) for kind, value in scale.items()}
        highest = inputs[layer, "output"].max(axis=0)
        found[f"{layer}.highest"] = np.where(highest > GELU_LIMIT, highest, 0).astype(np.float32)
    return found


def main() -> None:
    model = find_model()
    assert model is not None, "run `duramen model install` first"
    tokenizer = WordPiece.load(model.tokenizer)
    lines = Path(__file__).with_name("minilm_calibration.txt").read_text(encoding="utf-8").splitlines()
    tensors = Tensors(model.weights)
    inputs = measure(tensors, [tokenizer.encode(line, MAX_TOKENS) for line in lines])
    measured = {name: values.astype("<f4").tobytes() for name, values in sorted(calibration(tensors, inputs).items())}
    CALIBRATION.write_bytes(msgspec.json.encode(measured).replace(b'","', b'",\n"') + b"\n")
    for name, graph in zip(("float32", "int8"), build_graphs(model.weights), strict=True):
        print(name, hashlib.sha256(graph).hexdigest())


if __name__ == "__main__":
    main()
