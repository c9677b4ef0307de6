"""Other embedders: functions, servers and their failures, sentence-transformers, and embedders by name."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from programs.model_server import Answer, ModelServer, disconnects, error, hangs, responds, trickles, truncates

from duramen.embedders import (
    CallableEmbedder,
    InstalledModel,
    MiniLM,
    OpenAIEmbedder,
    SentenceTransformersEmbedder,
    adapters,
    load_embedder,
)
from duramen.errors import EmbedderFailed, InvalidInput, WeightsUnavailable
from duramen.models import provider
from duramen.models.openai import openai_client
from duramen.ports import EmbedderIdentity

KEY = "sk-very-secret-0123456789abcdef"


@pytest.fixture(autouse=True)
def _no_settings_and_short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("OPENAI_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setattr(provider, "_PAUSE_SECONDS", 0.01)


def lengths(texts: list[str]) -> list[list[float]]:
    return [[len(text), 1.0, 0.5] for text in texts]


# -- functions


def test_vectors_of_a_function_are_scaled_to_length_one() -> None:
    embedder = CallableEmbedder(lengths, name="lengths")
    assert embedder.dims == 3
    assert embedder.identity == EmbedderIdentity("lengths", 3)
    assert embedder.identity != CallableEmbedder(lengths, name="lengths", checksum="2").identity
    assert embedder.embed([]).shape == (0, 3)
    rows = embedder.embed(["a", "bcd"])
    assert rows.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(
    "answer",
    [
        *([[1.0, 2.0]], [[1.0, 2.0]] * 2, [[float("nan")] * 3] * 2, [[0.0] * 3] * 2, "nonsense", [1.0, 2.0]),
        *([[1.0] * 3, [1.0]], [[], []], 1.0, None),
    ],
)
def test_a_result_without_vectors_is_an_error(answer: object) -> None:
    with pytest.raises(EmbedderFailed, match="cannot use odd"):
        CallableEmbedder(lambda _: answer, name="odd", dims=3).embed(["a", "b"])


def test_an_exception_of_the_function_is_translated() -> None:
    def broken(texts: list[str]) -> object:
        raise RuntimeError("out of memory")

    with pytest.raises(EmbedderFailed, match="out of memory"):
        CallableEmbedder(broken, name="broken", dims=3).embed(["a"])
    with pytest.raises(EmbedderFailed, match="out of memory"):
        _ = CallableEmbedder(broken, name="broken").identity


@pytest.mark.parametrize("wrong", ["a", [1], [b"a"]])
def test_a_function_embeds_only_a_sequence_of_texts(wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="sequence of texts"):
        CallableEmbedder(lengths, name="lengths").embed(wrong)


@pytest.mark.parametrize("options", [{"name": ""}, {"name": "x", "dims": 0}])
def test_an_embedder_needs_a_name_and_dimensions(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        CallableEmbedder(lengths, **options)


# -- servers


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer() as server:
        server.answers = [answer_vectors]
        yield server


def answer_vectors(handler: Any) -> None:
    """Answers as OpenAI does, with the last text first."""
    texts = handler.server.requests[-1][2]["input"]
    rows = [{"index": at, "embedding": row, "object": "embedding"} for at, row in enumerate(lengths(texts))]
    responds(200, {"object": "list", "data": rows[::-1], "model": "small"})(handler)


@pytest.fixture(autouse=True)
def _close_clients(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the connections of all clients, as the end of a process does."""
    clients = []

    def recorded_client(*args: Any) -> Any:
        clients.append(openai_client(*args))
        return clients[-1]

    monkeypatch.setattr(adapters, "openai_client", recorded_client)
    yield
    for client in clients:
        client.close()


def embedder_at(server: ModelServer, **options: Any) -> OpenAIEmbedder:
    return OpenAIEmbedder("small", base_url=f"{server.url}/v1", **{"dims": 3, "timeout": 5.0} | options)


def test_vectors_of_a_server_are_in_the_order_of_the_texts(server: ModelServer) -> None:
    texts = ["a", "bb", "ccc", "", "d\ud800"]
    expected = CallableEmbedder(lengths, name="lengths").embed(["a", "bb", "ccc", " ", "d?"])
    np.testing.assert_array_equal(embedder_at(server, batch=2).embed(texts), expected)
    path, headers, body = server.requests[0]
    assert path == "/v1/embeddings"
    assert headers["authorization"] == "Bearer no-key-needed"
    assert (body["model"], body["input"], body["encoding_format"]) == ("small", ["a", "bb"], "float")
    assert [len(request[2]["input"]) for request in server.requests] == [2, 2, 1]


def test_a_server_is_not_asked_before_a_vector_is_needed(server: ModelServer) -> None:
    embedder = embedder_at(server, dims=None)
    assert server.requests == []
    assert embedder.identity == EmbedderIdentity("openai:small", 3)
    assert embedder.embed([]).shape == (0, 3)
    assert len(server.requests) == 1


