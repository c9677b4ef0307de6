"""Size and speed of checkpoints compared with LangGraph's own, and the time to resume a long session.

    python bench/context.py [--json] [--rounds N] [--turns N] [--peers FOLDER | --no-peers]

Each saver stores the same conversation: `add_messages` with one message of 500 bytes per turn, and a small state of
fixed size. Real graphs run and wait for each checkpoint (`durability="sync"`). The savers alternate, round by round,
each in its own process and each conversation in a new file. The figures are ratios of medians. The peers are installed
into a separate environment (.venv/peers). The figures of a missing peer are null, and a note gives the reason.
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

from figures import Rates, argument_parser, figures_json, print_figures, ratio
from peers.install import Peers
from peers.protocol import Peer, PeerFailed
from sessions import build_times, p95, resume_times

SAVERS = ("duramen", "sqlite", "delta")
FIXED_TURNS = 200
TIMEOUT = 900.0


class SaverProcesses:
    """A process for each installed saver."""

    def __init__(self, children: dict[str, Peer], failed: dict[str, str]) -> None:
        self._children = children
        self._failed = failed

    @classmethod
    @contextmanager
    def ready(cls, peers: Peers, folder: Path) -> Iterator[SaverProcesses]:
        """Start the savers of the peers' environment and duramen's saver in this one. Each is warmed up with a short
        conversation."""
        places = {saver: peers for saver in SAVERS if peers.has("langgraph")}
        places["duramen"] = Peers(Path(sys.executable), {}, folder)
        with ExitStack() as stack:
            savers = cls({}, peers.failed)
            for saver in filter(places.__contains__, SAVERS):
                child = places[saver].child("saver", saver, str(folder))
                stack.callback(child.kill)
                savers._children[saver] = child
                if version := savers._read(saver, "version"):
                    peers.versions["langgraph"] = version
                savers.run(saver, "chat", 20)
            yield savers

    def run(self, saver: str, what: str, turns: int) -> dict[str, Any] | None:
        """Run a conversation on one saver. Returns its measurements; None if the saver is missing."""
        if saver not in self._children:
            return None
        self._children[saver].send(json.dumps({what: turns}))
        done: dict[str, Any] | None = self._read(saver, "done")
        return done

    def _read(self, saver: str, key: str) -> Any:
        try:
            return self._children[saver].read(key, TIMEOUT)
        except PeerFailed as failure:
            self._failed[f"{saver} as a saver"] = str(failure)
            del self._children[saver]


def measure_chat(savers: SaverProcesses, rounds: int, turns: int) -> tuple[Rates, Rates, Rates]:
    """Bytes of the conversation, puts per second, and microseconds of duramen's puts around turn 10 and at the end."""
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


def measure_fixed(savers: SaverProcesses, rounds: int) -> Rates:
    """Puts per second of a small state of fixed size."""
    rates: Rates = {"duramen": [], "sqlite": []}
    for _ in range(3 * rounds):  # more rounds, because they are short and the speed of a disk varies within a second
        for saver, found in rates.items():
            done = savers.run(saver, "fixed", FIXED_TURNS)
            if done is not None:
                found.append(len(done["puts"]) / sum(done["puts"]))
    return rates


def measure_sessions(folder: Path, rounds: int, scale: float) -> tuple[dict[str, float | None], dict[str, Rates]]:
    """The time to open a long session and a short one, and to build the context of a long conversation."""
    resumed = resume_times(folder, rounds, 1_000, int(100_000 * scale))
    built = build_times(folder, int(10_000 * scale), 4 * rounds)
    figures: dict[str, float | None] = {
        "resume_100k_vs_1k": ratio(resumed, "long", "short"),
        "context_build_ms_10k_turns": p95(built["warm"]),
        "context_build_ms_10k_turns_cold": p95(built["cold"]),
    }
    return figures, {"{} session opened, ms": resumed, "{} context, ms": built}


def measure(peers: Peers, folder: Path, rounds: int, turns: int) -> tuple[dict[str, float | None], dict[str, Rates]]:
    """The figures, and the measurements behind them."""
    with SaverProcesses.ready(peers, folder) as savers:
        sizes, rates, puts = measure_chat(savers, rounds, turns)
        fixed = measure_fixed(savers, rounds)
    figures: dict[str, float | None] = {
        "chat1000_bytes_vs_langgraph_sqlite": ratio(sizes, "duramen", "sqlite"),
        "chat1000_bytes_vs_delta": ratio(sizes, "duramen", "delta"),
        "put_1000_vs_10": ratio(puts, "last", "tenth"),
        "put_vs_langgraph_sqlite": ratio(rates, "duramen", "sqlite"),
        "put_2kb_vs_langgraph_sqlite": ratio(fixed, "duramen", "sqlite"),
    }
    measurements = {
        "chat {}, bytes": sizes,
        "chat {}, puts/s": rates,
        "{} put, us": puts,
        "2 KB {}, puts/s": fixed,
    }
    return figures, measurements


def main() -> None:
    parser = argument_parser("Checkpoints compared with LangGraph's own.", rounds=5)
    parser.add_argument("--turns", type=int, default=1000, help="number of turns of the conversation (default: 1000)")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        peers = Peers.none(folder) if chosen.no_peers else Peers.install(chosen.peers, folder)
        figures, measurements = measure(peers, folder, chosen.rounds, chosen.turns)
        of_sessions, session_times = measure_sessions(folder, chosen.rounds, chosen.turns / 1000)
    notes = [f"no {peer}: {why}" for peer, why in peers.failed.items()]
    version = peers.versions.get("langgraph")
    figures, measurements = figures | of_sessions, measurements | session_times
    title = f"duramen and langgraph {version}" if version else "duramen"
    print_figures(title, figures, measurements, notes)
    if chosen.json:
        print(figures_json(figures))


if __name__ == "__main__":
    main()
