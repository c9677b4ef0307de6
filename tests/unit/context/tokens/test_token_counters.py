"""Token counters: tiktoken, tokenizers, providers with the estimate as fallback, and the count of message content."""

from __future__ import annotations

import datetime as dt
import json
import sys
import threading
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any

import pytest

from duramen.context.tokens.counters import (
    IMAGE_TOKENS,
    ProviderCounter,
    TiktokenCounter,
    TokenizersCounter,
    count_value,
    counter_for,
)
from duramen.context.tokens.estimate import Estimate
from duramen.errors import InvalidInput

count = Estimate().count


@pytest.fixture
def tiny_encoding(monkeypatch: pytest.MonkeyPatch) -> str:
    """An encoding of single bytes and `ab`, and a model that uses it."""
    pytest.importorskip("tiktoken")
    from tiktoken import model, registry

    def construct() -> dict[str, Any]:
        ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256}
        return {"name": "tiny", "pat_str": r"\S+|\s+", "mergeable_ranks": ranks, "special_tokens": {"<|end|>": 257}}

    registry.list_encoding_names()  # loads the real encodings once, which would replace this one later
    constructors = registry.ENCODING_CONSTRUCTORS
    assert constructors is not None
    monkeypatch.setitem(constructors, "tiny", construct)
    monkeypatch.setattr(registry, "ENCODINGS", {})
    monkeypatch.setitem(model.MODEL_TO_ENCODING, "tiny-model", "tiny")
    return "tiny"


@pytest.mark.parametrize("name", ["tiny", "tiny-model"])
def test_tiktoken_counts_with_the_encoding_of_a_name_or_model(tiny_encoding: str, name: str) -> None:
    counter = TiktokenCounter(name)
    assert counter.name == "tiktoken:tiny"
    assert [counter.count(text) for text in ("", "abc", "<|end|>", "\ud800")] == [0, 2, 7, 3]


