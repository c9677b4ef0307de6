"""Terms: splits a text into words, stems them, and numbers them, for the search by words.

Texts keep their stop words, because BM25 uses the length of a text. Questions drop them: otherwise "what did she do"
would rank by its most common words. The stemmer is Snowball's for English. `snowballstemmer` is pure Python and uses
PyStemmer where that is installed.
"""

from __future__ import annotations

import re
import threading
from functools import lru_cache
from zlib import crc32

import snowballstemmer

_STOP_WORDS = """
    a about again also am an and any are as at be because been being both but by can could d did didn do does
    doesn doing don down during each for from had has have having he her here hers him his how i if in into is isn
    it its just ll m may me might must my myself no nor not of off on only or our ours out over own re s same shall
    she should so some such t than that the their theirs them then there these they this those to too under up ve
    very was wasn we were what when where which while who whom whose why will with would you your yours
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

_WORD = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile(r"['\u2019]s\b")


class _Stemmers(threading.local):
    """One stemmer per thread. A stemmer holds its current word, so threads cannot share one."""

    def __init__(self) -> None:
        self.english = snowballstemmer.stemmer("english")


_stemmers = _Stemmers()


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """The stem of one lower-case word."""
    return str(_stemmers.english.stemWord(word))


def split(text: str) -> list[str]:
    """The words of a text in order, in lower case."""
    return _WORD.findall(_POSSESSIVE.sub(" ", text.lower()))


def terms(text: str) -> list[str]:
    """The stems of a text in order, including stop words."""
    return [stem(word) for word in split(text)]


def query_terms(question: str) -> tuple[str, ...]:
    """The distinct stems to search a question by, without stop words; all of its words if it has only stop words."""
    words = split(question)
    wanted = [word for word in words if word not in STOP_WORDS] or words
    return tuple(dict.fromkeys(stem(word) for word in wanted))


@lru_cache(maxsize=65536)
def number_of(term: str) -> int:
    """The number under which a term is stored. Its 32 bits are enough to distinguish the words of a language."""
    return crc32(term.encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=65536)
def number_of_word(word: str) -> int:
    """The number of the term of a word."""
    return number_of(stem(word))
