"""Many memories with cheap vectors, for a store that searches by itself (PostgreSQL)."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

import duramen
from duramen.memory.catalog.memory_event import memory_data
from duramen.ports import EmbedderIdentity, Vectors

Say = Callable[[str], None]
WORDS = [
    first + last
    for first in ("ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe")
    for last in ("ran", "sel", "tik", "vom", "wub", "zad")
]


class ThemeEmbedder:
    """Adds a random vector per word, positive and negative as a real model's: texts that share words are similar."""

    def __init__(self, name: str = "themes", dims: int = 96) -> None:
        self.name, self.dims = name, dims
        self.identity = EmbedderIdentity(name, dims)
        self._vectors: dict[str, Vectors] = {}

    def embed(self, texts: Any) -> Vectors:
        rows = [np.sum([self._word_vector(word) for word in text.lower().split() or ["-"]], axis=0) for text in texts]
        vectors = np.array(rows, dtype=np.float32).reshape(len(texts), self.dims)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def _word_vector(self, word: str) -> Vectors:
        if word not in self._vectors:
            generator = np.random.RandomState(sum(map(ord, self.name + word)) * 7919 + len(word))
            self._vectors[word] = generator.standard_normal(self.dims).astype(np.float32)
        return self._vectors[word]


def sentence(generator: random.Random, count: int = 9) -> str:
    """Random words. Half of them are from the twelve most common ones."""
    common = generator.choices(WORDS[:12], k=count // 2)
    return " ".join([*common, *generator.choices(WORDS, k=count - count // 2)])


def fill(dm: duramen.Duramen, count: int = 2_000, seed: int = 1, kind: str = "fact", **details: Any) -> list[str]:
    """Store `count` memories and their vectors. Episodes become sessions of ten turns. Returns the texts."""
    generator = random.Random(seed)
    texts = [f"{sentence(generator)} {seed}x{number}" for number in range(count)]
    batch = 10 if kind == "episode" else 500
    for first in range(0, count, batch):
        drafts = [
            duramen.Draft("memory.added", memory_data(text, kind, {"metadata": {"parity": number % 2}}))
            for number, text in enumerate(texts[first : first + batch], first)
        ]
        dm.session(f"talk {seed} {first}").append_all(drafts, **details)
    dm.memory.catch_up()
    return texts


def make_searchable(say: Say, address: str) -> None:
    """Build the search tables of PostgreSQL from index entries of an older version."""
    with duramen.open(address, embedder=ThemeEmbedder()) as dm:
        dm.memory.catch_up()
        say("ready")
