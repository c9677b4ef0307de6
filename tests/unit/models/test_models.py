"""Models: a real one on loopback, and servers that fail in every way."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import pickle
import socket
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.model_server import (
    Answer,
    ModelServer,
    anthropic_body,
    disconnects,
    error,
    floods,
    hangs,
    openai_body,
    responds,
    text_body,
    trickles,
    truncates,
)
from programs.sdks import PROTOCOLS, needs

from duramen import models
from duramen.errors import InvalidInput, ModelFailed
from duramen.models import provider
from duramen.models.anthropic import AnthropicModel
from duramen.models.openai import OpenAIModel
from duramen.ports import Model
from duramen.testing.local_model import LocalModel

KEY = "sk-very-secret-0123456789abcdef"
STORY = "Summarise in one sentence: the agent booked a table for two at eight, then mailed Ann the address."


@pytest.fixture(autouse=True)
def _no_settings_and_short_pauses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC_", "OPENAI_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))  # the SDK also searches for keys there
    monkeypatch.setattr(provider, "_PAUSE_SECONDS", 0.01)


# -- a real model


@pytest.fixture(scope="session")
def local_model() -> Iterator[LocalModel]:
    with LocalModel.start() as local:
        yield local


@pytest.fixture(params=PROTOCOLS)
def real_model(request: pytest.FixtureRequest, local_model: LocalModel) -> Model:
    if request.param == "anthropic":
        return AnthropicModel(local_model.name, base_url=local_model.anthropic_url)
    return OpenAIModel(local_model.name, base_url=local_model.openai_url)


@needs("anthropic", "openai")
def test_a_real_model_gives_the_same_answer_in_both_protocols(local_model: LocalModel) -> None:
    one = AnthropicModel(local_model.name, base_url=local_model.anthropic_url)
    two = OpenAIModel(local_model.name, base_url=local_model.openai_url)
    answer = one.complete(STORY, system="You are brief.", max_tokens=24)
    assert "table" in answer
    assert two.complete(STORY, system="You are brief.", max_tokens=24) == answer
    assert two.complete(STORY, system="Answer in French.", max_tokens=24) != answer


def test_max_tokens_limits_the_answer(real_model: Model) -> None:
    assert 0 < len(real_model.complete(STORY, max_tokens=3).split()) <= 3


def test_a_prompt_that_is_too_long_is_reported(real_model: Model) -> None:
    with pytest.raises(ModelFailed, match=r"status 400: .*exceeds the available context size") as failed:
        real_model.complete("word " * 3000)
    assert "length of the prompt" in failed.value.hint


@needs("anthropic", "openai")
def test_models_are_loaded_by_name(local_model: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    one = models.load_model(f" openai:{local_model.name}@{local_model.openai_url}\n")
    two = models.load_model(f"anthropic:{local_model.name}@{local_model.anthropic_url}")
    assert one.complete(STORY, max_tokens=4)
    assert two.complete(STORY, max_tokens=4)
    assert (one.name, two.name) == ("openai:smollm2", "anthropic:smollm2")
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    haiku, mini = models.load_model("anthropic:claude-haiku-4-5"), models.load_model("openai:gpt-5-mini", timeout=1)
    assert (haiku.name, mini.name) == ("anthropic:claude-haiku-4-5", "openai:gpt-5-mini")
    assert repr(haiku) == "AnthropicModel('claude-haiku-4-5', name='anthropic:claude-haiku-4-5')"
    assert repr(models.load_model("openai:ft:llama3@8b")) == "OpenAIModel('ft:llama3@8b', name='openai:ft:llama3@8b')"


@pytest.mark.parametrize(
    "text",
    [
        *("", "gpt-5-mini", "openai:", "openai", "gemini:pro", "openai:a b", "openai:@http://h/v1", "openai:x@ftp://h"),
        *("openai:x@http://", "openai:x@http://[h", "openai:x@http://h:none", "anthropic:x@https://me:hidden@h/v1"),
        *("opnai:x@https://me:hidden@h/v1",),
    ],
)
def test_an_unknown_model_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)  # a missing key is not the reason
    with pytest.raises(InvalidInput) as refused:
        models.load_model(text)
    assert refused.value.hint
    assert "hidden" not in str(refused.value)


# -- a server that fails


@pytest.fixture(scope="module")
def _server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        yield server


@pytest.fixture
def server(_server: ModelServer) -> ModelServer:
    _server.requests.clear()
    return _server


@functools.cache
def model_at(protocol: str, url: str, *, timeout: float = 5.0, key: str | None = KEY) -> Model:
    if protocol == "anthropic":
        return AnthropicModel("x", base_url=url, api_key=key, timeout=timeout)
    return OpenAIModel("x", base_url=f"{url}/v1", api_key=key, timeout=timeout)


def failure_of(model: Model) -> ModelFailed:
    start = time.monotonic()
    with pytest.raises(ModelFailed) as failed:
        model.complete("Summarise: nothing.")
    assert time.monotonic() - start < 8  # a server that hangs takes 10 s
    assert failed.value.hint
    assert "\n" not in failed.value.reason
    assert len(failed.value.reason) < 200
    return failed.value


both_protocols = pytest.mark.parametrize("protocol", PROTOCOLS)


@both_protocols
@pytest.mark.parametrize(
    ("answer", "reason", "tries"),
    [
        (responds(400, error("prompt is\ntoo long")), "status 400: prompt is too long", 1),
        (responds(404, error("no model x")), "status 404: no model x", 1),
        (responds(408, b""), "status 408: Request Timeout", 2),
        (responds(429, error("slow down"), retry_after="9"), "status 429: slow down", 1),
        (responds(429, error("slow down"), retry_after="inf"), "status 429: slow down", 1),
        (responds(429, error("slow down"), retry_after="soon"), "status 429: slow down", 2),
        (responds(500, error("boom")), "status 500: boom", 2),
        (responds(500, {"error": "boom"}), "status 500: boom", 2),
        (responds(502, b"<html>nginx</html>", content_type="text/html"), "status 502: Bad Gateway", 2),
        (responds(500, b"\xff\xfe\xfa"), "status 500: ", 2),
        (responds(529, error("Overloaded", "overloaded_error")), "status 529: Overloaded", 2),
        (responds(529, {}), "status 529: no reason given", 2),
        (responds(503, error("\x1b[2Jbusy " * 200)), "status 503: [2Jbusy [2Jbusy", 2),
        (responds(200, b"{"), "malformed answer: ", 1),
        (responds(200, b""), "malformed answer: ", 1),
        (responds(200, b"[]"), "malformed answer: ", 1),
        (responds(200, b"<html>welcome</html>"), "malformed answer: ", 1),
        (responds(200, b'{"nested": ' + b"[" * 200_000), "malformed answer: ", 1),
        (responds(200, {"error": {"message": "boom"}}), "malformed answer: ", 1),
        (responds(200, b"\x1f\x8b nonsense", content_encoding="gzip"), "connection failed: ", 2),
        (disconnects, "connection failed: Server disconnected", 2),
        (truncates, "connection failed: peer closed connection", 2),
        (floods, "the answer has more than 4 MiB", 1),
    ],
)
def test_a_failing_server_is_a_failed_model(
    protocol: str, answer: Answer, reason: str, tries: int, server: ModelServer
) -> None:
    server.answers = [answer]
    failed = failure_of(model_at(protocol, server.url))
    assert failed.reason.startswith(reason)
    assert failed.model == f"{protocol}:x"
    assert len(server.requests) == tries


@both_protocols
def test_text_that_is_not_utf_8_is_malformed(protocol: str, server: ModelServer) -> None:
    server.answers = [
        responds(200, json.dumps(text_body(protocol, " Booked.\n")).encode().replace(b"Booked", b"\xff\xfe"))
    ]
    assert failure_of(model_at(protocol, server.url)).reason == "malformed answer: not UTF-8"


@both_protocols
@pytest.mark.parametrize("answer", [hangs, trickles])
def test_a_slow_server_is_a_timeout(protocol: str, answer: Answer, server: ModelServer) -> None:
    server.answers = [answer]
    assert failure_of(model_at(protocol, server.url, timeout=0.3)).reason == "timeout after 0.3 s"
    assert len(server.requests) == 1


@both_protocols
def test_a_refused_connection_is_a_failed_model(protocol: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    failed = failure_of(model_at(protocol, url))
    assert failed.reason.startswith("connection failed: ")
    assert "refused" in failed.reason


@both_protocols
def test_a_server_that_does_not_accept_is_a_timeout(protocol: str) -> None:
    with socket.socket() as listener, contextlib.ExitStack() as queue:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(4):
            waiting = queue.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listener.getsockname())
        model = model_at(protocol, f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=0.3)
        assert failure_of(model).reason == "no connection within 0.3 s"


@both_protocols
@pytest.mark.parametrize(
    "first",
    [
        responds(500, error("boom")),
        responds(429, error("slow"), retry_after="0.01"),
        responds(500, b"", retry_after="-1"),
        disconnects,
    ],
)
def test_a_temporary_failure_is_retried_once(protocol: str, first: Answer, server: ModelServer) -> None:
    server.answers = [first, responds(200, text_body(protocol, " Booked.\n"))]
    assert model_at(protocol, server.url).complete("Go.") == " Booked.\n"
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("protocol", "answer", "reason"),
    [
        pytest.param(*case, marks=needs(case[0]))
        for case in [
            ("anthropic", anthropic_body({"type": "text", "text": "I"}, stop="refusal"), "refused"),
            ("anthropic", anthropic_body(stop="refusal"), "refused"),
            ("anthropic", anthropic_body(), "no text in the answer"),
            ("anthropic", anthropic_body({"type": "text", "text": " \n"}), "no text in the answer"),
            ("anthropic", anthropic_body({"type": "aside", "text": "Hm."}), "no text in the answer"),
            (
                "anthropic",
                anthropic_body({"type": "tool_use", "id": "t", "name": "f", "input": {}}),
                "no text in the answer",
            ),
            (
                "anthropic",
                anthropic_body({"type": "thinking", "thinking": "…"}, stop="max_tokens"),
                "cut off before any text",
            ),
            (
                "anthropic",
                anthropic_body({"type": "text", "text": {"a": 1}}),
                "malformed answer: Expected `str | null`",
            ),
            ("openai", openai_body(None, refusal="I cannot do that."), "refused"),
            ("openai", openai_body("half an ans", stop="content_filter"), "refused"),
            ("openai", openai_body(None), "no text in the answer"),
            ("openai", openai_body(" \n"), "no text in the answer"),
            (
                "openai",
                openai_body(None, tool_calls=[{"id": "t", "type": "function"}], stop="tool_calls"),
                "no text in the answer",
            ),
            ("openai", openai_body("", stop="length"), "cut off before any text"),
            ("openai", openai_body(1) | {"choices": []}, "no text in the answer"),
            ("openai", openai_body(1) | {"choices": None}, "malformed answer: Expected `array`"),
            ("openai", openai_body(1), "malformed answer: Expected `str | null`"),
        ]
    ],
)
def test_an_answer_without_text_is_a_failed_model(protocol: str, answer: Any, reason: str, server: ModelServer) -> None:
    server.answers = [responds(200, answer)]
    assert failure_of(model_at(protocol, server.url)).reason.startswith(reason)
    assert len(server.requests) == 1


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from(["text", "refusal", "length", "Booked."]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["content", "choices", "message", "type", "text", "stop_reason", "error", "finish_reason"]),
            inner,
        )
    ),
)


@both_protocols
def test_any_response_is_an_answer_or_a_failed_model(protocol: str, server: ModelServer) -> None:
    model = model_at(protocol, server.url)

    @settings(max_examples=60, deadline=None)
    @given(st.sampled_from([200, 200, 200, 204, 302, 400, 429, 500]), JSON | st.binary())
    def check(status: int, body: Any) -> None:
        server.answers = [responds(status, b"" if status == 204 else body, retry_after="0")]
        with contextlib.suppress(ModelFailed):
            assert model.complete("Go.").strip()

    check()


# -- requests


@both_protocols
def test_the_request_has_model_messages_limit_and_key(protocol: str, server: ModelServer) -> None:
    server.answers = [responds(200, text_body(protocol, " Booked.\n"))]
    model_at(protocol, server.url).complete("half a \ud83d character", system="be brief", max_tokens=7)
    path, headers, body = server.requests[0]
    message = {"role": "user", "content": "half a ? character"}
    if protocol == "anthropic":
        assert path == "/v1/messages"
        assert body == {"model": "x", "messages": [message], "max_tokens": 7, "system": "be brief"}
    else:
        assert path == "/v1/chat/completions"
        assert body == {"model": "x", "messages": [{"role": "system", "content": "be brief"}, message], "max_tokens": 7}
    assert KEY in {value.removeprefix("Bearer ") for value in headers.values()}


@both_protocols
def test_a_custom_server_needs_no_key_and_gets_extra_options(protocol: str, server: ModelServer) -> None:
    server.answers = [responds(200, text_body(protocol, " Booked.\n"))]
    model = {"anthropic": AnthropicModel, "openai": OpenAIModel}[protocol]
    url = server.url if protocol == "anthropic" else f"{server.url}/v1"
    model("x", base_url=url, extra={"top_k": 1}, name="mine").complete("Go.")
    (_, _, body), *_ = server.requests
    assert body["top_k"] == 1
    assert "system" not in json.dumps(body)


@needs("openai")
def test_openai_gets_the_newer_name_of_the_token_limit(server: ModelServer) -> None:
    import openai

    server.answers = [responds(200, text_body("openai", "Booked."))]
    # OpenAI's address, reached through a proxy that answers itself.
    http_client = openai.DefaultHttpxClient(proxy=server.url)
    with openai.OpenAI(api_key=KEY, base_url="http://api.openai.com/v1", http_client=http_client) as client:
        assert OpenAIModel("gpt-5-mini", client=client).complete("Go.", max_tokens=9) == "Booked."
    path, _, body = server.requests[0]
    assert path == "http://api.openai.com/v1/chat/completions"
    assert body["max_completion_tokens"] == 9
    assert "max_tokens" not in body


# -- bad input


@both_protocols
def test_bad_input_is_refused_before_a_request(protocol: str, server: ModelServer) -> None:
    model = {"anthropic": AnthropicModel, "openai": OpenAIModel}[protocol]
    addresses = [{"base_url": url} for url in ("nonsense", "ftp://h", "http://u:p@h")]
    for options in ({}, {"api_key": "kéy"}, {"api_key": "key\n"}, *addresses):
        with pytest.raises(InvalidInput) as refused:
            model("x", **options)
        assert refused.value.hint
        assert "kéy" not in repr(refused.value)
    for timeout in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InvalidInput, match="timeout"):
            model_at(protocol, server.url, timeout=timeout)
    with pytest.raises(InvalidInput, match="max_tokens"):
        model_at(protocol, server.url).complete("Go.", max_tokens=0)
    assert server.requests == []


@needs("anthropic")
def test_unusable_credentials_on_disk_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_PROFILE", "nobody")
    with pytest.raises(InvalidInput, match=r"no key for Anthropic's API: .*nobody"):
        AnthropicModel("x")


@both_protocols
def test_a_missing_sdk_is_reported(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, protocol, None)
    with pytest.raises(InvalidInput, match=f"package {protocol} ") as refused:
        models.load_model(f"{protocol}:x")
    assert refused.value.hint == f"run: pip install 'duramen[{protocol}]'"


# -- secrets


@pytest.mark.promise("G6")
@both_protocols
@pytest.mark.parametrize("key", [KEY, "0123456789"])
def test_no_error_contains_a_key_that_the_server_repeats(protocol: str, key: str, server: ModelServer) -> None:
    another = "sk-of-another-user-0123456789abcdef"
    message = f"wrong key: {key} (Bearer {key}, {another})"
    server.answers = [responds(401, error(message), www_authenticate=f"Bearer {key}")]
    model = model_at(protocol, server.url, key=key)
    failed = failure_of(model)
    assert failed.reason.startswith("status 401: wrong key: [redacted]")
    assert "API key" in failed.hint
    texts = [str(failed), repr(failed), repr(model), *traceback.format_exception(failed), repr(vars(failed))]
    assert key not in "".join(texts)
    assert another not in "".join(texts)
    assert key.encode() not in pickle.dumps(failed)
    assert failed.__cause__ is None
    assert failed.__context__ is None
