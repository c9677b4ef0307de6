"""A peer that stores and searches texts with the same model as duramen.

    python -m peers.chroma_peer own FOLDER       the peer embeds with its default runtime
    python -m peers.chroma_peer same FOLDER      the peer uses duramen's embedder

It writes its version, the cosine of its vectors with duramen's, and remarks. Then it reads requests. {"name": …,
"texts": […]} adds a conversation, text by text. {"name": …, "question": …} searches it. It answers with the seconds,
and for a search with the positions of the texts found.
"""

from __future__ import annotations

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from .minilm import likeness
from .protocol import answer_writer

LIMIT = 10


class RetrievalSystem(ABC):
    """A system that stores texts and searches them."""

    own_runtime: bool
    """Whether it embeds with its own runtime."""

    def __init__(self) -> None:
        self.remarks: list[str] = []

    @abstractmethod
    def open(self, folder: str) -> str:
        """Open the store and return the version of the system."""

    @abstractmethod
    def embed(self, text: str) -> Sequence[float]:
        """The vector that is stored for a text."""

    @abstractmethod
    def add_texts(self, name: str, texts: Sequence[str]) -> None:
        """Store texts and their vectors under a name."""

    @abstractmethod
    def search(self, name: str, question: str) -> Sequence[int]:
        """The positions of the best texts, best first."""


def run_peer(system: RetrievalSystem) -> None:
    """Execute requests until the benchmark closes the pipe."""
    answer = answer_writer()
    mode, folder = sys.argv[1:]
    system.own_runtime = mode == "own"
    os.makedirs(folder, exist_ok=True)
    version = system.open(folder)
    answer(ready={"version": version, "likeness": likeness(system.embed), "remarks": system.remarks})
    for line in sys.stdin:
        request = json.loads(line)
        began = time.perf_counter()
        if "texts" in request:
            system.add_texts(request["name"], request["texts"])
            answer(done={"seconds": time.perf_counter() - began})
        else:
            found = list(system.search(request["name"], request["question"]))
            answer(done={"seconds": time.perf_counter() - began, "found": found})
    os._exit(0)  # some systems have threads that do not end
