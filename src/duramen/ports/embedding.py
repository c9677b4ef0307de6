"""The embedder port: turns texts into vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:  # a store without vectors must not pay for it
    import numpy as np
    import numpy.typing as npt

Vectors: TypeAlias = "npt.NDArray[np.float32]"
"""One row for each text."""


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """What a store records of an embedder. Two embedders have equal identities if and only if their vectors can be
    searched together.

    `checksum` is the SHA-256 of the weights, or "" if it cannot be known (a model on a server).
    """

    name: str
    dims: int
    checksum: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(filter(None, (f'{self.dims} dimensions', self.checksum[:8])))})"


class Embedder(Protocol):
    """Turns texts into vectors whose scalar product is their similarity. Blocks; called from any thread.

    `embed` returns one row of length 1 for each text, in order, in float32; the same text gives the same row whatever
    else is in the call. No texts give an array of shape (0, dims). It raises `EmbedderFailed` for whatever went wrong
    on the way, so that recall can answer from the rest. `dims` and `identity` may have to ask a server the first time,
    and raise the same.
    """

    @property
    def name(self) -> str:
        """A short name for messages."""
        ...

    @property
    def dims(self) -> int:
        """The number of dimensions of a vector."""
        ...

    @property
    def identity(self) -> EmbedderIdentity:
        """The identity that a store records."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for each text."""
        ...
