"""How large and how fast checkpoints are, beside LangGraph's own; and how long it takes to go on with a long session.

    python bench/context.py [--json] [--rounds N] [--turns N] [--peers FOLDER | --no-peers]

The same conversation through each saver: `add_messages`, a message of 500 bytes a turn, and a small state of fixed
size; real graphs, which wait for each checkpoint (`durability="sync"`). Savers take turns, round by round, each in a
process of its own and each conversation in a new file; the figures are ratios of medians. The peers are installed into
an environment of their own (.venv/peers). A peer that cannot be had leaves its figures null, and a line says why.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from measuring import Must, Rates, arguments, as_json, ratio, show
from peers.install import Peers
from peers.line import Peer, PeerFailed
from sessions import build_times, p95, resume_times

SAVERS = ("duramen", "sqlite", "delta")
FIXED_TURNS = 200
PATIENCE = 900.0
MUST: dict[str, Must] = {
    "chat1000_bytes_vs_langgraph_sqlite": ("<=", 0.01),
    "chat1000_bytes_vs_delta": ("<=", 0.5),
    "put_1000_vs_10": ("<=", 2.0),
    "put_vs_langgraph_sqlite": (">=", 3.0),
    "put_2kb_vs_langgraph_sqlite": (">=", 1.0),
    "resume_100k_vs_1k": ("<=", 1.5),
    "context_build_ms_10k_turns": ("<=", 5.0),
    "context_build_ms_10k_turns_cold": ("<=", 30.0),
}


class Savers:
    """A process for each saver that can be had."""

    def __init__(self, children: dict[str, Peer], failed: dict[str, str]) -> None:
        self._children = children
        self._failed = failed

    @classmethod
    @contextmanager
    def ready(cls, peers: Peers, folder: Path) -> Iterator[Savers]:
        """Those of the peers' environment, and our own in this one; each with a short conversation behind it."""
        places = {saver: peers for saver in SAVERS if peers.has("langgraph")}
        places["duramen"] = Peers(Path(sys.executable), {}, folder)
        with ExitStack() as stack:
            savers = cls({}, peers.failed)
            for saver in filter(places.__contains__, SAVERS):
                child = places[saver].child("saver", saver, str(folder))
                stack.callback(child.kill)
                savers._children[saver] = child
                if said := savers._hear(saver, "version"):
                    peers.versions["langgraph"] = said
                savers.run(saver, "chat", 20)
            yield savers

    def run(self, saver: str, what: str, turns: int) -> dict[str, Any] | None:
        """A conversation through one of them; None if it cannot be had."""
        if saver not in self._children:
            return None
        self._children[saver].tell(json.dumps({what: turns}))
        done: dict[str, Any] | None = self._hear(saver, "done")
        return done

    def _hear(self, saver: str, key: str) -> Any:
        try:
            return self._children[saver].hear(key, PATIENCE)
        except PeerFailed as failure:
            self._failed[f"{saver} as a saver"] = str(failure)
            del self._children[saver]


def measure_chat(savers: Savers, rounds: int, turns: int) -> tuple[Rates, Rates, Rates]:
    """Bytes of the conversation, puts a second, and microseconds of our puts around the tenth turn and at the end."""
    sizes: Rates = {saver: [] for saver in SAVERS}
    rates: Rates = {saver: [] for saver in SAVERS}
    ours: Rates = {"tenth": [], "last": []}
    for _ in range(rounds):
        for saver in SAVERS:
            done = savers.run(saver, "chat", turns)
            if done is not None:
                sizes[saver].append(done["bytes"])
                rates[saver].append(len(done["puts"]) / sum(done["puts"]))
            if done is not None and saver == "duramen":
                ours["tenth"].append(1e6 * statistics.median(done["puts"][5:16]))
                ours["last"].append(1e6 * statistics.median(done["puts"][-20:]))
    return sizes, rates, ours


def measure_fixed(savers: Savers, rounds: int) -> Rates:
    """Puts a second of a small state of fixed size."""
    rates: Rates = {"duramen": [], "sqlite": []}
    for _ in range(3 * rounds):  # these are short, and a disk changes its mood within a second
        for saver, found in rates.items():
            done = savers.run(saver, "fixed", FIXED_TURNS)
            if done is not None:
                found.append(len(done["puts"]) / sum(done["puts"]))
    return rates


def measure_sessions(folder: Path, rounds: int, scale: float) -> tuple[dict[str, float | None], dict[str, Rates]]:
    """To open a long session beside a short one, and to build the context of a long conversation."""
    resumed = resume_times(folder, rounds, 1_000, int(100_000 * scale))
    built = build_times(folder, int(10_000 * scale), 4 * rounds)
    figures: dict[str, float | None] = {
        "resume_100k_vs_1k": ratio(resumed, "long", "short"),
        "context_build_ms_10k_turns": p95(built["warm"]),
        "context_build_ms_10k_turns_cold": p95(built["cold"]),
    }
    return figures, {"{} session opened, ms": resumed, "{} context, ms": built}


def measure(peers: Peers, folder: Path, rounds: int, turns: int) -> tuple[dict[str, float | None], dict[str, Rates]]:
    """The figures that must be reached, and what was measured for them."""
    with Savers.ready(peers, folder) as savers:
        sizes, rates, puts = measure_chat(savers, rounds, turns)
        fixed = measure_fixed(savers, rounds)
    figures: dict[str, float | None] = {
        "chat1000_bytes_vs_langgraph_sqlite": ratio(sizes, "duramen", "sqlite"),
        "chat1000_bytes_vs_delta": ratio(sizes, "duramen", "delta"),
        "put_1000_vs_10": ratio(puts, "last", "tenth"),
        "put_vs_langgraph_sqlite": ratio(rates, "duramen", "sqlite"),
        "put_2kb_vs_langgraph_sqlite": ratio(fixed, "duramen", "sqlite"),
    }
    behind = {
        "chat {}, bytes": sizes,
        "chat {}, puts/s": rates,
        "{} put, us": puts,
        "2 KB {}, puts/s": fixed,
    }
    return figures, behind


def main() -> None:
    parser = arguments("Checkpoints beside LangGraph's own.", rounds=5)
    parser.add_argument("--turns", type=int, default=1000, help="of the conversation (1000)")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        peers = Peers.none(folder) if chosen.no_peers else Peers.install(chosen.peers, folder)
        figures, behind = measure(peers, folder, chosen.rounds, chosen.turns)
        more, beside = measure_sessions(folder, chosen.rounds, chosen.turns / 1000)
    notes = [f"no {peer}: {why}" for peer, why in peers.failed.items()]
    version = peers.versions.get("langgraph")
    figures, behind = figures | more, behind | beside
    show(f"duramen beside langgraph {version}" if version else "duramen", figures, MUST, behind, notes)
    if chosen.json:
        print(as_json(figures))


if __name__ == "__main__":
    main()
