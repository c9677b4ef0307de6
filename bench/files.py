"""The time of a sync of memory files: the first sync, without changes, and after one change.

    python bench/files.py [--memories 10000] [--rounds 5] [--json]

The store and the files are in a temporary folder, and every file is synced to disk. The figures are medians.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duramen


def fill(path: Path, count: int) -> None:
    """Fill a store with memories of several kinds."""
    kinds = ("fact", "fact", "fact", "reference", "blocker", "preference")
    with duramen.open(path, embedder="none") as dm:
        for number in range(count):
            text = f"The depot of route {number} closes at {number % 24}:30, and the key lies with post {number}."
            dm.memory.remember(text, kind=kinds[number % len(kinds)], metadata={"tags": [f"route-{number % 50}"]})


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(count: int, rounds: int) -> dict[str, float]:
    """The figures by name."""
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder) / "agent.db"
        fill(store, count)
        with duramen.open(store, embedder="none") as dm:
            first = []
            for number in range(max(1, rounds // 2)):
                with dm.files(Path(folder) / f"files-{number}") as files:
                    first.append(seconds(files.sync))
            with dm.files(Path(folder) / "files-0") as files:
                idle = [seconds(files.sync) for _ in range(rounds)]
                changed, edited = [], []
                for number in range(rounds):
                    dm.memory.remember(f"The new rule number {number} holds from May on")
                    changed.append(seconds(files.sync))
                    path = sorted((Path(folder) / "files-0/workspace/default/knowledge/facts").glob("the-depot*"))[
                        number
                    ]
                    path.write_text(path.read_text().replace("closes at", "shuts at"))
                    edited.append(seconds(files.sync))
    return {
        "sync_10k_s": round(statistics.median(first), 2),
        "noop_sync_s": round(statistics.median(idle), 3),
        "one_change_ms": round(statistics.median(changed) * 1000, 1),
        "one_edit_ms": round(statistics.median(edited) * 1000, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memories", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    given = parser.parse_args()
    figures = measure(given.memories, given.rounds)
    for name, value in figures.items():
        print(f"{name:16} {value:10}")
    if given.json:
        print(json.dumps(figures))


if __name__ == "__main__":
    main()
