"""A small embedder that gives the same vectors everywhere, and processes that remember, recall and forget with it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

import numpy as np

import holdfast
from holdfast.embedders import CallableEmbedder

Say = Callable[[str], None]
DIMS = 64
MEANINGS = {"canine": "dog", "hound": "dog", "puppy": "dog", "automobile": "car", "vehicle": "car", "residence": "home"}
"""Words that mean the same to it: a paraphrase is near without a common word."""


def vectors_of(texts: Sequence[str]) -> Any:
    """One row for each text: which words are in it, by what they mean."""
    rows = np.full((len(texts), DIMS), 0.01)
    for row, text in zip(rows, texts, strict=True):
        for word in re.findall(r"\w+", text.lower()):
            row[crc32(MEANINGS.get(word, word).encode("utf-8", "surrogatepass")) % DIMS] += 1
    return rows


EMBEDDER = CallableEmbedder(vectors_of, name="minds", dims=DIMS)


def contents(found: Any) -> list[str]:
    """What the hits or the memories say."""
    return [getattr(one, "memory", one).content for one in found]


def open_mind(address: str, **settings: Any) -> holdfast.Holdfast:
    """A handle with the small embedder."""
    return holdfast.open(address, **{"embedder": EMBEDDER, **settings})
