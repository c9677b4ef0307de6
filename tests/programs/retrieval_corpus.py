"""Memories for a store that searches by itself: many, in one stroke, with vectors that cost nothing."""

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


class Themes:
    """Vectors of a text: a theme for each word, near for texts that share words, with signs like a real model's."""

    def __init__(self, name: str = "themes", dims: int = 96) -> None:
        self.name, self.dims = name, dims
        self.identity = EmbedderIdentity(name, dims)
        self._known: dict[str, Vectors] = {}

    def embed(self, texts: Any) -> Vectors:
        rows = [np.sum([self._theme(word) for word in text.lower().split() or ["-"]], axis=0) for text in texts]
        found = np.array(rows, dtype=np.float32).reshape(len(texts), self.dims)
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    def _theme(self, word: str) -> Vectors:
        if word not in self._known:
            chance = np.random.RandomState(sum(map(ord, self.name + word)) * 7919 + len(word))
            self._known[word] = chance.standard_normal(self.dims).astype(np.float32)
        return self._known[word]


def sentence(chance: random.Random, count: int = 9) -> str:
    common = chance.choices(WORDS[:12], k=count // 2)
    return " ".join([*common, *chance.choices(WORDS, k=count - count // 2)])


def fill(dm: duramen.Duramen, count: int = 2_000, seed: int = 1, kind: str = "fact", **whose: Any) -> list[str]:
    """Many memories, or the turns of talks of ten."""
    chance = random.Random(seed)
    said = [f"{sentence(chance)} {seed}x{number}" for number in range(count)]
    each = 10 if kind == "episode" else 500
    for first in range(0, count, each):
        drafts = [
            duramen.Draft("memory.added", memory_data(text, kind, {"metadata": {"parity": number % 2}}))
            for number, text in enumerate(said[first : first + each], first)
        ]
        dm.session(f"talk {seed} {first}").append_all(drafts, **whose)
    dm.memory.catch_up()
    return said


def make_searchable(say: Say, address: str) -> None:
    """Make what PostgreSQL searches, of index_entries that are older than that."""
    with duramen.open(address, embedder=Themes()) as dm:
        dm.memory.catch_up()
        say("ready")
