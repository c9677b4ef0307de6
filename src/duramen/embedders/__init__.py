"""Embedders behind the `Embedder` port. `load_embedder` finds one by name; the default is `MiniLM`."""

from .adapters import CallableEmbedder, OpenAIEmbedder, SentenceTransformersEmbedder
from .by_name import load_embedder
from .minilm import MiniLM, Runtime
from .weights import Installed, cache_folder, find, install

__all__ = [
    "CallableEmbedder",
    "Installed",
    "MiniLM",
    "OpenAIEmbedder",
    "Runtime",
    "SentenceTransformersEmbedder",
    "cache_folder",
    "find",
    "install",
    "load_embedder",
]
