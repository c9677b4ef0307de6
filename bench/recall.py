"""The quality and speed of recall compared with Chroma, mem0, words alone and vectors alone.

    python bench/recall.py --data FILE [--json] [--words] [--no-peers] [--peers FOLDER] [--peer-conversations N]
                           [--spacy-model FOLDER]

FILE is LoCoMo's JSON, which is not part of the repository. Each turn becomes one memory with speaker and session date,
in a SQLite store. A question is searched within its conversation. Recall at 10 (5) is the share of its evidence among
the first ten (five) results. It is averaged over the questions of categories 1 to 4, and over each category.

All systems use the same model, and the benchmark checks that their vectors are the same. They answer each question in
turn, and the time includes the embedding of the question. Chroma (its persistent client) and mem0 (`infer=False`, its
default store: Qdrant in files) run in their own processes and environment, and measure their own times.

Each peer is measured twice. First with its own runtime for the model (Chroma's default embedding function, mem0's
provider for sentence-transformers), which is what its users get. Then, as `…_same_runtime` and for the first
conversation only, with duramen's embedder, which shows the time of everything else.

All systems hold the earlier conversations too: as subjects, users or collections. mem0 scans all of them for each
question. Chroma needs minutes to ingest them: with --peer-conversations 1 the peers get the first conversation only.
mem0 downloads spaCy's English pipeline; use --spacy-model if it cannot.

Ingest rates include the vectors. duramen ingests a conversation with `remember_all`, at most a thousand texts per call.
mem0 and Chroma get one text per call, because mem0 processes a list that way too. `one_by_one` uses `remember`, so each
memory is durable before the next. duramen ingests each conversation before and after each peer does. The ratio is the
median over all conversations. With --words nothing is embedded, and the peers are left out.
"""

from __future__ import annotations

import datetime as dt
import json
import os
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
from conversations import CATEGORIES, Conversation, Question, read_conversations
from figures import argument_parser, print_figures
from numpy.typing import NDArray
from peers.install import RETRIEVERS, Peers
from peers.protocol import SPACY_MODEL, Peer, PeerFailed

import duramen
from duramen.embedders import load_embedder
from duramen.memory.extraction.words import STOP_WORDS
from duramen.ports import Embedder
from duramen.testing.clock import FakeClock

Search = Callable[[str], Sequence[int]]
"""Returns the positions of the turns found for a question, best first; at least ten if there are ten."""
Timed = Callable[[str], tuple[Sequence[int], float]]
"""A search that also returns its seconds."""
System = Callable[[Conversation], Timed | None]
"""Ingests a conversation and returns its search; None if the system skips this conversation."""
Took = dict[tuple[str, int], float]
"""The seconds of each question, by the name of its conversation and its number."""
Rates = dict[str, list[float]]
"""Memories ingested per second, by conversation."""

LIMIT = 10
FIGURES = (
    "recall_at_10",
    "recall_at_5",
    "mrr",
    "multi_hop_at_10",
    "open_domain_at_10",
    "temporal_at_10",
    "single_hop_at_10",
    "adversarial_at_10",
    "search_p50_ms",
)
SAME = "_same_runtime"
ONE_BY_ONE = "duramen_one_by_one"
PEERS = (*RETRIEVERS, *(f"{peer}{SAME}" for peer in RETRIEVERS))
SPEED_FIGURES = (
    "recall_p50_vs_mem0",
    "recall_p50_vs_chroma",
    "ingest_vs_mem0",
    "ingest_one_by_one_vs_mem0",
    "ingest_vs_chroma",
    "recall_p50_vs_mem0_same_runtime",
    "recall_p50_vs_chroma_same_runtime",
    "ingest_vs_mem0_same_runtime",
    "ingest_vs_chroma_same_runtime",
)


class Remembered:
    """An embedder that computes each text in a batch once for all systems. A single text (a question) is embedded each
    time, because its time counts."""

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
    """The search with its time."""

    def ask(question: str) -> tuple[Sequence[int], float]:
        began = time.perf_counter()
        return search(question), time.perf_counter() - began

    return ask


def ours(embedder: Embedder | None, folder: Path) -> System:
    """duramen: all conversations in one store, each as a subject, recalled through the public API."""
    clock = FakeClock(0)
    dm = duramen.open(folder / f"{'words' if embedder is None else 'both'}.db", clock=clock, embedder=embedder)

    def add_texts(conversation: Conversation) -> Timed:
        clock.advance(_noon(conversation.asked_on) - clock.now() / 1e6)
        places: dict[str, int] = {}
        for index, turn in enumerate(conversation.turns):
            said = dm.session(f"{conversation.name} {turn.session}").remember(
                turn.text,
                kind="episode",
                subject=conversation.name,
                speaker=turn.speaker,
                valid_from=dt.datetime.fromtimestamp(_noon(turn.on), dt.UTC),
            )
            places.setdefault(said.id, index)
        dm.memory.catch_up()

        def search(question: str) -> Sequence[int]:
            found = dm.memory.recall(question, subject=conversation.name, limit=LIMIT)
            return [places[hit.memory.id] for hit in found]

        return timed(search)

    return add_texts


