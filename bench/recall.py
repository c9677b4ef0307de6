"""How well recall finds the turns that answer a question, and how fast, beside Chroma, mem0, words and vectors alone.

    python bench/recall.py --data FILE [--json] [--words] [--no-peers] [--peers FOLDER]

FILE is LoCoMo's JSON (not part of the repository). One memory for each turn, with speaker and session date, in a SQLite
store; a question is searched within its conversation; a figure is the part of its evidence that is among the first ten
(five), averaged over the questions of categories 1 to 4, and over each category.

All systems use the same embedder, and every question is asked of all of them in turn, its embedding included in the
time. Chroma (its persistent client) and mem0 (`infer=False`, its default store: Qdrant in files) run in processes and
an environment of their own, and time themselves. The rates of taking in are those of the first conversation, one text
after the other, vectors included. With --words nothing is embedded, and the peers are left out.
"""

from __future__ import annotations

import datetime as dt
import json
import re
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from conversations import CATEGORIES, Asked, Conversation, read
from measuring import Must, arguments, show
from numpy.typing import NDArray
from peers.install import RETRIEVERS, Peers
from peers.line import Peer, PeerFailed

import holdfast
from holdfast.embedders import load_embedder
from holdfast.memory.words import STOP_WORDS
from holdfast.ports import Embedder
from holdfast.testing.clock import FakeClock

