"""How well recall finds the turns that answer a question, and how fast, beside words alone and vectors alone.

    python bench/recall.py --data FILE [--json] [--words]

FILE is LoCoMo's JSON (not part of the repository). One memory for each turn, with speaker and session date, in a SQLite
store; a question is searched within its conversation; a figure is the part of its evidence that is among the first ten
(five), averaged over the questions of categories 1 to 4, and over each category. All systems use the same embedder.
With --words nothing is embedded.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import re
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from conversations import CATEGORIES, Conversation, read
from measuring import Must, show
from numpy.typing import NDArray

import holdfast
from holdfast.embedders import load_embedder
from holdfast.memory.words import STOP_WORDS
from holdfast.ports import Embedder
from holdfast.testing.clock import FakeClock

Search = Callable[[str], Sequence[int]]
"""The positions of the turns found for a question, best first, at least ten of them where there are ten."""
System = Callable[[Conversation], Search]
"""Takes in a conversation and gives its search. What it does before it returns is not timed."""

LIMIT = 10
MUST: dict[str, Must] = {
    "recall_at_10": (">=", 0.80),
    "recall_at_5": (">=", 0.70),
    "mrr": (">=", 0.60),
    "multi_hop_at_10": (">=", 0.49),
    "open_domain_at_10": (">=", 0.47),
    "temporal_at_10": None,
    "single_hop_at_10": None,
    "adversarial_at_10": None,
    "search_p50_ms": None,
}


class Remembered:
    """A text is embedded once for all systems; a question each time that it is searched, as its time counts."""

    def __init__(self, embedder: Embedder) -> None:
        self.identity, self.name, self.dims = embedder.identity, embedder.name, embedder.dims
        self._embedder = embedder
        self._texts: dict[str, NDArray[np.float32]] = {}

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if len(texts) == 1:
            return self._embedder.embed(texts)
        for text in texts:
            if text not in self._texts:
                self._texts[text] = self._embedder.embed([text])[0]
        return np.array([self._texts[text] for text in texts])


def ours(embedder: Embedder | None, folder: Path) -> System:
    """Memories in a store of their own for each conversation, recalled through the public face."""

    def take_in(conversation: Conversation) -> Search:
        name = f"{conversation.name}-{'words' if embedder is None else 'both'}"
        clock = FakeClock(int(_noon(conversation.asked_on) * 1e6))
        hf = holdfast.open(folder / f"{name}.db", clock=clock, embedder=embedder)
        places: dict[str, int] = {}
        for index, turn in enumerate(conversation.turns):
            said = hf.session(f"session {turn.session}").remember(
                turn.text,
                kind="episode",
                subject=conversation.name,
                speaker=turn.speaker,
                valid_from=dt.datetime.fromtimestamp(_noon(turn.on), dt.UTC),
            )
            places.setdefault(said.id, index)
        hf.memory.catch_up()

        def search(question: str) -> Sequence[int]:
            found = hf.memory.recall(question, subject=conversation.name, limit=LIMIT)
            return [places[hit.memory.id] for hit in found]

        return search

    return take_in


def _noon(day: dt.date) -> float:
    return dt.datetime.combine(day, dt.time(12), dt.UTC).timestamp()


def full_text(conversation: Conversation) -> Search:
    """SQLite's FTS5 with Porter stemming and its own BM25, stop words dropped from the question."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE VIRTUAL TABLE turn USING fts5(text, tokenize='porter unicode61')")
    rows = [(position, turn.memory) for position, turn in enumerate(conversation.turns)]
    database.executemany("INSERT INTO turn(rowid, text) VALUES (?, ?)", rows)

    def search(question: str) -> Sequence[int]:
        words = [word for word in re.findall(r"\w+", question.lower()) if word not in STOP_WORDS]
        wanted = " OR ".join(f'"{word}"' for word in words)
        with closing(database.cursor()) as cursor:
            found = cursor.execute("SELECT rowid FROM turn WHERE turn MATCH ? ORDER BY rank LIMIT ?", (wanted, LIMIT))
            return [row[0] for row in found] if words else []

    return search


def vectors(embedder: Embedder) -> System:
    """Cosine alone."""

    def take_in(conversation: Conversation) -> Search:
        rows = embedder.embed([turn.said for turn in conversation.turns])

        def search(question: str) -> Sequence[int]:
            (asked,) = embedder.embed([question])
            return [int(place) for place in np.argsort(-(rows @ asked), kind="stable")[:LIMIT]]

        return search

    return take_in


def measure(system: System, conversations: Sequence[Conversation]) -> dict[str, float | None]:
    """Every figure of MUST for one system."""
    found: list[tuple[int, float, float, float]] = []
    took: list[float] = []
    for conversation in conversations:
        search = system(conversation)
        for asked in conversation.questions:
            began = time.perf_counter()
            best = list(search(asked.text))[:LIMIT]
            took.append(time.perf_counter() - began)
            hits = [place for place, turn in enumerate(best) if turn in asked.evidence]
            five, ten = (sum(place < limit for place in hits) / len(asked.evidence) for limit in (5, LIMIT))
            found.append((asked.category, five, ten, 1 / (1 + hits[0]) if hits else 0.0))
    return _figures(found) | {"search_p50_ms": 1e3 * statistics.median(took)}


def _figures(found: Sequence[tuple[int, float, float, float]]) -> dict[str, float | None]:
    answerable = [row for row in found if row[0] != 5]
    figures: dict[str, float | None] = {
        "recall_at_10": _mean([row[2] for row in answerable]),
        "recall_at_5": _mean([row[1] for row in answerable]),
        "mrr": _mean([row[3] for row in answerable]),
    }
    for category, name in CATEGORIES.items():
        figures[f"{name}_at_10"] = _mean([row[2] for row in found if row[0] == category])
    return {name: figures[name] for name in MUST if name in figures}


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def main() -> None:
    """Measure, print the tables, and the figures as JSON on the last line if asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, metavar="FILE")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--words", action="store_true", help="measure words alone")
    given = parser.parse_args()
    loaded = None if given.words else load_embedder("minilm")
    embedder = None if loaded is None else Remembered(loaded)
    conversations = read(given.data)
    with tempfile.TemporaryDirectory() as folder:
        systems: dict[str, System] = {"holdfast_words": ours(None, Path(folder)), "fts5": full_text}
        if embedder is not None:
            systems = {"holdfast": ours(embedder, Path(folder)), **systems, "vectors": vectors(embedder)}
        results = {name: measure(system, conversations) for name, system in systems.items()}
    first = next(iter(results))
    for name, figures in results.items():
        show(name, figures, MUST if name == first else dict.fromkeys(MUST), {}, ())
    if given.json:
        peers = {f"{name}_{key}": value for name in results if name != first for key, value in results[name].items()}
        print(json.dumps(results[first] | peers))


if __name__ == "__main__":
    main()
