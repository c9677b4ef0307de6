"""What turns texts into vectors."""

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
    """What a store freezes: two embedders whose vectors may be searched together have equal identities, no others.

    `checksum` is the SHA-256 of the weights, or "" where nobody can know it (a server's model).
    """

    name: str
    dims: int
    checksum: str = ""

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(filter(None, (f'{self.dims} dimensions', self.checksum[:8])))})"


class Embedder(Protocol):
    """Turns texts into vectors whose scalar product is their likeness. Blocks; called from any thread.

    `embed` returns one row of length 1 for each text, in order, in float32; the same text gives the same row whatever
    else is in the call. No texts give an array of shape (0, dims). It raises `EmbedderFailed` for whatever went wrong
    on the way, so that recall can answer from the rest. `dims` and `identity` may have to ask a server the first time,
    and raise the same.
    """

    @property
    def name(self) -> str:
        """What to call it in a line."""
        ...

    @property
    def dims(self) -> int:
        """The length of a row."""
        ...

    @property
    def identity(self) -> EmbedderIdentity:
        """What a store remembers it by."""
        ...

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row for each text."""
        ...
