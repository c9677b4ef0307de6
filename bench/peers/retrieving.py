"""A child that takes texts in and searches them, with the model that duramen uses.

    python -m peers.with_chroma own FOLDER       the peer embeds, in the way in which its users have it
    python -m peers.with_chroma same FOLDER      duramen's embedder is handed to it

Says its version, how like its vectors are to ours and what else there is to know; then takes orders: {"name": …,
"texts": […]} to take a conversation in, one text after the other, and {"name": …, "question": …} to search it. Answers
with the seconds that it took, and the places of what was found.
"""

from __future__ import annotations

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from .line import private_stdout
from .minilm import likeness

LIMIT = 10


class Retrieval(ABC):
    """A system that keeps texts and finds them again."""

    own_runtime: bool
    """Whether it embeds by itself."""

    def __init__(self) -> None:
        self.remarks: list[str] = []

    @abstractmethod
    def open(self, folder: str) -> str:
        """Get ready and return the system's version."""

    @abstractmethod
    def embed(self, text: str) -> Sequence[float]:
        """The vector of a text as it is kept."""

    @abstractmethod
    def take_in(self, name: str, texts: Sequence[str]) -> None:
        """Keep these texts under a name, vectors included."""

    @abstractmethod
    def search(self, name: str, question: str) -> Sequence[int]:
        """The places of the best of them, best first."""


def serve(system: Retrieval) -> None:
    """Do what is asked, until the benchmark hangs up."""
    say = private_stdout()
    mode, folder = sys.argv[1:]
    system.own_runtime = mode == "own"
    os.makedirs(folder, exist_ok=True)
    version = system.open(folder)
    say(ready={"version": version, "likeness": likeness(system.embed), "remarks": system.remarks})
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
