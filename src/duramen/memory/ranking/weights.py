"""What each part of a score counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Weights:
    """What each part counts. Round on purpose; measured by bench/recall.py.

    Words and meaning are in standard deviations of what is searched; the others are in the unit that their comment names.
    """

    words: float = 0.2
    """The memory's own words (BM25)."""
    near_words: float = 0.2
    """Words of the memory and of the one before and after it, read as one text: an answer rarely repeats them."""
    meaning: float = 0.6
    """Cosine of the vectors."""
    neighbours: float = 0.3
    """Of the mean relevance (the three above) of the memories before and after."""
    answer: float = 0.4
    """Of the relevance of the one before, where that is another speaker's question: this is its answer."""
    session_words: float = 0.2
    """BM25 of the whole session among the sessions, not standardised: no session matching must count nothing."""
    session_meaning: float = 0.2
    """The session's best vector, standardised."""
    speaker: float = 2.0
    """Said by the person asked about, times twice that person's share of the audience, at most 1: two
    people speak of themselves; in a crowd, others speak of them."""
    substance: float = 0.6
    """For each natural logarithm of a turn's different words that carry meaning above the mean of the turns: talk has
    filler, and "Thanks!" answers nothing. Facts are never filler: 0."""
    time: float = 2.0
    """Nearness (0 to 1) of the memory's times to those that the question names."""
    dated: float = 1.0
    """The question asks for a time and the text names one."""
    importance: float = 0.5
    """For each point of importance above or below the middle (0.5)."""
    recency: float = 0.05
    """Newness (1 now, half after `half_life_days`): decides between equals, so it is small."""
    access: float = 0.05
    """For each natural logarithm of the times that it was recalled."""
    half_life_days: float = 90.0


DEFAULT = Weights()
