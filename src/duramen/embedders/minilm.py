"""The default embedder: all-MiniLM-L6-v2 on onnxruntime. It needs no torch, and no network once it is installed."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from enum import StrEnum

import numpy as np

from ..errors import EmbedderFailed, InvalidInput, WeightsDamaged, WeightsUnavailable, shown
from ..ports import EmbedderIdentity, Vectors
from . import weights
from .adapters import check_texts
from .minilm_graph import DIMS, MAX_TOKENS, open_session
from .onnx_writer import GraphWriter
from .sources import Progress, silent
from .wordpiece import WordPiece

__all__ = ["MiniLM", "Precision", "best_precision"]

_MIN_TEXTS_FOR_THREADS = 8
_MAX_THREADS = 4
_TOKENS_PER_CALL = 256
"""How many tokens one call gets. With more, its intermediate results no longer fit into the cache of a core."""


class Precision(StrEnum):
    """The number type of matrix products. The vectors are nearly the same for all: see docs/guides/embedders.md."""

    AUTO = "auto"  # int8 if the processor sums it exactly, otherwise float32
    INT8 = "int8"  # more than twice as fast
    FLOAT32 = "float32"


class MiniLM:
    """Embeds English sentences in 384 dimensions. It reads only the first 256 tokens of a text.

    The vector of a text does not depend on the other texts of a call. Many texts are distributed over threads. Both
    precisions have the same identity, so vectors of one can be searched with a question in the other. The cosine
    between the two is about 0.999 for usual texts, and at least 0.98 for every text we tried.
    """

    name = weights.MODEL
    dims = DIMS
    identity = EmbedderIdentity(weights.MODEL, DIMS, checksum=weights.SHA256[weights.WEIGHTS])

    def __init__(self, installed: weights.InstalledModel, *, precision: Precision | str = Precision.AUTO) -> None:
        """Raises `WeightsDamaged` if a file is not the one that belongs to this version, `EmbedderFailed` if the model
        cannot be loaded, and `InvalidInput` if this machine cannot use the precision."""
        self.precision = _usable_precision(precision)
        graph = weights.INT8_GRAPH if self.precision is Precision.INT8 else weights.FLOAT32_GRAPH
        try:
            installed.check(weights.WEIGHTS)
            self._tokenizer = WordPiece.parse(installed.checked_bytes(weights.TOKENIZER))
            self._session = open_session(installed.checked_bytes(graph), installed.folder)
        except WeightsDamaged:
            raise
        except Exception as error:  # onnxruntime's errors have no common base
            raise EmbedderFailed(
                weights.MODEL, f"its files cannot be read: {error}", hint="run `duramen model install`"
            ) from error
        self._threads = min(_MAX_THREADS, os.cpu_count() or 1)

    @classmethod
    def load(
        cls, *, precision: Precision | str = Precision.AUTO, fetch: bool = True, progress: Progress = silent
    ) -> MiniLM:
        """The embedder from the user's cache. With `fetch`, it is installed there first if necessary. Raises
        `WeightsUnavailable` if it is not there, and the errors of the constructor."""
        found = weights.find_model() or (weights.install_model(progress=progress) if fetch else None)
        if found is None:
            raise WeightsUnavailable(weights.MODEL, [(str(weights.cache_folder()), "not found")])
        return cls(found, precision=precision)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row of length 1 for each text, in order. Raises `InvalidInput` if an item is not a text, and
        `EmbedderFailed` if onnxruntime fails."""
        check_texts(texts)
        encoded = [self._tokenizer.encode(text, MAX_TOKENS) for text in texts]
        rows = np.empty((len(texts), DIMS), dtype=np.float32)

        def embed_group(group: list[int]) -> None:
            rows[group] = self._embed_ids([encoded[at] for at in group])

        groups = _groups(encoded)
        if self._threads > 1 and len(texts) >= _MIN_TEXTS_FOR_THREADS:
            with suppress(RuntimeError):  # no new threads while the interpreter shuts down: use this thread
                with ThreadPoolExecutor(self._threads) as pool:
                    list(pool.map(embed_group, groups))
                return rows
        for group in groups:
            embed_group(group)
        return rows

    def _embed_ids(self, texts: Sequence[Sequence[int]]) -> Vectors:
        """The vectors of texts with the same number of tokens. There is no padding, so texts do not affect each
        other."""
        try:
            tokens: Vectors = self._session.run(None, {"ids": np.array(texts, dtype=np.int64)})[0]
        except Exception as error:  # onnxruntime's errors have no common base
            raise EmbedderFailed(weights.MODEL, str(error) or type(error).__name__) from error
        means = tokens.mean(axis=1)
        vectors: Vectors = means / np.linalg.norm(means, axis=1, keepdims=True)
        return vectors

    def __repr__(self) -> str:
        return f"MiniLM({self.precision.value!r})"


def best_precision() -> Precision:
    """The precision that "auto" means on this machine. Raises `EmbedderFailed` if onnxruntime does not start."""
    try:
        return Precision.INT8 if _sums_int8_exactly() else Precision.FLOAT32
    except Exception as error:  # onnxruntime's errors have no common base
        reason = f"onnxruntime did not start: {error}"
        raise EmbedderFailed(weights.MODEL, reason, hint="run `pip install -U onnxruntime`") from error


def _usable_precision(wanted: Precision | str) -> Precision:
    if wanted not in list(Precision):
        raise InvalidInput(f"unknown precision {shown(wanted)}", hint=f"use one of {', '.join(Precision)}")
    if wanted == Precision.FLOAT32:
        return Precision.FLOAT32
    best = best_precision()
    if wanted == Precision.INT8 and best is not Precision.INT8:
        raise InvalidInput(
            "this processor does not sum products of 8-bit integers exactly", hint='use precision="auto" or "float32"'
        )
    return best


def _sums_int8_exactly() -> bool:
    """Whether this processor sums products of 8-bit integers without overflow, as processors with VNNI do. Other
    processors clip the sum of two products, and are not faster than with float32. Raises the errors of onnxruntime."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return False  # not measured on other processors
    size = 64
    graph = GraphWriter()
    given = graph.input("given", "uint8", ["rows", size])
    weight = graph.constant(np.full((size, size), 127, np.int8))
    graph.output(graph.node("MatMulInteger", [given, weight]), "int32", ["rows", size])
    product = open_session(graph.save()).run(None, {"given": np.full((size, size), 255, np.uint8)})[0]
    return bool((product == 255 * 127 * size).all())


def _groups(encoded: Sequence[Sequence[int]]) -> list[list[int]]:
    """The places of the texts for each call. The texts of a call have the same length. Long texts come first, so that
    no thread has a long one at the end."""
    by_length: dict[int, list[int]] = {}
    for at, ids in enumerate(encoded):
        by_length.setdefault(len(ids), []).append(at)
    groups = []
    for length, places in sorted(by_length.items(), reverse=True):
        size = max(_TOKENS_PER_CALL // length, 1)
        groups += [places[start : start + size] for start in range(0, len(places), size)]
    return groups
