"""The embedder port: turns texts into vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:  # a store without vectors must not import NumPy
    import numpy as np
    import numpy.typing as npt

Vectors: TypeAlias = "npt.NDArray[np.float32]"
"""One row per text."""


@dataclass(frozen=True, slots=True)
class EmbedderIdentity:
    """What a store records about an embedder. Two embedders have equal identities if and only if their vectors can be
    searched together.

    `checksum` is the SHA-256 of the weights, or "" for a model on a server, whose weights are not known.
    """

    name: str
    dims: int
    checksum: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(filter(None, (f'{self.dims} dimensions', self.checksum[:8])))})"


class Embedder(Protocol):
    """Turns texts into vectors whose scalar product is their similarity. Its methods block and may be called from any
    thread.

    `embed` returns one float32 row of length 1 per text, in order. The same text gives the same row, whatever other
    texts are in the call. No texts give an array of shape (0, dims). `embed` raises `EmbedderFailed` for any failure,
    so that recall can continue without vectors. `dims` and `identity` may have to ask a server the first time, and
    raise the same error.
    """

    @property
    def name(self) -> str:
        """A short name, for messages."""
        ...

    @property
    def dims(self) -> int:
        """The number of dimensions of a vector."""
        ...

    @property
    def identity(self) -> EmbedderIdentity:
        """What a store records about this embedder."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row per text, in order."""
        ...
