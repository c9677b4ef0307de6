"""What a score is measured against: counts, means and deviations over everything that is searched.

`rank` takes them itself from the audiences that it is given, if those are all that is searched. Where only candidates are
ranked, whoever chose them says how things stand in everything they were chosen from: else a good candidate would look
like the average of good candidates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
_MANY = 100_000
"""Values whose deviation need not be exact to the last digit: it would take most of the time."""


class Corpus(NamedTuple):
    """Texts of one sort, living ones: how many there are, how long they are in the mean, and how many of them have each
    term of the question, in its order."""

    count: int  # type: ignore[assignment]  # of texts, not the method of tuples
    mean_length: float
    frequencies: tuple[int, ...]


class Spread(NamedTuple):
    """The mean and the deviation of some values."""

    mean: float
    deviation: float

    @classmethod
    def of(cls, values: NDArray[np.floating]) -> Spread:
        """Of these; none at all have neither."""
        if not values.size:
            return cls(0.0, 0.0)
        mean = float(values.mean(dtype=np.float64))
        if values.size < _MANY:
            return cls(mean, float(values.astype(np.float64).std()))
        apart = values - values.dtype.type(mean)
        return cls(mean, float(np.sqrt(np.dot(apart, apart) / values.size)))

    def standardised(self, values: Floats) -> Floats:
        """Values as deviations from the mean; 0 where every value is the same."""
        if self.deviation <= 1e-9:
            return np.zeros(len(values), dtype=np.float32)
        return ((values - self.mean) / self.deviation).astype(np.float32)


@dataclass(frozen=True, slots=True)
class Measures:
    """How things stand in everything that is searched. Spreads are over what the filters leave, the rest is over all
    that is alive in the audiences."""

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
    """Which part of all memories each speaker said."""
    session_words: Sequence[Floats]
    """For each audience that is ranked, by session: BM25 of the session's words among all sessions."""
    session_best: Sequence[Floats]
    """Likewise: the highest cosine in the session."""
