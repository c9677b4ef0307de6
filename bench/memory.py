"""The speed of `remember` and `recall`, and the size of memories on disk.

    python bench/memory.py [--json] [--rounds N] [--sizes N,N] [--words]

`remember` is compared with plain appends of the same texts, alternating in one store. Recalls are filtered by a subject
with 1 % of the memories; their time includes the embedding of the question. The vectors of the memories are random,
because their values do not affect the time of a comparison. The texts have word frequencies like a natural language.

A separate process opens the filled store, measures the recalls and its memory, and does nothing else.
`first_recall_ms_10k_of_1m` is its first recall for a subject with 10,000 of 1,000,000 memories. `rss_mb_1m` is its peak
memory after recalls for three subjects and for everyone.

With --words nothing is embedded. The default sizes take some minutes. The size 1000000 takes much longer; request it
with --sizes. --keep FOLDER stores the filled stores there and uses them again.
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
from collections.abc import Callable, Sequence
from functools import partial
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
"""The number of memories in one append."""


class Quick:
    """Embeds single texts (questions) with the real model. Texts in batches (memories) get random vectors."""

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
    """Random texts of about 15 words, with word frequencies like a natural language: a few words are frequent, most are
    rare."""

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
    """Memories and plain events per second, from one caller, each durable when its call returns."""
    speech, rates = Speech(1), Rates(remember=[], append=[])
    with duramen.open(folder / "remembering.db", embedder="none") as dm:
        session = dm.session("plain")
        dm.memory.remember("warm")
        session.append("warm")
        for _ in range(rounds):
            texts = [speech.text() for _ in range(count)]
            rates["append"].append(rate(count, partial(call_each, partial(session.append, "note"), texts)))
            rates["remember"].append(rate(count, partial(call_each, dm.memory.remember, texts)))
    return rates


def call_each(function: Callable[[str], object], texts: Sequence[str]) -> None:
    for text in texts:
        function(text)


def fill(path: Path, size: int, embedder: Quick) -> None:
    """Create a store with `size` memories of a hundred subjects, all with vectors."""
    speech, each = Speech(2), size // SUBJECTS
    with duramen.open(path, embedder=embedder) as dm:
        for subject in range(SUBJECTS):
            session = dm.session(f"of {subject}")
            for first in range(0, each, TOGETHER):
                texts = [speech.text() for _ in range(min(TOGETHER, each - first))]
                drafts = [duramen.Draft("memory.added", memory_data(text, "fact", {})) for text in texts]
                session.append_all(drafts, subject=f"subject {subject}")
            dm.memory.catch_up()


def measure_recalls(path: Path, size: int, embedder: Quick) -> dict[str, float | None]:
    """The figures of recalls from a filled store, in this process."""
    figures: dict[str, float | None] = {}
    with duramen.open(path, embedder=embedder) as dm:
        dm.memory.recall("warm", subject="nobody")
        began = time.perf_counter()
        dm.memory.recall(Speech(5).text(4), subject="subject 3")
        first = 1e3 * (time.perf_counter() - began)
        runs = [recall_p95_ms(dm, subject=f"subject {number}") for number in (3, 50, 97)]
        figures[f"recall_p95_ms_{NAMES[size]}"] = median(runs)
        if size == 1_000_000:
            figures["first_recall_ms_10k_of_1m"] = first
            figures["recall_p95_ms_1m_unfiltered"] = recall_p95_ms(dm, everyone=True)
            figures["rss_mb_1m"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return figures


def measure_recalls_in_process(path: Path, size: int, words: bool) -> dict[str, float | None]:
    """`measure_recalls` in a separate process."""
    command = [sys.executable, __file__, "--ask", str(path), "--sizes", str(size), *(["--words"] if words else [])]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float | None] = json.loads(done.stdout.splitlines()[-1])
    return figures


def recall_p95_ms(dm: duramen.Duramen, **whose: Any) -> float:
    """The 95th percentile of recalls, in milliseconds, after the audience is loaded."""
    speech, took = Speech(3), []
    dm.memory.recall(speech.text(4), **whose)
    for _ in range(QUESTIONS):
        question = speech.text(4)  # invented words have many tokens: four have as many as a question of ten words
        began = time.perf_counter()
        dm.memory.recall(question, **whose)
        took.append(1e3 * (time.perf_counter() - began))
    return statistics.quantiles(took, n=20)[-1]


def bytes_per_item(folder: Path, embedder: Quick, count: int = 2_000) -> float:
    """Bytes on disk per memory, with its vector and without its text."""
    speech, path = Speech(4), folder / "size.db"
    texts = [speech.text() for _ in range(count)]
    with duramen.open(path, embedder=embedder) as dm:
        for text in texts:
            dm.memory.remember(text)
        dm.memory.catch_up()
    return (path.stat().st_size - sum(len(text.encode()) for text in texts)) / count


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds (default: 5)")
    parser.add_argument(
        "--sizes", default="10000,100000", metavar="N,N", help="sizes of the stores (default: 10000,100000)"
    )
    parser.add_argument("--words", action="store_true", help="do not embed questions")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the filled stores there and use them again")
    parser.add_argument("--ask", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    embedder = Quick(None if given.words else load_embedder("minilm"))
    if given.ask is not None:
        print(json.dumps(measure_recalls(given.ask, int(given.sizes), embedder)))
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
            figures |= measure_recalls_in_process(path, size, given.words)
    print_figures("Memory", figures, {"{}, calls/s": rates})
    if given.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