def test_an_unknown_or_unavailable_tiktoken_encoding_is_rejected(
    tiny_encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tiktoken

    with pytest.raises(InvalidInput, match="no encoding or model 'nope'") as unknown:
        TiktokenCounter("nope")
    assert "tiny" in unknown.value.hint

    def offline(name: str) -> Any:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(tiktoken, "get_encoding", offline)
    with pytest.raises(InvalidInput, match="no route to host") as failed:
        TiktokenCounter("tiny")
    assert "TIKTOKEN_CACHE_DIR" in failed.value.hint


@pytest.fixture
def tokenizer_file(tmp_path: Path) -> Path:
    """A tokenizer with a few words that truncates and pads texts to three tokens."""
    pytest.importorskip("tokenizers")
    words = {"[x]": 0, "one": 1, "two": 2, "[": 3, "x": 4, "]": 5, "[pad]": 6}
    path = tmp_path / "tokenizer.json"
    path.write_text(
        json.dumps(
            {
                "version": "1.0",
                "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
                "padding": {
                    "strategy": {"Fixed": 3},
                    "direction": "Right",
                    "pad_to_multiple_of": None,
                    "pad_id": 6,
                    "pad_type_id": 0,
                    "pad_token": "[pad]",
                },
                "added_tokens": [
                    {"id": 0, "content": "[x]", "special": True}
                    | dict.fromkeys(["single_word", "lstrip", "rstrip", "normalized"], False)
                ],
                "pre_tokenizer": {"type": "Whitespace"},
                "model": {"type": "WordLevel", "vocab": words, "unk_token": "x"},
            }
        )
    )
    return path


def test_tokenizers_counts_the_text_without_truncation_and_padding(tokenizer_file: Path) -> None:
    counter = TokenizersCounter(tokenizer_file)
    assert [counter.count(text) for text in ("", "one", "one two one two", "[x]", "\ud800 one")] == [0, 1, 4, 3, 2]


def test_the_name_of_a_tokenizer_depends_on_its_content(tokenizer_file: Path, tmp_path: Path) -> None:
    copy, other = tmp_path / "copy.json", tmp_path / "other.json"
    copy.write_bytes(tokenizer_file.read_bytes())
    other.write_bytes(tokenizer_file.read_bytes().replace(b'"two"', b'"six"'))
    names = [TokenizersCounter(path).name for path in (tokenizer_file, copy, other)]
    assert names[0].startswith("tokenizers:")
    assert names[0] == names[1] != names[2]


def test_a_file_without_a_tokenizer_is_rejected(tokenizer_file: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        TokenizersCounter(tmp_path / "missing.json")
    tokenizer_file.write_text("{}")
    with pytest.raises(InvalidInput, match="is not a tokenizer") as broken:
        TokenizersCounter(tokenizer_file)
    assert "tokenizer.json" in broken.value.hint


@pytest.mark.parametrize("library", ["tiktoken", "tokenizers"])
def test_a_missing_library_is_named_in_the_error(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InvalidInput, match=f"package {library} is not installed") as missing:
        counter_for(f"{library}:anything")
    assert missing.value.hint == f"pip install {library}"


class Provider:
    """A provider that counts characters, and fails while it is down."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.down = False

    def __call__(self, text: str) -> int:
        self.requests.append(text)
        if self.down:
            raise ConnectionError("down")
        return len(text)


def test_a_provider_counts_recent_texts_once() -> None:
    provider = Provider()
    counter = ProviderCounter(provider, name="p", remembered=2)
    assert [counter.count(text) for text in ("a", "bb", "a", "ccc", "a", "bb", "", "\ud800")] == [
        1,
        2,
        1,
        3,
        1,
        2,
        0,
        1,
    ]
    assert provider.requests == ["a", "bb", "ccc", "bb", "\ud800"]  # "bb" was the least recently used
    assert (counter.name, counter.failures, counter.last_error) == ("p", 0, None)


def test_a_failure_of_the_provider_is_recorded_and_the_estimate_used() -> None:
    provider = Provider()
    counter = ProviderCounter(provider, name="p")
    provider.down = True
    assert counter.count("harbour") == count("harbour") != len("harbour")
    assert counter.failures == 1
    assert isinstance(counter.last_error, ConnectionError)
    provider.down = False
    assert [counter.count("harbour") for _ in range(3)] == [count("harbour"), count("harbour"), len("harbour")]
    assert counter.failures == 1


def test_a_failing_provider_is_called_less_and_less() -> None:
    provider = Provider()
    counter = ProviderCounter(provider, name="p")
    provider.down = True
    for number in range(5000):
        assert counter.count(f"text {number}") == count(f"text {number}")
    attempts = [int(text.split()[1]) for text in provider.requests]
    assert attempts[:5] == [0, 3, 8, 17, 34]
    assert attempts[-1] - attempts[-2] == 1025
    assert counter.failures == len(attempts)
    provider.down = False
    recovered = next(number for number in range(2000) if counter.count("available") == len("available"))
    assert recovered <= 1024
    provider.down = True
    counter.count("one")
    counter.count("two")
    counter.count("three")
    provider.down = False
    assert counter.count("four") == len("four")  # the pauses are short again


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "3", None])
def test_an_invalid_count_is_rejected(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="not a number of tokens") as refused:
        counter_for(lambda text: wrong).count("x")
    assert refused.value.hint


async def count_async(text: str) -> int:
    return 0


@pytest.mark.parametrize("wrong", [count_async, 3])
def test_a_counter_that_is_not_a_sync_function_is_rejected(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="cannot count"):
        ProviderCounter(wrong, name="p")


def test_threads_can_share_a_counter() -> None:
    counter = ProviderCounter(len, name="p", remembered=8)
    texts = ["x" * size for size in range(1, 40)]
    wrong: list[str] = []

    def work() -> None:
        wrong.extend(text for text in texts * 50 if counter.count(text) != len(text))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_counters_can_be_given_by_name_function_or_object(tiny_encoding: str, tokenizer_file: Path) -> None:
    own = SimpleNamespace(name="own", count=len)
    assert counter_for(own) is own
    assert isinstance(counter_for(), Estimate)
    assert counter_for("estimate").name == "estimate"
    assert counter_for("tiktoken:tiny").count("ab") == 1
    assert counter_for(f"tokenizers:{tokenizer_file}").count("one two") == 2
    assert counter_for(len).count("four") == 4
    assert counter_for(len).name == "len"
    assert counter_for(Provider()).name == "Provider"


@pytest.mark.parametrize(
    "wrong", ["gpt-4o", "tiktoken", "tiktoken:", "tokenizers:", "", 7, Estimate, ["estimate"], Path("tokenizer.json")]
)
def test_other_values_are_rejected_as_counters(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="`counter` cannot be") as refused:
        counter_for(wrong)
    assert "tiktoken:o200k_base" in refused.value.hint


CHARACTERS = ProviderCounter(len, name="characters")
IMAGE = "data:image/png;base64," + "A" * 100_000


@pytest.mark.parametrize(
    ("value", "tokens"),
    [
        (None, 0),
        ([], 0),
        ("", 0),
        ("harbour", 7),
        ({"type": "text", "text": "harbour"}, 7),
        ([{"type": "text", "text": "har"}, {"type": "output_text", "text": "bour"}], 7),
        ({"b": 1, "a": [True, None, "ü"]}, len('{"b":1,"a":[true,null,"ü"]}')),
        ([1, 2, 3], len("[1,2,3]")),
        (12, 2),
        ({1: True, None: False}, len('{"1":true,"null":false}')),
        ({"type": "text", "text": 3}, len('{"type":"text","text":3}')),
        ({"type": ["string", "null"]}, len('{"type":["string","null"]}')),
        (
            [{"type": "text", "text": "ice"}, {"type": "tool_use", "id": "t", "input": {}}],
            3 + len('[{"type":"tool_use","id":"t","input":{}}]'),
        ),
        ({"when": dt.date(2024, 2, 29), "where": PurePosixPath("/a"), "set": {3, 1, 2}}, 48),
        ({"lone": "\ud800"}, len('{"lone":"?"}')),
    ],
)
def test_text_blocks_count_as_text_and_other_values_as_json(value: Any, tokens: int) -> None:
    assert count_value(CHARACTERS, value) == tokens


def test_sets_are_counted_in_a_fixed_order() -> None:
    texts: list[str] = []

    def record(text: str) -> int:
        texts.append(text)
        return 1

    count_value(ProviderCounter(record, name="record"), {"b": set("harbour"), "a": 1})
    assert texts == ['{"b":["a","b","h","o","r","u"],"a":1}']


@pytest.mark.parametrize(
    "image",
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": IMAGE}},
        {"type": "image_url", "image_url": {"url": IMAGE}},
        {"type": "input_image", "image_url": IMAGE},
    ],
)
def test_every_image_counts_the_same(image: Any) -> None:
    result = {"type": "tool_result", "content": [{"type": "text", "text": "ice"}, image, {"deeper": (image,)}]}
    assert count_value(CHARACTERS, image) == IMAGE_TOKENS + len("null")
    assert count_value(CHARACTERS, [{"type": "text", "text": "ice"}, image]) == 3 + IMAGE_TOKENS + len("[null]")
    assert 2 * IMAGE_TOKENS < count_value(CHARACTERS, result) < 2 * IMAGE_TOKENS + 100


def cyclic() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def deeply_nested() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize("value", [object(), {"deep": [object()]}, {(1, 2): 3}, cyclic(), deeply_nested()], ids=type)
def test_values_that_are_not_plain_data_are_rejected(value: Any) -> None:
    with pytest.raises(InvalidInput, match="cannot count the tokens") as refused:
        count_value(CHARACTERS, value)
    assert refused.value.hint
