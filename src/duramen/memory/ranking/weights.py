"""The weights of the parts of a score."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Weights:
    """The weight of each part. The values are rounded on purpose and measured by bench/recall.py.

    Words and meaning are in standard deviations over everything that is searched. The comment of each other weight
    names its unit.
    """

    words: float = 0.2
    """The memory's own words (BM25)."""
    near_words: float = 0.2
    """The words of the memory and of the ones before and after it, as one text, because an answer rarely repeats the
    words of its question."""
    meaning: float = 0.6
    """The cosine of the vectors."""
    neighbours: float = 0.3
    """The mean relevance (the sum of the three parts above) of the memories before and after it."""
    answer: float = 0.4
    """The relevance of the memory before it, if that is a question of another speaker: this memory is the answer."""
    session_words: float = 0.2
    """BM25 of the whole session among all sessions. Not standardised, so that it is 0 if no session matches."""
    session_meaning: float = 0.2
    """The highest cosine in the session, standardised."""
    speaker: float = 2.0
    """1 if the person asked about said it, times twice this person's share of the memories (at most 1). Of two
    speakers, each mostly talks about themselves. In a large group, others talk about them."""
    substance: float = 0.6
    """The logarithm of the number of different meaningful words in a turn, above the mean of all turns. A turn such as
    "Thanks!" answers nothing. For facts it is 0."""
    time: float = 2.0
    """How close (0 to 1) the memory's dates are to those that the question names."""
    dated: float = 1.0
    """1 if the question asks for a time and the text names one."""
    importance: float = 0.5
    """The importance above or below the middle (0.5)."""
    recency: float = 0.05
    """1 for a new memory, half after `half_life_days`. It decides between equal scores, so its weight is small."""
    access: float = 0.05
    """The logarithm of 1 plus the number of recalls."""
    half_life_days: float = 90.0


DEFAULT = Weights()
