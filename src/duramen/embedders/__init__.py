"""Embedders: they turn texts into vectors behind the `Embedder` port.

Start with `by_name.load_embedder`. `minilm` is the default model; `weights` and `sources` install its files, and
`minilm_graph` turns them into ONNX graphs. `adapters` has the others.
"""

from .adapters import CallableEmbedder, OpenAIEmbedder, SentenceTransformersEmbedder
from .by_name import load_embedder
from .minilm import MiniLM, Precision, best_precision
from .weights import InstalledModel, cache_folder, find_model, install_model

__all__ = [
    "CallableEmbedder",
    "InstalledModel",
    "MiniLM",
    "OpenAIEmbedder",
    "Precision",
    "SentenceTransformersEmbedder",
    "best_precision",
    "cache_folder",
    "find_model",
    "install_model",
    "load_embedder",
]
