"""BERT's uncased WordPiece tokenizer for all-MiniLM-L6-v2. It gives the same ids as the `tokenizers` library, without
that library's sixteen packages."""

from __future__ import annotations

import json
import re
import string
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

_LONGEST_WORD = 100
_PIECE = 2_048
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_OTHER = frozenset(["Cc", "Cf", "Co", "Cs"])  # not Cn: a newer Unicode version may assign these characters
_WITHOUT_CONTROLS = {code: " " if chr(code) in "\t\n\r" else None for code in (*range(32), 127)}
_ASCII_WORD = re.compile(r"[a-z0-9]+|[!-/:-@\[-`{-~]")
_LITERAL = re.compile("(" + "|".join(re.escape(token) for token in _SPECIAL) + ")")
_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),  # the library has 2B920 instead of 2B820
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class WordPiece:
    """Converts text to the token ids that the model was trained on. Thread-safe. The same text gives the same ids."""

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self._vocabulary = vocabulary
        self._unknown, self._first, self._last = (vocabulary[token] for token in ("[UNK]", "[CLS]", "[SEP]"))
        self._ids_of_word = lru_cache(maxsize=65_536)(self._split_word)

    @classmethod
    def load(cls, path: Path) -> WordPiece:
        """Read the vocabulary of a `tokenizer.json`."""
        return cls.parse(path.read_bytes())

    @classmethod
    def parse(cls, data: bytes) -> WordPiece:
        """Read the vocabulary from the content of a `tokenizer.json`."""
        return cls(json.loads(data)["model"]["vocab"])

    def encode(self, text: str, limit: int = 256) -> list[int]:
        """The ids of the text between [CLS] and [SEP], at most `limit` in total. The rest of the text is cut off.

        A special token in the text, such as "[SEP]", counts as that token, as in the library.
        """
        ids = [self._first]
        for word in self._words(text):
            ids += self._ids_of_word(word)
            if len(ids) >= limit:
                break
        return [*ids[: limit - 1], self._last]

    def _words(self, text: str) -> Iterator[str]:
        for part in _LITERAL.split(text):
            if part in _SPECIAL:
                yield part
            else:
                for piece in _pieces(part):
                    yield from filter(None, _plain_words(piece))

    def _split_word(self, word: str) -> tuple[int, ...]:
        if word in _SPECIAL:
            return (self._vocabulary[word],)
        if len(word) > _LONGEST_WORD:
            return (self._unknown,)
        ids, start, prefix = [], 0, ""
        while start < len(word):
            for end in range(len(word), start, -1):
                found = self._vocabulary.get(prefix + word[start:end])
                if found is not None:
                    break
            else:
                return (self._unknown,)
            ids.append(found)
            start, prefix = end, "##"
        return tuple(ids)


def _pieces(text: str) -> Iterator[str]:
    """Yield the text in pieces that end before a space, so that a long text is processed only up to the limit."""
    start = 0
    while len(text) - start > _PIECE:
        space = text.find(" ", start + _PIECE, start + 16 * _PIECE)
        end = space if space >= 0 else start + 16 * _PIECE
        yield text[start:end]
        start = end
    yield text[start:]


def _plain_words(text: str) -> list[str]:
    """Words and single punctuation marks, cleaned, in lower case and without accents."""
    if text.isascii():  # most texts are; the result is the same, in an eighth of the time
        return _ASCII_WORD.findall(text.translate(_WITHOUT_CONTROLS).lower())
    cleaned = "".join(map(_clean, text))
    if not cleaned.isascii():
        # Accents are removed before lower-casing, as in the library. The order matters for the Turkish dotted I.
        decomposed = unicodedata.normalize("NFD", cleaned)
        cleaned = "".join(char for char in decomposed if unicodedata.category(char) != "Mn")
    # Lower-case each letter separately: for a whole word, Python uses another form of a final Greek sigma.
    return "".join(_spaced_mark(lowered) for char in cleaned for lowered in char.lower()).split(" ")


@lru_cache(maxsize=16_384)
def _clean(char: str) -> str:
    if char in "\t\n\r" or (char.isspace() and unicodedata.category(char) != "Cc"):
        return " "
    if char == "\ufffd" or unicodedata.category(char) in _OTHER:
        return ""
    code = ord(char)
    return f" {char} " if any(first <= code <= last for first, last in _IDEOGRAPHS) else char


@lru_cache(maxsize=16_384)
def _spaced_mark(char: str) -> str:
    is_mark = unicodedata.category(char).startswith("P") or char in string.punctuation
    return f" {char} " if is_mark else char
