"""Our WordPiece gives the ids that the `tokenizers` library gives."""

from __future__ import annotations

import random
import time

import pytest
from tokenizers import Tokenizer

from duramen.embedders import InstalledModel
from duramen.embedders.wordpiece import WordPiece

WORDS = (
    *("the", "Élan", "naïve", "Straße", "ﬁn", "ẞ", "ΣΊΣΥΦΟΣ", "İstanbul", "Ǆ", "e\u0301", "don't", "x_y", "1,000.5"),
    *("日本語", "東京タワー", "한국어", "हिन्दी", "עִבְרִית", "العربية", "ไทย", "𠀀𪜀", "😀", "👩\u200d👩\u200d👧", "🇩🇪"),
    *(
        "[CLS]",
        "[SEP]",
        "[MASK]x",
        "[UNK]",
        "[PAD]",
        "[cls]",
        "[",
        "CLS]",
        "##ing",
        "#hash",
        "$",
        "¿qué?",
        "—",
        "…",
        "½",
    ),
    *(
        "a" * 100,
        "b" * 101,
        "é" * 101,
        "\u200b",
        "\xa0",
        "\x00",
        "\ufffd",
        "\t",
        "\r\n",
        "\u3000",
        "\ue000",
        "\x1c",
        "\x85",
    ),
    *("\u2028", "\u0345", "\u0378", "antidisestablishmentarianism", "supercalifragilistic"),
)


@pytest.fixture(scope="module")
def ours(installed: InstalledModel) -> WordPiece:
    return WordPiece.load(installed.tokenizer)


@pytest.fixture(scope="module")
def theirs(installed: InstalledModel) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(installed.tokenizer))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    return tokenizer


@pytest.mark.parametrize("text", ["", " ", "\n", *WORDS, "word " * 300, "日" * 300, "[MASK]" * 300])
def test_the_ids_are_the_library_s(text: str, ours: WordPiece, theirs: Tokenizer) -> None:
    assert ours.encode(text) == theirs.encode(text).ids


def test_mixtures_give_the_library_s_ids(ours: WordPiece, theirs: Tokenizer) -> None:
    chance = random.Random(5)
    for _ in range(500):
        count = chance.choice((2, 3, 5, 8, 40))
        text = "".join(chance.choice(WORDS) + chance.choice(("", " ")) for _ in range(count))
        assert ours.encode(text) == theirs.encode(text).ids


def test_plain_text_with_whatever_marks_and_controls_gives_the_library_s_ids(
    ours: WordPiece, theirs: Tokenizer
) -> None:
    chance = random.Random(6)
    letters = [chr(code) for code in range(128)]
    for _ in range(500):
        text = "".join(chance.choices(letters, k=60))
        assert ours.encode(text) == theirs.encode(text).ids
    assert ours.encode("".join(letters)) == theirs.encode("".join(letters)).ids


def test_every_letter_of_the_world_s_main_scripts(ours: WordPiece, theirs: Tokenizer) -> None:
    # Marks that Unicode assigned after version 8 differ: the library's tables are that old.
    for code in (*range(0x20, 0x600), *range(0x900, 0x980), *range(0x2000, 0x2E40), *range(0x3000, 0x3200)):
        text = f"a{chr(code)}b"
        assert ours.encode(text) == theirs.encode(text).ids, hex(code)


def test_what_is_cut_off_is_not_looked_at(ours: WordPiece) -> None:
    began = time.perf_counter()
    assert len(ours.encode("word " * 2_000_000)) == 256
    assert time.perf_counter() - began < 1


def test_cut_pieces_join_where_words_end(ours: WordPiece, theirs: Tokenizer) -> None:
    for pad in range(2_030, 2_060):
        text = " " * pad + "élan vital, naïve " * 3 + "\u0301x y"
        assert ours.encode(text) == theirs.encode(text).ids


def test_a_lone_surrogate_is_no_reason_to_fail(ours: WordPiece) -> None:
    assert ours.encode("a\ud800b") == ours.encode("ab")
