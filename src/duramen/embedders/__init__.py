"""Embedders behind the `Embedder` port. `load_embedder` finds one by name; the default is `MiniLM`."""

from .adapters import CallableEmbedder, OpenAIEmbedder, SentenceTransformersEmbedder
from .by_name import load_embedder
from .minilm import MiniLM, Precision, best_precision
from .weights import Installed, cache_folder, find, install

__all__ = [
    "CallableEmbedder",
    "Installed",
    "MiniLM",
    "OpenAIEmbedder",
    "Precision",
    "SentenceTransformersEmbedder",
    "best_precision",
    "cache_folder",
    "find",
    "install",
    "load_embedder",
]
