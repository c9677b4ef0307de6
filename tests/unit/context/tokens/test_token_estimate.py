"""The token estimate: never below a real tokenizer on the corpus, not far above, and the same in every process."""

from __future__ import annotations

import json
import subprocess
import sys
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs.paths import CORPUS

from duramen.context.tokens import estimate as estimate_module
from duramen.context.tokens.estimate import Estimate

COUNTS: dict[str, Any] = json.loads((CORPUS / "tokens.json").read_text(encoding="utf-8"))
# Per cent above the largest count of the tokenizers, as documented in docs/guides/context.md.
MAX_EXCESS = {
    "arabic": 15,
    "chinese": 20,
    "code": 25,
    "cyrillic": 35,
    "emoji": 30,
    "european": 20,
    "greek": 15,
    "hebrew": 15,
    "identifiers": 15,
    "indic": 15,
    "japanese": 15,
    "json": 15,
    "korean": 20,
    "logs": 20,
    "markup": 25,
    "mixed": 25,
    "prose": 25,
    "scripts": 10,
    "tables": 20,
    "thai": 15,
    "vietnamese": 30,
    "whitespace": 40,
}
ANY_TEXT = st.text(st.characters(exclude_categories=()))
count = Estimate().count


def text_of(name: str) -> str:
    return (CORPUS / name).read_bytes().decode("utf-8")


@pytest.mark.promise("W2")
@pytest.mark.parametrize("name", sorted(path.name for path in CORPUS.glob("*.txt")))
def test_the_estimate_is_never_below_a_tokenizer(name: str) -> None:
    text, stored = text_of(name), COUNTS[name]
    assert stored["sha256"] == sha256(text.encode()).hexdigest()[:16], "count it again with tools/token_corpus.py"
    assert count(text) >= max(stored["whole"].values())
    for parts, largest in ((text.split("\n\n"), stored["paragraphs"]), (text.split("\n"), stored["lines"])):
        assert [part for part, tokens in zip(parts, largest, strict=True) if count(part) < tokens] == []


@pytest.mark.parametrize("kind", sorted({name.partition("-")[0] for name in COUNTS}))
def test_the_estimate_exceeds_tokenizers_by_no_more_than_documented(kind: str) -> None:
    names = [name for name in COUNTS if name.startswith(f"{kind}-")]
    largest = sum(max(COUNTS[name]["whole"].values()) for name in names)
    assert sum(count(text_of(name)) for name in names) <= largest * (1 + MAX_EXCESS[kind] / 100)


def test_the_estimate_of_the_whole_corpus_is_at_most_a_fifth_too_high() -> None:
    largest = sum(max(stored["whole"].values()) for stored in COUNTS.values())
    assert sum(count(text_of(name)) for name in COUNTS) <= largest * 1.2


def test_every_file_was_counted_with_the_same_tokenizers() -> None:
    assert len({tuple(stored["whole"]) for stored in COUNTS.values()}) == 1
    assert {"o200k_base", "llama3", "mistral_v3", "gemma3", "qwen3", "claude_2", "smollm2"} <= set(
        COUNTS["prose-story.txt"]["whole"]
    )


@given(ANY_TEXT)
def test_the_count_of_any_text_is_limited_by_its_bytes(text: str) -> None:
    assert bool(text) <= count(text) <= len(text.encode("utf-8", "surrogatepass")) + 2
    assert (count(text) == 0) == (text == "")


@given(ANY_TEXT, ANY_TEXT)
def test_adding_a_line_never_lowers_the_count(text: str, more: str) -> None:
    both = count(f"{text}\n{more}")
    assert max(count(text), count(more)) <= both <= count(text) + count(more) + 3


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", 0),
        ("\x00", 3),
        ("\ud800", 5),
        (" the" * 160, 173),
        ("7" * 90, 92),
        ("\n" * 40, 42),
        ("x" + " " * 320 + "y", 27),
        ("-" * 320, 32),
        ("a \x7f b", 7),
        ("x" + "   7" * 40, 132),
        ("漢" * 100, 269),
        ("\uff11" * 100, 302),
        ("\uff01" * 100, 216),
        ("\U0001f980" * 100, 402),
    ],
)
def test_counts_of_some_texts(text: str, tokens: int) -> None:
    assert count(text) == tokens


def test_another_process_counts_the_same() -> None:
    program = (
        "import pathlib, sys; from duramen.context.tokens.estimate import Estimate\n"
        "for path in sorted(pathlib.Path(sys.argv[1]).glob('*.txt')):\n"
        "    print(path.name, Estimate().count(path.read_bytes().decode()))"
    )
    done = subprocess.run([sys.executable, "-c", program, str(CORPUS)], capture_output=True, text=True, check=True)
    assert dict(line.split() for line in done.stdout.splitlines()) == {
        name: str(count(text_of(name))) for name in COUNTS
    }


def test_the_cache_of_the_estimate_is_limited_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    text = text_of("code-web.txt")
    before = count(text)
    monkeypatch.setattr(estimate_module, "_KEPT", 10)
    estimate_module._PART_COSTS.clear()
    assert count(text) == before == count(text)
    assert 0 < len(estimate_module._PART_COSTS) <= 10
    count("x" * 1000)
    assert max(map(len, estimate_module._PART_COSTS)) < 100
