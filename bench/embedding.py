"""The default embedder in both precisions: its speed, its memory, its accuracy and its search results.

    python bench/embedding.py [--rounds 40] [--data LOCOMO.json] [--json]

Times are medians of processor time on one thread. The precisions alternate, round by round. `of_6` is the time per text
for six texts of the same length. Load time and memory are measured in separate processes, without the share of Python
and NumPy. With --data (LoCoMo's JSON) the benchmark also measures a search by vectors alone (recall at 10, questions of
categories 1 to 4, each within its own conversation) for all combinations of precisions of stored vectors and questions.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from rich.console import Console
from rich.table import Table

from duramen.embedders import MiniLM, Precision, best_precision, install_model
from duramen.ports import Vectors

PRECISIONS = ("int8", "float32") if best_precision() is Precision.INT8 else ("float32",)
LOADING = """
import sys, time, numpy
from duramen.embedders import MiniLM
def mb(line):
    return next(int(one.split()[1]) for one in open("/proc/self/status") if one.startswith(line)) / 1024
before, began = mb("VmRSS"), time.perf_counter()
minilm = MiniLM.load(precision=sys.argv[1])
loaded = time.perf_counter()
minilm.embed(["a text"] * 20 + ["a longer text " * 60])
print((loaded - began) * 1e3, mb("VmRSS") - before)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40, help="number of rounds (default: 40)")
    parser.add_argument("--data", type=Path, metavar="LOCOMO.json", help="also measure search results on this data")
    parser.add_argument("--json", action="store_true", help="print one JSON object on the last line")
    asked = parser.parse_args()
    installed = install_model()
    embedders = {precision: MiniLM(installed, precision=precision) for precision in PRECISIONS}
    figures: dict[str, dict[str, float]] = {precision: {} for precision in PRECISIONS}
    for tokens, count in ((12, 1), (12, 6), (39, 1), (39, 6), (200, 1)):
        texts = [" ".join(["word"] * (tokens - 2))] * count  # one token per word, plus one at the start and the end
        for precision, value in latencies(embedders, texts, asked.rounds, 5 if tokens * count < 40 else 1).items():
            figures[precision][f"ms_{tokens}_tokens{'_of_6' if count == 6 else ''}"] = value / count
    for precision in PRECISIONS:
        figures[precision] |= loading(precision, max(asked.rounds // 8, 1))
    show("The default embedder", figures)
    found: dict[str, dict[str, float]] = {}
    if asked.data is not None:
        found = search(json.loads(asked.data.read_text(encoding="utf-8")), embedders)
        show("Precision of stored vectors / of questions", found)
    if asked.json:
        print(json.dumps({"precisions": figures, "search": found}))


def latencies(embedders: Mapping[str, MiniLM], texts: Sequence[str], rounds: int, repeats: int) -> dict[str, float]:
    """Milliseconds of processor time for these texts. Each embedder computes them `repeats` times per round."""
    times: dict[str, list[float]] = {precision: [] for precision in embedders}
    for _ in range(rounds):
        for precision, embedder in embedders.items():
            for _ in range(repeats):
                began = time.thread_time()
                embedder.embed(texts)
                times[precision].append((time.thread_time() - began) * 1e3)
    return {precision: statistics.median(values) for precision, values in times.items()}


def loading(precision: str, rounds: int) -> dict[str, float]:
    """Milliseconds to load the embedder, and megabytes of memory after its first use."""
    command = [sys.executable, "-c", LOADING, precision]
    outputs = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(rounds)
    ]
    load, memory = (statistics.median(map(float, values)) for values in zip(*outputs, strict=True))
    return {"load_ms": load, "memory_mb": memory}


def search(data: list[Any], embedders: Mapping[str, MiniLM]) -> dict[str, dict[str, float]]:
    """The recall of each pair of precisions, and the share of its top 10 that float32 finds too."""
    vectors = [{precision: embed(one, embedder) for precision, embedder in embedders.items()} for one in data]
    found = {}
    for stored, asked in product(PRECISIONS, repeat=2):
        recalls, shared, likeness = [], [], []
        for one, made in zip(data, vectors, strict=True):
            top, exact = top10(made[stored][0], made[asked][1]), top10(*made["float32"])
            recalls += recall(one, top)
            shared += [len({*a} & {*b}) / 10 for a, b in zip(top, exact, strict=True)]
            likeness += list((made[stored][0] * made["float32"][0]).sum(axis=1))
        figures = {"recall_at_10": statistics.mean(recalls), "top10_shared": statistics.mean(shared)}
        found[f"{stored} / {asked}"] = figures | {"cosine_min": float(min(likeness)), "questions": len(recalls)}
    return found


def embed(one: Any, embedder: MiniLM) -> tuple[Vectors, Vectors]:
    turns = [f"{turn['speaker']}: {turn['text']}" for turn in turns_of(one)]
    return embedder.embed(turns), embedder.embed([asked["question"] for asked in questions_of(one)])


def turns_of(one: Any) -> list[Any]:
    return [turn for part in one["conversation"].values() if isinstance(part, list) for turn in part]


def questions_of(one: Any) -> list[Any]:
    return [asked for asked in one["qa"] if asked.get("category") in (1, 2, 3, 4) and asked.get("evidence")]


def top10(turns: Vectors, questions: Vectors) -> list[list[int]]:
    top: list[list[int]] = np.argsort(-(questions @ turns.T), axis=1, kind="stable")[:, :10].tolist()
    return top


def recall(one: Any, top: list[list[int]]) -> list[float]:
    """The share of the evidence that was found, for each question."""
    ids = [turn["dia_id"] for turn in turns_of(one)]
    wanted = [{*asked["evidence"]} for asked in questions_of(one)]
    return [len({ids[at] for at in row} & evidence) / len(evidence) for row, evidence in zip(top, wanted, strict=True)]


def show(title: str, rows: Mapping[str, Mapping[str, float]]) -> None:
    names = [*next(iter(rows.values()))]
    table = Table("", *names, title=title)
    for row, figures in rows.items():
        table.add_row(row, *(f"{figures[name]:,.4g}" if name in figures else "" for name in names))
    Console().print(table)


if __name__ == "__main__":
    main()