def test_a_busy_server_is_asked_again_once(server: ModelServer) -> None:
    server.answers = [responds(503, error("busy")), answer_vectors]
    assert embedder_at(server).embed(["a"]).shape == (1, 3)
    server.answers = [responds(503, error("busy"))]
    server.requests.clear()
    with pytest.raises(EmbedderFailed, match="status 503: busy"):
        embedder_at(server).embed(["a"])
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (responds(401, error(f"wrong key {KEY}")), "status 401: wrong key"),
        (responds(404, error("no such model")), "status 404"),
        (responds(200, b"<html>"), "malformed answer"),
        (responds(200, {"data": []}), "0 vectors for 1 texts"),
        (responds(200, {"data": [{"index": 1, "embedding": [1.0, 2.0, 3.0]}]}), "1 vectors for 1 texts"),
        (responds(200, {"data": [{"index": 0, "embedding": [1.0]}]}), "1 dimensions"),
        (disconnects, "connection failed"),
        (truncates, "connection failed"),
    ],
)
def test_each_failure_of_a_server_is_one_error_without_the_key(
    server: ModelServer, answer: Answer, reason: str
) -> None:
    server.answers = [answer]
    with pytest.raises(EmbedderFailed, match=reason) as failed:
        embedder_at(server, api_key=KEY).embed(["a"])
    assert KEY not in str(failed.value)
    assert failed.value.embedder == "openai:small"


@pytest.mark.parametrize("answer", [hangs, trickles])
def test_a_slow_server_is_abandoned_after_the_timeout(server: ModelServer, answer: Answer) -> None:
    server.answers = [answer]
    start = time.monotonic()
    with pytest.raises(EmbedderFailed, match=r"timeout after 0\.3 s"):
        embedder_at(server, timeout=0.3).embed(["a"])
    assert time.monotonic() - start < 8  # the server would take 10 s


def test_a_refused_connection_is_reported() -> None:
    with pytest.raises(EmbedderFailed, match="connection failed") as failed:
        OpenAIEmbedder("small", base_url="http://127.0.0.1:9/v1", dims=3, timeout=2).embed(["a"])
    assert "server listens" in failed.value.hint


@pytest.mark.parametrize("options", [{"batch": 0}, {"timeout": 0}, {"base_url": "ftp://h"}, {"base_url": None}])
def test_bad_options_of_a_server_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput) as refused:
        OpenAIEmbedder("small", **{"base_url": "http://127.0.0.1:9/v1"} | options)
    assert refused.value.hint


# -- sentence-transformers


class LoadedModel:
    def encode(self, texts: list[str], **_: object) -> list[list[float]]:
        return lengths(texts)


def test_a_loaded_sentence_transformers_model_is_used() -> None:
    embedder = SentenceTransformersEmbedder(LoadedModel(), name="mine", checksum="1")
    assert embedder.embed(["a"]).shape == (1, 3)
    assert embedder.identity == EmbedderIdentity("sentence-transformers:mine", 3, checksum="1")
    with pytest.raises(InvalidInput, match="needs a name"):
        SentenceTransformersEmbedder(LoadedModel())


# -- by name


def test_embedders_are_loaded_by_name(server: ModelServer, installed: InstalledModel) -> None:
    assert load_embedder("none") is load_embedder(None) is None
    default = load_embedder()
    assert isinstance(default, MiniLM)
    assert default.identity == load_embedder(" minilm\n", fetch=False).identity  # type: ignore[union-attr]
    remote = load_embedder(f"openai:small@{server.url}/v1")
    assert isinstance(remote, OpenAIEmbedder)
    assert remote.embed(["a"]).shape == (1, 3)
    mine = load_embedder(lengths)
    assert mine is not None
    assert mine.name == f"{__name__}.lengths"
    assert load_embedder(mine) is mine


def test_missing_weights_are_reported_if_fetching_is_not_allowed(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DURAMEN_CACHE", str(tmp_path))
    with pytest.raises(WeightsUnavailable, match="not found") as missing:
        load_embedder("minilm", fetch=False)
    assert "duramen model install" in missing.value.hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "spec",
    [
        *("", "minlm", "minilm:x", "openai:", "openai", "openai:x@ftp://h", "openai:x@https://me:hidden@h/v1"),
        *("sentence-transformers:", "sentence-transformers:a b", "sentence-transformers:none-such"),
        *(7, lambda texts: texts, ["minilm"], object()),
    ],
)
def test_an_unknown_embedder_is_refused(spec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    with pytest.raises(InvalidInput) as refused:
        load_embedder(spec)
    assert refused.value.hint
    assert "hidden" not in str(refused.value)
