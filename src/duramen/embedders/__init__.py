"""Embedders turn texts into vectors. They implement the `Embedder` port.

Start with `load_embedder` in `by_name.py`. `minilm.py` is the default model, with its tokenizer in `wordpiece.py`.
`weights.py` installs the model's files from a source in `sources.py`. `minilm_graph.py` builds its ONNX graphs and
writes them with `onnx_writer.py`. `adapters.py` has the other embedders.
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
