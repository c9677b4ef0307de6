"""Counters of tokens: exact ones, what a provider says, and always something; what a message's content takes."""

from __future__ import annotations

import datetime as dt
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path, PurePosixPath
from socketserver import TCPServer
from types import SimpleNamespace
from typing import Any

import pytest

from duramen.context.tokens.counters import (
    IMAGE_TOKENS,
    ProviderCounter,
    TiktokenCounter,
    TokenizersCounter,
    anthropic_counter,
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

    registry.list_encoding_names()  # looks for them once, and would replace what is set here
    constructors = registry.ENCODING_CONSTRUCTORS
    assert constructors is not None
    monkeypatch.setitem(constructors, "tiny", construct)
    monkeypatch.setattr(registry, "ENCODINGS", {})
    monkeypatch.setitem(model.MODEL_TO_ENCODING, "tiny-model", "tiny")
    return "tiny"


@pytest.mark.parametrize("name", ["tiny", "tiny-model"])
def test_tiktoken_counts_with_an_encoding_or_that_of_a_model(tiny_encoding: str, name: str) -> None:
    counter = TiktokenCounter(name)
    assert counter.name == "tiktoken:tiny"
    assert [counter.count(text) for text in ("", "abc", "<|end|>", "\ud800")] == [0, 2, 7, 3]


def test_an_encoding_that_tiktoken_does_not_know_or_cannot_load_is_refused(
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
    """Knows a few words, and asks for texts to be cut and filled up to three tokens."""
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


def test_tokenizers_counts_the_whole_text_and_nothing_else(tokenizer_file: Path) -> None:
    counter = TokenizersCounter(tokenizer_file)
    assert [counter.count(text) for text in ("", "one", "one two one two", "[x]", "\ud800 one")] == [0, 1, 4, 3, 2]


def test_the_name_of_a_tokenizer_is_that_of_its_content(tokenizer_file: Path, tmp_path: Path) -> None:
    copy, other = tmp_path / "copy.json", tmp_path / "other.json"
    copy.write_bytes(tokenizer_file.read_bytes())
    other.write_bytes(tokenizer_file.read_bytes().replace(b'"two"', b'"six"'))
    names = [TokenizersCounter(path).name for path in (tokenizer_file, copy, other)]
    assert names[0].startswith("tokenizers:")
    assert names[0] == names[1] != names[2]


def test_a_file_that_is_no_tokenizer_is_refused(tokenizer_file: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        TokenizersCounter(tmp_path / "missing.json")
    tokenizer_file.write_text("{}")
    with pytest.raises(InvalidInput, match="is not a tokenizer") as broken:
        TokenizersCounter(tokenizer_file)
    assert "tokenizer.json" in broken.value.hint


@pytest.mark.parametrize("library", ["tiktoken", "tokenizers"])
def test_a_library_that_is_missing_is_named(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InvalidInput, match=f"package {library} is not installed") as missing:
        counter_for(f"{library}:anything")
    assert missing.value.hint == f"pip install {library}"


class Provider:
    """Counts letters; fails while it is down."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.down = False

    def __call__(self, text: str) -> int:
        self.asked.append(text)
        if self.down:
            raise ConnectionError("down")
        return len(text)


def test_a_provider_is_asked_once_for_each_of_the_last_texts() -> None:
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
    assert provider.asked == ["a", "bb", "ccc", "bb", "\ud800"]  # "bb" was the one not used for longest
    assert (counter.name, counter.failures, counter.last_error) == ("p", 0, None)


def test_when_the_provider_fails_the_text_is_estimated_and_that_is_said() -> None:
    provider = Provider()
    counter = ProviderCounter(provider, name="p")
    provider.down = True
    assert counter.count("harbour") == count("harbour") != len("harbour")
    assert counter.failures == 1
    assert isinstance(counter.last_error, ConnectionError)
    provider.down = False
    assert [counter.count("harbour") for _ in range(3)] == [count("harbour"), count("harbour"), len("harbour")]
    assert counter.failures == 1


def test_a_provider_that_is_gone_is_asked_less_and_less() -> None:
    provider = Provider()
    counter = ProviderCounter(provider, name="p")
    provider.down = True
    for number in range(5000):
        assert counter.count(f"text {number}") == count(f"text {number}")
    asked = [int(text.split()[1]) for text in provider.asked]
    assert asked[:5] == [0, 3, 8, 17, 34]
    assert asked[-1] - asked[-2] == 1025
    assert counter.failures == len(asked)
    provider.down = False
    answered = next(number for number in range(2000) if counter.count("it is back") == len("it is back"))
    assert answered <= 1024
    provider.down = True
    counter.count("one")
    counter.count("two")
    counter.count("three")
    provider.down = False
    assert counter.count("four") == len("four")  # it starts over


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "3", None])
def test_a_result_that_is_no_number_of_tokens_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="not a number of tokens") as refused:
        counter_for(lambda text: wrong).count("x")
    assert refused.value.hint


async def never(text: str) -> int:
    return 0


@pytest.mark.parametrize("wrong", [never, 3])
def test_what_cannot_be_called_for_a_number_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="cannot count"):
        ProviderCounter(wrong, name="p")


def test_threads_share_a_counter() -> None:
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


class Api(TCPServer):
    """Answers as Anthropic's count call does, with the number of characters."""

    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ApiHandler)
        self.bodies: list[dict[str, Any]] = []


class ApiHandler(BaseHTTPRequestHandler):
    server: Api

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append({"path": self.path} | body)
        answer = json.dumps({"input_tokens": len(body["messages"][0]["content"])}).encode()
        self.send_response(self.server.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def api() -> Iterator[Api]:
    with Api() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_anthropic_is_asked_for_a_message_of_the_user(api: Api) -> None:
    from anthropic import Anthropic

    with Anthropic(api_key="none", base_url=f"http://127.0.0.1:{api.server_address[1]}") as client:
        counter = anthropic_counter(client, "some-model")
        assert counter.name == "anthropic:some-model"
        assert [counter.count(text) for text in ("harbour", "a\ud800", "  \n")] == [7, 2, count("  \n")]
        asked = [(body["model"], body["messages"]) for body in api.bodies]
        assert asked == [("some-model", [{"role": "user", "content": text}]) for text in ("harbour", "a\ufffd")]
        assert {body["path"] for body in api.bodies} == {"/v1/messages/count_tokens"}
        api.status = 500
        assert counter.count("village") == count("village")
        assert len(api.bodies) == 3  # no retries: there is the estimate
        assert counter.failures == 1


def test_a_client_that_cannot_count_in_place_is_refused() -> None:
    from anthropic import AsyncAnthropic

    for client in (AsyncAnthropic(api_key="none"), SimpleNamespace()):
        with pytest.raises(InvalidInput, match="count_tokens") as refused:
            anthropic_counter(client, "some-model")
        assert "anthropic.Anthropic()" in refused.value.hint


def test_a_counter_is_found_by_what_somebody_gives(tiny_encoding: str, tokenizer_file: Path) -> None:
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
def test_anything_else_is_no_way_to_count(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="`counter` cannot be") as refused:
        counter_for(wrong)
    assert "tiktoken:o200k_base" in refused.value.hint


LETTERS = ProviderCounter(len, name="letters")
PICTURE = "data:image/png;base64," + "A" * 100_000


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
def test_content_counts_as_its_text_and_everything_else_as_its_json(value: Any, tokens: int) -> None:
    assert count_value(LETTERS, value) == tokens


def test_what_has_no_order_counts_in_one_order() -> None:
    seen: list[str] = []

    def see(text: str) -> int:
        seen.append(text)
        return 1

    count_value(ProviderCounter(see, name="seen"), {"b": set("harbour"), "a": 1})
    assert seen == ['{"b":["a","b","h","o","r","u"],"a":1}']


@pytest.mark.parametrize(
    "image",
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PICTURE}},
        {"type": "image_url", "image_url": {"url": PICTURE}},
        {"type": "input_image", "image_url": PICTURE},
    ],
)
def test_an_image_counts_for_the_same_whatever_its_size_and_wherever_it_lies(image: Any) -> None:
    result = {"type": "tool_result", "content": [{"type": "text", "text": "ice"}, image, {"deeper": (image,)}]}
    assert count_value(LETTERS, image) == IMAGE_TOKENS + len("null")
    assert count_value(LETTERS, [{"type": "text", "text": "ice"}, image]) == 3 + IMAGE_TOKENS + len("[null]")
    assert 2 * IMAGE_TOKENS < count_value(LETTERS, result) < 2 * IMAGE_TOKENS + 100


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


def bottomless() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize("value", [object(), {"deep": [object()]}, {(1, 2): 3}, endless(), bottomless()], ids=type)
def test_what_is_no_plain_data_cannot_be_counted(value: Any) -> None:
    with pytest.raises(InvalidInput, match="cannot count the tokens") as refused:
        count_value(LETTERS, value)
    assert refused.value.hint
