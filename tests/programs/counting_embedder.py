"""A fast, deterministic embedder that records the texts it embedded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np

import duramen
from duramen.ports import EmbedderIdentity, Vectors

Say = Callable[[str], None]


class CountingEmbedder:
    """Makes vectors from words: texts that share words are similar. `texts` lists what it embedded."""

    def __init__(self, name: str = "counted", dims: int = 64) -> None:
        self.name = name
        self.dims = dims
        self.identity = EmbedderIdentity(name, dims)
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.texts += texts
        return np.array([self._vector(text) for text in texts], dtype=np.float32).reshape(len(texts), self.dims)

    def _vector(self, text: str) -> Vectors:
        vector = np.full(self.dims, 0.01, dtype=np.float32)
        for word in text.lower().split():
            seed = blake2b(f"{self.name} {word.strip('.,?!')}".encode(), digest_size=4).digest()
            vector[int.from_bytes(seed, "big") % self.dims] += 1
        return vector / np.float32(np.linalg.norm(vector))


def reindex(say: Say, address: str, name: str) -> None:
    """Make all vectors again with another embedder. Print the progress."""
    with duramen.open(address, embedder=CountingEmbedder(name)) as dm:
        for done, left in dm.memory.reindex():
            say(f"{done} {left}")
