"""Embedders for tests: quick, the same everywhere, and countable."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b

import numpy as np

import duramen
from duramen.ports import EmbedderIdentity, Vectors

Say = Callable[[str], None]


class Counted:
    """Vectors of the words of a text: texts that share words are alike. Counts what it was asked for."""

    def __init__(self, name: str = "counted", dims: int = 64) -> None:
        self.name = name
        self.dims = dims
        self.identity = EmbedderIdentity(name, dims)
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.asked += texts
        return np.array([self._one(text) for text in texts], dtype=np.float32).reshape(len(texts), self.dims)

    def _one(self, text: str) -> Vectors:
        vector = np.full(self.dims, 0.01, dtype=np.float32)
        for word in text.lower().split():
            seed = blake2b(f"{self.name} {word.strip('.,?!')}".encode(), digest_size=4).digest()
            vector[int.from_bytes(seed, "big") % self.dims] += 1
        return vector / np.float32(np.linalg.norm(vector))


def remember_some(say: Say, address: str, first: int, count: int, index: bool) -> None:
    """Remember numbered facts, and make their vectors if asked."""
    with duramen.open(address, embedder=Counted()) as dm:
        for number in range(first, first + count):
            dm.memory.remember(f"fact number {number}")
            say(str(number))
        if index:
            dm.memory.catch_up()


def move(say: Say, address: str, name: str) -> None:
    """Make all vectors again with another embedder."""
    with duramen.open(address, embedder=Counted(name)) as dm:
        for done, left in dm.memory.reindex():
            say(f"{done} {left}")