Search = Callable[[str], Sequence[int]]
"""The positions of the turns found for a question, best first, at least ten of them where there are ten."""
Timed = Callable[[str], tuple[Sequence[int], float]]
"""The same, and the seconds that it took."""
System = Callable[[Conversation], Timed]
"""Takes in a conversation and gives its search."""

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
SPEED: dict[str, Must] = {
    "recall_p50_vs_mem0": ("<=", 0.15),
    "recall_p50_vs_chroma": ("<=", 0.6),
    "ingest_vs_mem0": (">=", 20),
    "ingest_vs_chroma": None,
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


def timed(search: Search) -> Timed:
    """A search with its time."""

    def ask(question: str) -> tuple[Sequence[int], float]:
        began = time.perf_counter()
        return search(question), time.perf_counter() - began

    return ask


def ours(embedder: Embedder | None, folder: Path) -> System:
    """Memories in a store of their own for each conversation, recalled through the public face."""

    def take_in(conversation: Conversation) -> Timed:
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

        return timed(search)

    return take_in


def taking_in(embedder: Embedder, conversation: Conversation, path: Path) -> float:
    """Memories a second, each durable, with its vector."""
    with holdfast.open(path, embedder=embedder) as hf:
        hf.memory.remember("warm", fresh=True)
        began = time.perf_counter()
        for turn in conversation.turns:
            hf.memory.remember(turn.text, kind="episode", subject=conversation.name, speaker=turn.speaker)
        hf.memory.catch_up()
        return len(conversation.turns) / (time.perf_counter() - began)


def theirs(child: Peer, rates: list[float]) -> System:
    """A peer, which keeps the texts with speaker and date in them. Notes how many it took in a second."""

    def ordered(**order: object) -> Any:
        child.tell(json.dumps(order))
        return child.hear("done", within=3_600)

    def take_in(conversation: Conversation) -> Timed:
        done = ordered(name=conversation.name, texts=[turn.memory for turn in conversation.turns])
        rates.append(len(conversation.turns) / done["seconds"])

        def ask(question: str) -> tuple[Sequence[int], float]:
            done = ordered(name=conversation.name, question=question)
            return done["found"], done["seconds"]

        return ask

    return take_in


def _noon(day: dt.date) -> float:
    return dt.datetime.combine(day, dt.time(12), dt.UTC).timestamp()


def full_text(conversation: Conversation) -> Timed:
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

    return timed(search)


def vectors(embedder: Embedder) -> System:
    """Cosine alone."""

    def take_in(conversation: Conversation) -> Timed:
        rows = embedder.embed([turn.said for turn in conversation.turns])

        def search(question: str) -> Sequence[int]:
            (asked,) = embedder.embed([question])
            return [int(place) for place in np.argsort(-(rows @ asked), kind="stable")[:LIMIT]]

        return timed(search)

    return take_in


def measure(
    systems: Mapping[str, System], conversations: Sequence[Conversation], failed: dict[str, str]
) -> dict[str, dict[str, float | None]]:
    """Every figure of MUST for each system. One that fails is left out, with its reason."""
    found: dict[str, list[tuple[int, float, float, float]]] = {name: [] for name in systems}
    took: dict[str, list[float]] = {name: [] for name in systems}
    for conversation in conversations:
        searches: dict[str, Timed] = {}
        for name in [one for one in systems if one not in failed]:
            with excusing(name, failed):
                searches[name] = systems[name](conversation)
        for asked in conversation.questions:
            for name in [one for one in searches if one not in failed]:
                with excusing(name, failed):
                    places, seconds = searches[name](asked.text)
                    took[name].append(seconds)
                    found[name].append(_graded(asked, list(places)[:LIMIT]))
    done = [name for name in systems if name not in failed]
    return {name: _figures(found[name]) | {"search_p50_ms": 1e3 * statistics.median(took[name])} for name in done}


@contextmanager
def excusing(name: str, failed: dict[str, str]) -> Iterator[None]:
    """Let a peer fail without an end to the benchmark."""
    try:
        yield
    except PeerFailed as failure:
        failed[name] = str(failure)


def _graded(asked: Asked, best: Sequence[int]) -> tuple[int, float, float, float]:
    """The category of a question, what of its evidence is among the first five and ten, and the first hit's rank."""
    hits = [place for place, turn in enumerate(best) if turn in asked.evidence]
    five, ten = (sum(place < limit for place in hits) / len(asked.evidence) for limit in (5, LIMIT))
    return asked.category, five, ten, 1 / (1 + hits[0]) if hits else 0.0


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


def compared(
    results: Mapping[str, Mapping[str, float | None]], rates: Mapping[str, Sequence[float]]
) -> dict[str, float | None]:
    """Every figure of SPEED; null for a peer that could not be had."""
    figures: dict[str, float | None] = dict.fromkeys(SPEED)
    for peer in RETRIEVERS:
        if peer in results:
            mine, other = results["holdfast"]["search_p50_ms"], results[peer]["search_p50_ms"]
            figures[f"recall_p50_vs_{peer}"] = None if not mine or not other else mine / other
            figures[f"ingest_vs_{peer}"] = rates["holdfast"][0] / rates[peer][0]
    return figures


def main() -> None:
    """Measure, print the tables, and the figures as JSON on the last line if asked."""
    parser = arguments((__doc__ or "").splitlines()[0], rounds=1)
    parser.add_argument("--data", type=Path, required=True, metavar="FILE")
    parser.add_argument("--words", action="store_true", help="measure words alone")
    given = parser.parse_args()
    loaded = None if given.words else load_embedder("minilm")
    conversations = read(given.data)
    rates: dict[str, list[float]] = {name: [] for name in ("holdfast", *RETRIEVERS)}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        systems: dict[str, System] = {"holdfast_words": ours(None, folder), "fts5": full_text}
        wanted = loaded is not None and not given.no_peers
        peers = Peers.install(given.peers, folder, RETRIEVERS) if wanted else Peers.none(folder, RETRIEVERS)
        if loaded is not None:
            rates["holdfast"].append(taking_in(loaded, conversations[0], folder / "rate.db"))
            embedder = Remembered(loaded)
            systems = {"holdfast": ours(embedder, folder), **systems, "vectors": vectors(embedder)}
        for peer in filter(peers.has, RETRIEVERS):
            child = peers.child(peer, "search", str(folder / peer))
            stack.callback(child.kill)
            with excusing(peer, peers.failed):
                peers.versions[peer] = child.hear("version", within=300)
                systems[peer] = theirs(child, rates[peer])
        results = measure(systems, conversations, peers.failed)
    first = next(iter(results))
    for name, figures in results.items():
        show(name, figures, MUST if name == first else dict.fromkeys(MUST), {}, ())
    speed = compared(results, rates)
    notes = [f"{peer} {number}" for peer, number in peers.versions.items()]
    notes += [f"without {peer}: {why}" for peer, why in peers.failed.items() if wanted]
    show("Speed", speed, SPEED, {"{}: memories taken in, a second": rates}, notes)
    if given.json:
        others = {f"{name}_{key}": value for name in results if name != first for key, value in results[name].items()}
        print(json.dumps(results[first] | speed | others))


if __name__ == "__main__":
    main()