def ingestion(embedder: Embedder, path: Path, rates: Rates, stack: ExitStack, *, together: bool) -> System:
    """duramen's ingest only, all conversations into one store: all memories in one call, or each durable before the
    next. Adds to `rates` how many per second were durable with their vectors."""
    dm = stack.enter_context(duramen.open(path, embedder=embedder))
    dm.memory.remember("warm", fresh=True)

    def add_texts(conversation: Conversation) -> None:
        turns = conversation.turns
        began = time.perf_counter()
        if together:
            said = [{"content": turn.text, "speaker": turn.speaker} for turn in turns]
            for start in range(0, len(said), 1000):
                dm.memory.remember_all(said[start : start + 1000], kind="episode", subject=conversation.name)
        else:
            for turn in turns:
                dm.memory.remember(turn.text, kind="episode", subject=conversation.name, speaker=turn.speaker)
        dm.memory.catch_up()
        rates.setdefault(conversation.name, []).append(len(turns) / (time.perf_counter() - began))

    return add_texts


def theirs(child: Peer, rates: Rates, most: int) -> System:
    """A peer, with the first `most` conversations. Its texts include speaker and date. Adds to `rates` how many texts
    it ingested per second."""

    def ordered(**order: object) -> Any:
        child.send(json.dumps(order))
        return child.read("done", within=3_600)

    def add_texts(conversation: Conversation) -> Timed | None:
        if len(rates) == most:
            return None
        done = ordered(name=conversation.name, texts=[turn.memory for turn in conversation.turns])
        rates[conversation.name] = [len(conversation.turns) / done["seconds"]]

        def ask(question: str) -> tuple[Sequence[int], float]:
            done = ordered(name=conversation.name, question=question)
            return done["found"], done["seconds"]

        return ask

    return add_texts


def _noon(day: dt.date) -> float:
    return dt.datetime.combine(day, dt.time(12), dt.UTC).timestamp()


def full_text(conversation: Conversation) -> Timed:
    """SQLite's FTS5 with Porter stemming and BM25. Stop words of the question are dropped."""
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
    """Search by the cosine of vectors alone."""

    def add_texts(conversation: Conversation) -> Timed:
        rows = embedder.embed([turn.said for turn in conversation.turns])

        def search(question: str) -> Sequence[int]:
            (asked,) = embedder.embed([question])
            return [int(place) for place in np.argsort(-(rows @ asked), kind="stable")[:LIMIT]]

        return timed(search)

    return add_texts


def measure(
    systems: Mapping[str, System], conversations: Sequence[Conversation], failed: dict[str, str]
) -> tuple[dict[str, dict[str, float | None]], dict[str, Took]]:
    """The figures in FIGURES for each system, and the times behind them. A system that fails is left out; its reason is
    added to `failed`."""
    found: dict[str, list[tuple[int, float, float, float]]] = {name: [] for name in systems}
    took: dict[str, Took] = {name: {} for name in systems}
    for conversation in conversations:
        searches: dict[str, Timed] = {}
        for name in [one for one in systems if one not in failed]:
            with skip_on_failure(name, failed):
                if search := systems[name](conversation):
                    searches[name] = search
        for number, asked in enumerate(conversation.questions):
            for name in [one for one in searches if one not in failed]:
                with skip_on_failure(name, failed):
                    places, took[name][conversation.name, number] = searches[name](asked.text)
                    found[name].append(_graded(asked, list(places)[:LIMIT]))
    results = {name: _figures(found[name]) for name in systems if name not in failed and took[name]}
    for name, figures in results.items():
        figures["search_p50_ms"] = 1e3 * statistics.median(took[name].values())
    return results, {name: took[name] for name in results}


@contextmanager
def skip_on_failure(name: str, failed: dict[str, str]) -> Iterator[None]:
    """Record a failure of the peer instead of ending the benchmark."""
    try:
        yield
    except PeerFailed as failure:
        failed[name] = str(failure)


def _graded(asked: Question, best: Sequence[int]) -> tuple[int, float, float, float]:
    """The category of a question, the shares of its evidence among the first five and ten results, and the reciprocal
    rank of the first hit."""
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
    return {name: figures[name] for name in FIGURES if name in figures}


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def compared(took: Mapping[str, Took], rates: Mapping[str, Rates]) -> dict[str, float | None]:
    """The figures in SPEED_FIGURES, over the questions that both systems answered; None for a missing peer."""
    figures: dict[str, float | None] = dict.fromkeys(SPEED_FIGURES)
    for peer in PEERS:
        if peer in took:
            both = [(took["duramen"][asked], seconds) for asked, seconds in took[peer].items()]
            mine, other = map(statistics.median, zip(*both, strict=True))
            figures[f"recall_p50_vs_{peer}"] = mine / other
            figures[f"ingest_vs_{peer}"] = _faster(rates["duramen"], rates[peer])
            if peer == "mem0":
                figures["ingest_one_by_one_vs_mem0"] = _faster(rates[ONE_BY_ONE], rates[peer])
    return figures


