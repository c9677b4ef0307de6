"""The default embedder: all-MiniLM-L6-v2, without torch and without a network once installed."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from ..errors import EmbedderFailed, InvalidInput, WeightsUnavailable
from ..ports import EmbedderIdentity, Vectors
from . import weights
from .adapters import check_texts
from .minilm_int8 import Int8Runtime, exact_here
from .minilm_numpy import DIMS, LONGEST, NumpyRuntime
from .minilm_onnx import OnnxRuntime
from .safetensors import read_safetensors
from .sources import Progress, silent
from .wordpiece import WordPiece

__all__ = ["MiniLM", "Runtime"]

_MANY = 8
_MOST_THREADS = 4
_TOGETHER = 256
"""Tokens that are computed together at most: with more, what is between two products no longer fits beside them in a
core's own cache."""
_INSTALL = "run `duramen model install`"


class Runtime(StrEnum):
    """What computes. The vectors are nearly the same: see docs/embedders.md."""

    AUTO = "auto"  # the quickest that can be used here
    INT8 = "onnxruntime-int8"  # where the processor sums 8-bit products exactly
    ONNX = "onnxruntime"  # in float32, about twice as fast as NumPy
    NUMPY = "numpy"  # needs nothing else


class MiniLM:
    """English sentences to 384 dimensions; of a longer text the first 256 tokens count.

    A text has the same vector whatever it comes with; many are spread over threads. `runtime` says what computes. All
    runtimes have one identity: in float32 they differ in the last bits, in 8-bit integers by a cosine of 0.999 for a
    usual text and of 0.98 for whatever was tried, and vectors of the one may be searched with a question of the other.
    """

    name = weights.MODEL
    dims = DIMS
    identity = EmbedderIdentity(weights.MODEL, DIMS, checksum=weights.SHA256[weights.WEIGHTS])

    def __init__(self, installed: weights.Installed, *, runtime: Runtime | str = Runtime.AUTO) -> None:
        wanted = _wanted(runtime)
        try:
            self._tokenizer = WordPiece.load(installed.tokenizer)
            tensors = read_safetensors(installed.weights)
        except (OSError, ValueError, KeyError, InvalidInput) as error:
            raise _unreadable(installed, error) from error
        self._compute = _runtime(wanted, installed, tensors)
        self.runtime = self._compute.name
        self._threads = min(_MOST_THREADS, os.cpu_count() or 1)

    @classmethod
    def load(cls, *, runtime: Runtime | str = Runtime.AUTO, fetch: bool = True, progress: Progress = silent) -> MiniLM:
        """The embedder from the user's cache; `fetch` puts it there if need be. Raises `WeightsUnavailable`."""
        found = weights.find() or (weights.install(progress=progress) if fetch else None)
        if found is None:
            raise WeightsUnavailable(weights.MODEL, [(str(weights.cache_folder()), "not there")])
        return cls(found, runtime=runtime)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row of length 1 for each text. Raises `InvalidInput` for what is not text."""
        check_texts(texts)
        encoded = [self._tokenizer.encode(text, LONGEST) for text in texts]
        threads = self._threads if len(texts) >= _MANY else 1
        rows = np.empty((len(texts), DIMS), dtype=np.float32)

        def embed_group(group: list[int]) -> None:
            with _named_failure():
                rows[group] = self._compute([encoded[at] for at in group])

        groups = _groups(encoded)
        if threads > 1 and not isinstance(self._compute, NumpyRuntime):
            try:
                with ThreadPoolExecutor(threads) as pool:
                    list(pool.map(embed_group, groups))
            except RuntimeError:  # no new threads: the interpreter is about to end
                list(map(embed_group, groups))
        else:
            list(map(embed_group, groups))
        return rows

    def __repr__(self) -> str:
        return f"MiniLM({self.runtime!r})"


@contextmanager
def _named_failure() -> Iterator[None]:
    try:
        yield
    except Exception as error:  # onnxruntime's errors have no root of their own
        raise EmbedderFailed(weights.MODEL, str(error) or type(error).__name__) from error


def _wanted(runtime: Runtime | str) -> Runtime:
    try:
        return Runtime(runtime)
    except ValueError:
        raise InvalidInput(f"no runtime {runtime!r}", hint=f"one of {', '.join(Runtime)}") from None


def _groups(encoded: Sequence[Sequence[int]]) -> list[list[int]]:
    """The places of texts that are computed together: of the same length, so that nothing is padded. Long ones come
    first: a thread that is left with one at the end would keep all waiting."""
    by_length: dict[int, list[int]] = {}
    for at, ids in enumerate(encoded):
        by_length.setdefault(len(ids), []).append(at)
    groups = []
    for length, places in sorted(by_length.items(), reverse=True):
        size = max(_TOGETHER // length, 1)
        groups += [places[start : start + size] for start in range(0, len(places), size)]
    return groups


def _runtime(
    wanted: Runtime, installed: weights.Installed, tensors: Mapping[str, npt.NDArray[Any]]
) -> Int8Runtime | OnnxRuntime | NumpyRuntime:
    present = importlib.util.find_spec("onnxruntime") is not None
    if wanted is Runtime.NUMPY or (wanted is Runtime.AUTO and not present):
        return NumpyRuntime(tensors)
    if not present:
        raise InvalidInput("the package onnxruntime is not installed", hint="pip install 'duramen[onnx]'")
    try:
        if wanted is not Runtime.ONNX and exact_here():
            return Int8Runtime(installed.int8_graph, tensors)
    except Exception as error:  # an old or broken onnxruntime fails in ways of its own
        if wanted is Runtime.INT8:
            raise _not_started(error) from error
    if wanted is Runtime.INT8:
        raise InvalidInput("this processor does not sum products of 8-bit integers exactly", hint='runtime="auto"')
    try:
        return OnnxRuntime(installed.graph, tensors)
    except Exception as error:
        if wanted is Runtime.AUTO:
            return NumpyRuntime(tensors)
        raise _not_started(error) from error


def _unreadable(installed: weights.Installed, error: Exception) -> EmbedderFailed:
    """What is wrong with the files. Raises `WeightsDamaged` if it is known which one it is."""
    with suppress(OSError, ValueError, KeyError):
        installed.verify()
    return EmbedderFailed(weights.MODEL, f"its files cannot be read: {error}", hint=_INSTALL)


def _not_started(error: Exception) -> EmbedderFailed:
    reason = f"onnxruntime did not start: {error}"
    return EmbedderFailed(weights.MODEL, reason, hint="pip install -U onnxruntime")
