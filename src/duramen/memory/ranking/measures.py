"""What scores are measured against: counts, means and deviations over everything that is searched.

`rank` computes them from its indexes if these hold everything. If it ranks candidates only, their source provides the
measures of everything they were chosen from. Otherwise a good candidate would look average among good candidates.
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
    """Collection statistics for BM25: how many texts there are, their mean length, and how many of them have each term of
    the question, in its order."""

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
    """Statistics of everything that is searched. Spreads are over what the filters leave, the rest is over all memories of
    the indexes."""

    own: Corpus
    """Memories."""
    near: Corpus
    """Memories, each read with the one before and after it in its session; the same where there are no sessions."""
    words: Spread
    """Of BM25 over memories."""
    near_words: Spread
    """Of BM25 over memories with their neighbours."""
    meaning: Spread
    """Of the cosines of those that have a vector."""
    session_meaning: Spread
    """Of the highest cosine in the session of each memory that is in one."""
    substance: float
    """The mean of the turns' `substance`."""
    speakers: Mapping[str, float]
    """The share of memories of each speaker."""
    session_words: Sequence[Floats]
    """For each index that is ranked, by session: BM25 of the session's words among all sessions."""
    session_best: Sequence[Floats]
    """Likewise: the highest cosine in the session."""
