"""A small embedder that gives the same vectors everywhere, and processes that remember, recall and forget with it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

import numpy as np

import duramen
from duramen.embedders import CallableEmbedder
from duramen.memory.index import segment_writer
from duramen.runtime import drive

from .child_processes import pass_gate

Say = Callable[[str], None]
DIMS = 64
MEANINGS = {"canine": "dog", "hound": "dog", "puppy": "dog", "automobile": "car", "vehicle": "car", "residence": "home"}
"""Synonyms: a paraphrase gets a similar vector although it shares no word."""


def vectors_of(texts: Sequence[str]) -> Any:
    """One row per text that counts its words. Synonyms count as the same word."""
    rows = np.full((len(texts), DIMS), 0.01)
    for row, text in zip(rows, texts, strict=True):
        for word in re.findall(r"\w+", text.lower()):
            row[crc32(MEANINGS.get(word, word).encode("utf-8", "surrogatepass")) % DIMS] += 1
    return rows


EMBEDDER = CallableEmbedder(vectors_of, name="test", dims=DIMS)


def contents(results: Any) -> list[str]:
    """The contents of hits or memories."""
    return [getattr(result, "memory", result).content for result in results]


def open_memory(address: str, **settings: Any) -> duramen.Duramen:
    """A handle with the small embedder."""
    return duramen.open(address, **{"embedder": EMBEDDER, **settings})


def finish_indexing(dm: duramen.Duramen) -> None:
    """Make all vectors and write all segments."""
    dm.memory.catch_up()
    drive(dm.memory._core._service.index_worker.write_segments())


@duramen.step(in_doubt="rerun")
def save_note(text: str) -> str:
    """A step that remembers two memories."""
    duramen.remember(text, key=f"key of {text}")
    duramen.remember(f"{text} once more", kind="reference")
    return text


@duramen.task
def take_notes(count: int) -> int:
    """Notes from steps, and one from the task itself."""
    for number in range(count):
        save_note(f"note {number}")
    duramen.remember("all notes are taken")
    return count


def run_notes(say: Say, address: str, count: int) -> None:
    """Take notes in a run. Called again after a kill, it resumes the run."""
    with open_memory(address, embedder="none") as dm:
        dm._core._engine.patience = 0
        say(str(dm.run(take_notes, count, id="notes")))


def remember_facts(say: Say, address: str, count: int, index: bool = False) -> None:
    """Remember the same facts in two sessions. Print the number of each that is stored."""
    with open_memory(address, embedder=EMBEDDER if index else "none") as dm:
        for number in range(count):
            dm.session(f"s{number % 2}").remember(f"fact {number // 2}", subject="ada" if number % 3 else None)
            say(str(number))
        if index:
            dm.memory.catch_up()


def remember_and_pack(say: Say, address: str, count: int) -> None:
    """Remember facts with their vectors, and pack them into small segments."""
    segment_writer.MIN_CHANGES, segment_writer.MAX_CHANGES = 8, 16
    with open_memory(address) as dm:
        dm.memory._core._service.index_worker._stopping.set()  # no background work
        for number in range(count):
            dm.session(f"s{number % 2}").remember(f"fact {number}", kind="episode", subject="ada")
        finish_indexing(dm)
        say("packed")


def forget_each(say: Say, address: str, ids: list[str]) -> None:
    """Forget memories by their ids. Print each id that is forgotten."""
    with open_memory(address, embedder="none") as dm:
        for id in ids:
            dm.memory.forget(id)
            say(id)


def remember_repeatedly(say: Say, address: str, text: str, gate: str, count: int, session: str) -> None:
    """Remember the same text `count` times."""
    with open_memory(address, embedder="none") as dm:
        say("ready")
        pass_gate(gate)
        for _ in range(count):
            dm.session(session).remember(text)
        say("done")


def recall_after_gates(say: Say, address: str, query: str, gates: list[str]) -> None:
    """Recall, and again after each gate, with the same handle and its caches."""
    with open_memory(address) as dm:
        for gate in ["", *gates]:
            if gate:
                pass_gate(gate)
            say(json.dumps(contents(dm.memory.recall(query, everyone=True))))


def remember_batches(say: Say, *, address: str, count: int) -> None:
    """Remember batches of three memories. Print the number of each batch that is stored."""
    with open_memory(address, embedder="none") as dm:
        for number in range(count):
            dm.memory.remember_all([f"part {part} of {number}" for part in range(3)], subject="ada")
            say(str(number))