def _faster(ours: Rates, peer: Rates) -> float:
    """The ratio of duramen's ingest rate to the peer's: the median over the peer's conversations."""
    return statistics.median(statistics.median(ours[name]) / statistics.median(rates) for name, rates in peer.items())


def with_peers(
    peers: Peers, folder: Path, rates: Mapping[str, Rates], most: int, stack: ExitStack
) -> tuple[dict[str, System], list[str]]:
    """The available peers, and notes about them."""
    systems: dict[str, System] = {}
    notes: list[str] = []
    for name in [one for one in PEERS if peers.has(one.removesuffix(SAME))]:
        peer, same = name.removesuffix(SAME), name.endswith(SAME)
        child = peers.child(peer, "same" if same else "own", str(folder / name))
        stack.callback(child.kill)
        with skip_on_failure(name, peers.failed):
            ready = child.read("ready", within=300)
            systems[name] = theirs(child, rates[name], min(most, 1) if same else most)
            remarks = [] if same else [f"{peer} {ready['version']}, cosine with ours {ready['likeness']:.7f}"]
            notes += [*remarks, *(f"{name}: {remark}" for remark in ready["remarks"] if not same)]
    return systems, notes


def between(
    others: Mapping[str, System], embedder: Embedder, folder: Path, rates: Mapping[str, Rates], stack: ExitStack
) -> dict[str, System]:
    """The peers, with duramen's ingest of the same conversation before and after each of them (except those with the
    same runtime): the speed of a machine may double within a minute."""
    found: dict[str, System] = {}
    for place, (name, system) in enumerate([("", None), *others.items()]):
        if system is not None:
            found[name] = system
        if not name.endswith(SAME):
            for mine, together in (("duramen", True), (ONE_BY_ONE, False)):
                path = folder / f"{mine} {place}.db"
                found[f"{mine} {place}"] = ingestion(embedder, path, rates[mine], stack, together=together)
    return found


def _crowded() -> str | None:
    """A warning if other processes were busy during the measurement; None otherwise. The benchmark itself never keeps
    all processors busy for long. Peers embed one text on several threads, which lose much more on a busy machine."""
    load, cores = os.getloadavg()[1], os.cpu_count() or 1
    if load <= cores:
        return None
    return (
        f"WARNING: the machine was busy (load {load:.1f} on {cores} processors). Ratios to the peers' own runtimes "
        "are too favourable to duramen."
    )


def main() -> None:
    """Measure and print the figures."""
    parser = argument_parser((__doc__ or "").splitlines()[0], rounds=1)
    parser.add_argument("--data", type=Path, required=True, metavar="FILE", help="LoCoMo's JSON file")
    parser.add_argument("--words", action="store_true", help="measure the search by words only")
    parser.add_argument(
        "--peer-conversations", type=int, default=99, metavar="N", help="conversations for the peers (default: all)"
    )
    parser.add_argument("--spacy-model", type=Path, metavar="FOLDER", help="folder of spaCy's en_core_web_sm, for mem0")
    given = parser.parse_args()
    if given.spacy_model is not None:
        os.environ[SPACY_MODEL] = str(given.spacy_model.resolve(strict=True))
    loaded = None if given.words else load_embedder("minilm")
    conversations = read_conversations(given.data)
    most = min(max(given.peer_conversations, 0), len(conversations))
    rates: dict[str, Rates] = {name: {} for name in ("duramen", ONE_BY_ONE, *PEERS)}
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        systems: dict[str, System] = {"duramen_words": ours(None, folder), "fts5": full_text}
        wanted = loaded is not None and not given.no_peers and most > 0
        peers = Peers.install(given.peers, folder, RETRIEVERS) if wanted else Peers.none(folder, RETRIEVERS)
        if loaded is not None:
            embedder = Remembered(loaded)
            systems = {"duramen": ours(embedder, folder), **systems, "vectors": vectors(embedder)}
        others, notes = with_peers(peers, folder, rates, most, stack)
        if loaded is not None:
            others = between(others, loaded, folder, rates, stack)
        results, took = measure(systems | others, conversations, peers.failed)
    first = next(iter(results))
    if most < len(conversations):
        notes.append(f"the peers got the first {most} of {len(conversations)} conversations")
    notes += [f"{peer} is left out: {why}" for peer, why in peers.failed.items() if wanted]
    shown = {name: figures for name, figures in results.items() if not name.endswith(SAME)}
    for name, figures in shown.items():
        print_figures(name, figures, {})
    speed = compared(took, rates)
    if crowded := _crowded():
        notes.append(crowded)
    waits = {name: [1e3 * seconds for seconds in took[name].values()] for name in took if name in ("duramen", *PEERS)}
    taken = {name: [rate for each in of_each.values() for rate in each] for name, of_each in rates.items()}
    behind = {"{}: search, ms": waits, "{}: ingest, memories/s": taken}
    print_figures("Speed", speed, behind, notes)
    if given.json:
        more = {f"{name}_{key}": value for name in shown if name != first for key, value in shown[name].items()}
        print(json.dumps(results[first] | speed | more))


if __name__ == "__main__":
    main()
