"""The default embedder in each of its runtimes, side by side: how quick, how large, how exact, and what search finds.

python bench/embedding.py [--rounds 40] [--data LOCOMO.json] [--json]

Latencies are medians over rounds in which every runtime has its turn, on one thread; `of_8` is of eight texts that are
computed together, for each of them. Load time and memory are those of
processes that do nothing else, less what Python and NumPy take. With --data (LoCoMo's JSON) it says what a search by
vectors alone finds (recall at 10, questions of categories 1 to 4, each within its own conversation) when the stored
vectors and the question's are of the same runtime or of different ones.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from rich.console import Console
from rich.table import Table

from duramen.embedders import Installed, install
from duramen.embedders.minilm_int8 import Int8Runtime, exact_here
from duramen.embedders.minilm_numpy import Floats, NumpyRuntime
from duramen.embedders.minilm_onnx import OnnxRuntime
from duramen.embedders.safetensors import read_safetensors
from duramen.embedders.wordpiece import WordPiece

Compute = Callable[[Sequence[Sequence[int]]], Floats]
KINDS = (
    *(["onnxruntime-int8"] if exact_here() else []),
    *("onnxruntime", "numpy"),
)
SHORT = "She moved to Lisbon last May with her dog."
LONG = "We talked about the budget of the project, and then about her garden, her two sons and the long way home. " * 9
LOADING = """
import sys, time, numpy
from duramen.embedders import MiniLM
def mb(line):
    return next(int(told.split()[1]) for told in open("/proc/self/status") if told.startswith(line)) / 1024
before, began = mb("VmRSS"), time.perf_counter()
minilm = MiniLM.load(runtime=sys.argv[1])
loaded = time.perf_counter()
minilm.embed(["a text"] * 20 + ["a longer text " * 60])
print((loaded - began) * 1e3, mb("VmRSS") - before)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=40, help="how often each is measured (40)")
    parser.add_argument("--data", type=Path, metavar="LOCOMO.json", help="measure what a search finds, too")
    parser.add_argument("--json", action="store_true", help="one JSON object on the last line")
    asked = parser.parse_args()
    installed = install()
    tokenizer = WordPiece.load(installed.tokenizer)
    runtimes = load_all(installed)
    figures: dict[str, dict[str, float]] = {kind: {} for kind in KINDS}
    for limit, count in ((12, 1), (12, 8), (39, 1), (39, 8), (200, 1)):
        texts = [tokenizer.encode(SHORT if limit == 12 else LONG, limit)] * count
        for kind, value in latencies(runtimes, texts, asked.rounds, 5 if limit * count < 40 else 1).items():
            figures[kind][f"ms_{limit}_tokens{'_of_8' if count == 8 else ''}"] = value / count
    for kind in KINDS:
        figures[kind] |= loading(kind, max(asked.rounds // 8, 1))
    show("The default embedder", figures)
    found: dict[str, dict[str, float]] = {}
    if asked.data is not None:
        found = search(json.loads(asked.data.read_text(encoding="utf-8")), tokenizer, runtimes)
        show("Stored by / asked by", found)
    if asked.json:
        print(json.dumps({"runtimes": figures, "search": found}))


def load_all(installed: Installed) -> dict[str, Compute]:
    tensors = read_safetensors(installed.weights)
    made: dict[str, Compute] = {"onnxruntime": OnnxRuntime(installed.graph, tensors), "numpy": NumpyRuntime(tensors)}
    if "onnxruntime-int8" in KINDS:
        made["onnxruntime-int8"] = Int8Runtime(installed.int8_graph, tensors)
    return {kind: made[kind] for kind in KINDS}


def latencies(
    runtimes: Mapping[str, Compute], texts: Sequence[Sequence[int]], rounds: int, repeats: int
) -> dict[str, float]:
    """Milliseconds for these texts; in each round each runtime computes them `repeats` times."""
    times: dict[str, list[float]] = {kind: [] for kind in runtimes}
    for _ in range(rounds):
        for kind, compute in runtimes.items():
            for _ in range(repeats):
                began = time.perf_counter()
                compute(texts)
                times[kind].append((time.perf_counter() - began) * 1e3)
    return {kind: statistics.median(values) for kind, values in times.items()}


def loading(runtime: str, rounds: int) -> dict[str, float]:
    """Milliseconds until the embedder can be used, and megabytes after it was."""
    command = [sys.executable, "-c", LOADING, runtime]
    told = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() for _ in range(rounds)]
    load, memory = (statistics.median(map(float, values)) for values in zip(*told, strict=True))
    return {"load_ms": load, "memory_mb": memory}


def search(data: list[Any], tokenizer: WordPiece, runtimes: Mapping[str, Compute]) -> dict[str, dict[str, float]]:
    """What each pair of runtimes finds, and how much of its top 10 is that of float32."""
    vectors = [{kind: embed(one, tokenizer, compute) for kind, compute in runtimes.items()} for one in data]
    found = {}
    for stored, asked in product(KINDS, repeat=2):
        recalls, shared, likeness = [], [], []
        for one, made in zip(data, vectors, strict=True):
            top, exact = top10(made[stored][0], made[asked][1]), top10(*made["numpy"])
            recalls += recall(one, top)
            shared += [len({*a} & {*b}) / 10 for a, b in zip(top, exact, strict=True)]
            likeness += list((made[stored][0] * made["numpy"][0]).sum(axis=1))
        figures = {"recall_at_10": statistics.mean(recalls), "top10_shared": statistics.mean(shared)}
        found[f"{stored} / {asked}"] = figures | {"cosine_min": float(min(likeness)), "questions": len(recalls)}
    return found


def embed(one: Any, tokenizer: WordPiece, compute: Compute) -> tuple[Floats, Floats]:
    turns = [f"{turn['speaker']}: {turn['text']}" for turn in turns_of(one)]
    texts = (turns, [asked["question"] for asked in questions_of(one)])
    turns_made, questions_made = (
        np.concatenate([compute([tokenizer.encode(text)]) for text in group]) for group in texts
    )
    return turns_made, questions_made


def turns_of(one: Any) -> list[Any]:
    return [turn for part in one["conversation"].values() if isinstance(part, list) for turn in part]


def questions_of(one: Any) -> list[Any]:
    return [asked for asked in one["qa"] if asked.get("category") in (1, 2, 3, 4) and asked.get("evidence")]


def top10(turns: Floats, questions: Floats) -> list[list[int]]:
    top: list[list[int]] = np.argsort(-(questions @ turns.T), axis=1, kind="stable")[:, :10].tolist()
    return top


def recall(one: Any, top: list[list[int]]) -> list[float]:
    """For each question the share of its evidence that was found."""
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
