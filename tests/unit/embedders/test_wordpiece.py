"""Our WordPiece gives the same ids as the `tokenizers` library."""

from __future__ import annotations

import time

import pytest
from programs.seeds import seeded
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
def tokenizer(installed: InstalledModel) -> WordPiece:
    return WordPiece.load(installed.tokenizer)


@pytest.fixture(scope="module")
def library(installed: InstalledModel) -> Tokenizer:
    loaded = Tokenizer.from_file(str(installed.tokenizer))
    loaded.no_padding()
    loaded.enable_truncation(256)
    return loaded


@pytest.mark.parametrize("text", ["", " ", "\n", *WORDS, "word " * 300, "日" * 300, "[MASK]" * 300])
def test_single_words_give_the_ids_of_the_library(text: str, tokenizer: WordPiece, library: Tokenizer) -> None:
    assert tokenizer.encode(text) == library.encode(text).ids


def test_mixed_scripts_give_the_ids_of_the_library(tokenizer: WordPiece, library: Tokenizer) -> None:
    generator = seeded("mixed scripts")
    for _ in range(500):
        count = generator.choice((2, 3, 5, 8, 40))
        text = "".join(generator.choice(WORDS) + generator.choice(("", " ")) for _ in range(count))
        assert tokenizer.encode(text) == library.encode(text).ids


def test_ascii_text_with_controls_gives_the_ids_of_the_library(tokenizer: WordPiece, library: Tokenizer) -> None:
    generator = seeded("ascii")
    letters = [chr(code) for code in range(128)]
    for _ in range(500):
        text = "".join(generator.choices(letters, k=60))
        assert tokenizer.encode(text) == library.encode(text).ids
    assert tokenizer.encode("".join(letters)) == library.encode("".join(letters)).ids


def test_letters_of_the_main_scripts_give_the_ids_of_the_library(tokenizer: WordPiece, library: Tokenizer) -> None:
    # Marks that were added after Unicode 8 differ, because the tables of the library are of that version.
    for code in (*range(0x20, 0x600), *range(0x900, 0x980), *range(0x2000, 0x2E40), *range(0x3000, 0x3200)):
        text = f"a{chr(code)}b"
        assert tokenizer.encode(text) == library.encode(text).ids, hex(code)


def test_text_beyond_the_limit_is_not_read(tokenizer: WordPiece) -> None:
    start = time.process_time()
    assert len(tokenizer.encode("word " * 2_000_000)) == 256
    assert time.process_time() - start < 1


def test_a_text_is_split_only_between_words(tokenizer: WordPiece, library: Tokenizer) -> None:
    for pad in range(2_030, 2_060):
        text = " " * pad + "élan vital, naïve " * 3 + "\u0301x y"
        assert tokenizer.encode(text) == library.encode(text).ids


def test_a_lone_surrogate_is_ignored(tokenizer: WordPiece) -> None:
    assert tokenizer.encode("a\ud800b") == tokenizer.encode("ab")
