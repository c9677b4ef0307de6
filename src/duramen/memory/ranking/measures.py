"""Measures: counts, means and deviations over everything that is searched. They make scores comparable.

`rank` computes them from its indexes if these hold everything. If it ranks only candidates, their source provides the
measures of the whole corpus. Without them, a good candidate would look average among other good candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
_MANY = 100_000
"""From this many values on, the deviation is computed in single precision, which is much faster."""


class Corpus(NamedTuple):
    """Corpus statistics for BM25: the number of texts, their mean length, and how many texts have each term of the
    question, in the order of the question."""

    count: int  # type: ignore[assignment]  # of texts, not the method of tuples
    mean_length: float
    frequencies: tuple[int, ...]


class Spread(NamedTuple):
    """The mean and the standard deviation of some values."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: NDArray[np.floating]) -> Spread:
        """The spread of values; zeros if there are none."""
        if not values.size:
            return cls(0.0, 0.0)
        mean = float(values.mean(dtype=np.float64))
        if values.size < _MANY:
            return cls(mean, float(values.astype(np.float64).std()))
        apart = values - values.dtype.type(mean)
        return cls(mean, float(np.sqrt(np.dot(apart, apart) / values.size)))

    def standardised(self, values: Floats) -> Floats:
        """Values as standard scores; 0 if all values are the same."""
        if self.deviation <= 1e-9:
            return np.zeros(len(values), dtype=np.float32)
        return ((values - self.mean) / self.deviation).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Measures:
    """Statistics of everything that is searched. Spreads are over the memories that the filters leave. The others are
    over all memories of the indexes."""

    own: Corpus
    """Statistics of memories."""
    near: Corpus
    """Statistics of memories, each read together with the one before and after it in its session. Equal to `own` if
    there are no sessions."""
    words: Spread
    """The spread of BM25 over memories."""
    near_words: Spread
    """The spread of BM25 over memories with their neighbours."""
    meaning: Spread
    """The spread of the cosines of memories that have a vector."""
    session_meaning: Spread
    """The spread of the highest cosine in a memory's session, over memories that are in a session."""
    substance: float
    """The mean `substance` of the turns."""
    speakers: Mapping[str, float]
    """Each speaker's share of the memories."""
    session_words: Sequence[Floats]
    """For each ranked index and each session: BM25 of the session's words among all sessions."""
    session_best: Sequence[Floats]
    """For each ranked index and each session: the highest cosine in the session."""
