"""How fast memories are remembered and recalled, and what they take on disk.

    python bench/memory.py [--json] [--rounds N] [--sizes N,N] [--words]

`remember` is set against plain appends of the same texts, in turn, in one store; recall is asked with a subject's
filter that leaves 1 % of the memories, embedding of the question included. The vectors of the memories are random:
their values do not change the time it takes to compare them. Texts are made of words as frequent as a language's.
Recalls are timed, and memory is measured, in a process of its own that opens the filled store and does nothing but ask:
`first_recall_ms_10k_of_1m` is its first recall of a subject with 10,000 of 1,000,000 memories, `rss_mb_1m` the most
memory that it ever had, after recalls of three subjects and of everybody. With --words nothing is embedded. The default
sizes take some minutes; 1000000 takes much longer: ask for it by --sizes. --keep FOLDER leaves the stores
there, and finds them again.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from figures import Rates, median, print_figures, rate, ratio

import duramen
from duramen.embedders import load_embedder
from duramen.memory.catalog.memory_event import memory_data
from duramen.ports import Embedder, EmbedderIdentity, Vectors

FIGURES = (
    "remember_vs_journal",
    "memory_bytes_per_item",
    "recall_p95_ms_10k",
    "recall_p95_ms_100k",
    "recall_p95_ms_1m",
    "recall_p95_ms_1m_unfiltered",
    "first_recall_ms_10k_of_1m",
    "rss_mb_1m",
)
NAMES = {10_000: "10k", 100_000: "100k", 1_000_000: "1m"}
SUBJECTS = 100
QUESTIONS = 60
TOGETHER = 1_000
"""Memories that are appended at once."""


class Quick:
    """Embeds questions with the real model; memories, which come in batches, get vectors that cost nothing."""

    def __init__(self, real: Embedder | None) -> None:
        self._real = real
        self.dims = 384 if real is None else real.dims
        self.name = "random"
        self.identity = EmbedderIdentity(self.name, self.dims)
        self._chance = np.random.default_rng(1)

    def embed(self, texts: Sequence[str]) -> Vectors:
        if len(texts) == 1 and self._real is not None:
            return self._real.embed(texts)
        rows = self._chance.standard_normal((len(texts), self.dims), dtype=np.float32)
        lengths: Vectors = np.linalg.norm(rows, axis=1, keepdims=True)
        return rows / lengths


class Speech:
    """Texts of some 15 words, with the frequencies of a language: a few words are everywhere, most are rare."""

    def __init__(self, seed: int, words: int = 30_000) -> None:
        self._chance = random.Random(seed)
        letters = "bcdfghklmnprstvw"
        self._words = [
            "".join(self._chance.choice(letters) + self._chance.choice("aeiou") for _ in range(2 + number % 3))
            for number in range(words)
        ]
        self._weights = list(np.cumsum(1 / np.arange(1, words + 1)))

    def text(self, length: int = 15) -> str:
        return " ".join(self._chance.choices(self._words, cum_weights=self._weights, k=length))


def remembering(folder: Path, rounds: int, count: int = 400) -> Rates:
    """Memories and plain events a second, one caller, each durable on return."""
    speech, rates = Speech(1), Rates(remember=[], append=[])
    with duramen.open(folder / "remembering.db", embedder="none") as dm:
        session = dm.session("plain")
        dm.memory.remember("warm")
        session.append("warm")
        for _ in range(rounds):
            texts = [speech.text() for _ in range(count)]
            rates["append"].append(rate(count, lambda said=texts: [session.append("note", text) for text in said]))  # type: ignore[misc]
            rates["remember"].append(rate(count, lambda said=texts: [dm.memory.remember(text) for text in said]))  # type: ignore[misc]
    return rates


def fill(path: Path, size: int, embedder: Quick) -> None:
    """A store with so many memories of a hundred subjects, all with their vectors."""
    speech, each = Speech(2), size // SUBJECTS
    with duramen.open(path, embedder=embedder) as dm:
        for subject in range(SUBJECTS):
            session = dm.session(f"of {subject}")
            for first in range(0, each, TOGETHER):
                texts = [speech.text() for _ in range(min(TOGETHER, each - first))]
                drafts = [duramen.Draft("memory.added", memory_data(text, "fact", {})) for text in texts]
                session.append_all(drafts, subject=f"subject {subject}")
            dm.memory.catch_up()


def answered(path: Path, size: int, embedder: Quick) -> dict[str, float | None]:
    """Figures of a store that is filled: of this process, which does nothing else."""
    figures: dict[str, float | None] = {}
    with duramen.open(path, embedder=embedder) as dm:
        dm.memory.recall("warm", subject="nobody")
        began = time.perf_counter()
        dm.memory.recall(Speech(5).text(4), subject="subject 3")
        first = 1e3 * (time.perf_counter() - began)
        runs = [asking(dm, subject=f"subject {number}") for number in (3, 50, 97)]
        figures[f"recall_p95_ms_{NAMES[size]}"] = median(runs)
        if size == 1_000_000:
            figures["first_recall_ms_10k_of_1m"] = first
            figures["recall_p95_ms_1m_unfiltered"] = asking(dm, everyone=True)
            figures["rss_mb_1m"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return figures


def recalling(path: Path, size: int, words: bool) -> dict[str, float | None]:
    """The same, by a process of its own."""
    command = [sys.executable, __file__, "--ask", str(path), "--sizes", str(size), *(["--words"] if words else [])]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float | None] = json.loads(done.stdout.splitlines()[-1])
    return figures


def asking(dm: duramen.Duramen, **whose: Any) -> float:
    """The 95th percentile of recalls, in milliseconds, once the audience is loaded."""
    speech, took = Speech(3), []
    dm.memory.recall(speech.text(4), **whose)
    for _ in range(QUESTIONS):
        question = speech.text(4)  # made-up words have many pieces: these are as many as in a question of ten words
        began = time.perf_counter()
        dm.memory.recall(question, **whose)
        took.append(1e3 * (time.perf_counter() - began))
    return statistics.quantiles(took, n=20)[-1]


def bytes_per_item(folder: Path, embedder: Quick, count: int = 2_000) -> float:
    """Bytes on disk for one memory over its text, vector included."""
    speech, path = Speech(4), folder / "size.db"
    texts = [speech.text() for _ in range(count)]
    with duramen.open(path, embedder=embedder) as dm:
        for text in texts:
            dm.memory.remember(text)
        dm.memory.catch_up()
    return (path.stat().st_size - sum(len(text.encode()) for text in texts)) / count


def main() -> None:
    """Measure, print the table, and the figures as JSON on the last line if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", default="10000,100000", metavar="N,N")
    parser.add_argument("--words", action="store_true", help="embed nothing")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave the stores there, and find them again")
    parser.add_argument("--ask", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    embedder = Quick(None if given.words else load_embedder("minilm"))
    if given.ask is not None:
        print(json.dumps(answered(given.ask, int(given.sizes), embedder)))
        return
    figures: dict[str, float | None] = dict.fromkeys(FIGURES)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rates = remembering(folder, given.rounds)
        figures["remember_vs_journal"] = ratio(rates, "remember", "append")
        figures["memory_bytes_per_item"] = bytes_per_item(folder, embedder)
        for size in map(int, given.sizes.split(",")):
            path = (given.keep or folder) / f"recall-{size}.db"
            if not path.exists():
                fill(path, size, embedder)
            figures |= recalling(path, size, given.words)
    print_figures("Memory", figures, {"{} a second": rates})
    if given.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
