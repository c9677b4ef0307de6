"""How well recall finds the turns that answer a question, and how fast, beside Chroma, mem0, words and vectors alone.

    python bench/recall.py --data FILE [--json] [--words] [--no-peers] [--peers FOLDER] [--peer-conversations N]
                           [--spacy-model FOLDER]

FILE is LoCoMo's JSON (not part of the repository). One memory for each turn, with speaker and session date, in a SQLite
store; a question is searched within its conversation; a figure is the part of its evidence that is among the first ten
(five), averaged over the questions of categories 1 to 4, and over each category.

All systems use the same model, and every question is asked of all of them in turn, its embedding included in the time.
Chroma (its persistent client) and mem0 (`infer=False`, its default store: Qdrant in files) run in processes and an
environment of their own, and time themselves. Each is there twice: with the runtime in which its users have the model
(Chroma's default embedding function, mem0's provider for sentence-transformers), and, as `…_same_runtime`, with
duramen's embedder handed to it, in the first conversation: the first says what its users wait for, the second what the
rest of it takes. That the vectors are the same is checked. All hold what was said in the conversations before, as a
subject's, a user's or a collection's; mem0 looks through all of it for each question. Chroma takes minutes to take it
in: with --peer-conversations 1 the peers are asked about the first conversation only. mem0 uses spaCy's English
pipeline, which it downloads; --spacy-model brings it where it cannot. The rates of taking in include the vectors: all
texts of a conversation in one call (`remember_all`, a thousand at most) beside mem0 and Chroma, which are given one
after the other, as mem0 goes through a list that way itself; `one_by_one` is with `remember`, each durable before the
next. We take in each conversation before and after each peer does, and the ratio is the one in the middle of all
conversations. With --words nothing is embedded, and the peers are left out.
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
"""The positions of the turns found for a question, best first, at least ten of them where there are ten."""
Timed = Callable[[str], tuple[Sequence[int], float]]
"""The same, and the seconds that it took."""
System = Callable[[Conversation], Timed | None]
"""Takes in a conversation and gives its search; None if it takes no part in this one."""
Took = dict[tuple[str, int], float]
"""The seconds of each question: of which conversation, and which of it."""
Rates = dict[str, list[float]]
"""Memories taken in a second, by conversation."""

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
    """Memories of all conversations in one store, each conversation's a subject's, recalled through the public API."""
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


def taking_in(embedder: Embedder, path: Path, rates: Rates, stack: ExitStack, *, together: bool) -> System:
    """Conversations into one store, as a peer's are, for the time that it takes: all memories in one call, or each
    durable before the next. Notes how many a second were durable with their vectors."""
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
    """A peer, which keeps the texts with speaker and date in them, of so many conversations. Notes how many texts it
    took in a second."""

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
    """Every figure of FIGURES for each system, and the times behind them. One that fails is left out, with its reason."""
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
    """Let a peer fail without an end to the benchmark."""
    try:
        yield
    except PeerFailed as failure:
        failed[name] = str(failure)


def _graded(asked: Question, best: Sequence[int]) -> tuple[int, float, float, float]:
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
    return {name: figures[name] for name in FIGURES if name in figures}


def _mean(values: Sequence[float]) -> float | None:
    return statistics.fmean(values) if values else None


def compared(took: Mapping[str, Took], rates: Mapping[str, Rates]) -> dict[str, float | None]:
    """Every figure of SPEED_FIGURES, each over the questions that both were asked; null for a peer that could not be had."""
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
    """How many times as fast we take in a conversation, in the middle of those that the peer took in."""
    return statistics.median(statistics.median(ours[name]) / statistics.median(rates) for name, rates in peer.items())


def with_peers(
    peers: Peers, folder: Path, rates: Mapping[str, Rates], most: int, stack: ExitStack
) -> tuple[dict[str, System], list[str]]:
    """The peers that can be had, and what is to be known about them."""
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
    """The peers, and before and after each of those that count what we take in of the same conversation: a machine may
    be twice as fast a minute later."""
    found: dict[str, System] = {}
    for place, (name, system) in enumerate([("", None), *others.items()]):
        if system is not None:
            found[name] = system
        if not name.endswith(SAME):
            for mine, together in (("duramen", True), (ONE_BY_ONE, False)):
                path = folder / f"{mine} {place}.db"
                found[f"{mine} {place}"] = taking_in(embedder, path, rates[mine], stack, together=together)
    return found


def _crowded() -> str | None:
    """What to say if the figures were taken while others computed. The bench itself never keeps all processors busy for
    long, but peers compute one text on several threads that wait for each other, and lose far more by company."""
    load, cores = os.getloadavg()[1], os.cpu_count() or 1
    if load <= cores:
        return None
    return f"NOT QUIET: a load of {load:.1f} on {cores} processors. Ratios with the peers' own runtimes flatter duramen"


def main() -> None:
    """Measure, print the tables, and the figures as JSON on the last line if asked."""
    parser = argument_parser((__doc__ or "").splitlines()[0], rounds=1)
    parser.add_argument("--data", type=Path, required=True, metavar="FILE")
    parser.add_argument("--words", action="store_true", help="measure words alone")
    parser.add_argument("--peer-conversations", type=int, default=99, metavar="N", help="ask the peers about N (all)")
    parser.add_argument("--spacy-model", type=Path, metavar="FOLDER", help="spaCy's en_core_web_sm, for mem0")
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
        notes.append(f"the peers took part in the first {most} of {len(conversations)} conversations")
    notes += [f"without {peer}: {why}" for peer, why in peers.failed.items() if wanted]
    shown = {name: figures for name, figures in results.items() if not name.endswith(SAME)}
    for name, figures in shown.items():
        print_figures(name, figures, {})
    speed = compared(took, rates)
    if crowded := _crowded():
        notes.append(crowded)
    waits = {name: [1e3 * seconds for seconds in took[name].values()] for name in took if name in ("duramen", *PEERS)}
    taken = {name: [rate for each in of_each.values() for rate in each] for name, of_each in rates.items()}
    behind = {"{}: ms of a search": waits, "{}: memories taken in, a second": taken}
    print_figures("Speed", speed, behind, notes)
    if given.json:
        beside = {f"{name}_{key}": value for name in shown if name != first for key, value in shown[name].items()}
        print(json.dumps(results[first] | speed | beside))


if __name__ == "__main__":
    main()
