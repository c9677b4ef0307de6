"""A child that takes texts in and searches them, with the embedder that holdfast uses.

    python -m peers.with_chroma search FOLDER

Says its version, then takes orders: {"name": …, "texts": […]} to take a conversation in, one text after the other, and
{"name": …, "question": …} to search it. Answers with the seconds that it took, and the places of what was found.
"""

from __future__ import annotations

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import Any

from .line import private_stdout

LIMIT = 10


class Retrieval(ABC):
    """A system that keeps texts and finds them again."""

    @abstractmethod
    def open(self, folder: str) -> str:
        """Get ready and return the system's version."""

    @abstractmethod
    def take_in(self, name: str, texts: Sequence[str]) -> None:
        """Keep these texts under a name, vectors included."""

    @abstractmethod
    def search(self, name: str, question: str) -> Sequence[int]:
        """The places of the best of them, best first."""


def embedded(texts: Sequence[str]) -> list[list[float]]:
    """The vectors of some texts, from our own embedder: the comparison is of everything else."""
    rows: list[list[float]] = _embedder().embed(list(texts)).tolist()
    return rows


@cache
def _embedder() -> Any:
    from holdfast.embedders import load_embedder

    return load_embedder("minilm", fetch=False)


def serve(system: Retrieval) -> None:
    """Do what is asked, until the benchmark hangs up."""
    say = private_stdout()
    _, folder = sys.argv[1:]
    version = system.open(folder)
    embedded(["warm"])
    say(version=version)
    for line in sys.stdin:
        order = json.loads(line)
        began = time.perf_counter()
        if "texts" in order:
            system.take_in(order["name"], order["texts"])
            say(done={"seconds": time.perf_counter() - began})
        else:
            found = list(system.search(order["name"], order["question"]))
            say(done={"seconds": time.perf_counter() - began, "found": found})
    os._exit(0)  # some systems have threads that do not end
