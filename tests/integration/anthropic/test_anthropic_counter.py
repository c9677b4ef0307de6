"""`anthropic_counter` counts tokens with the count call of Anthropic's SDK."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic import Anthropic, AsyncAnthropic

from duramen.context.tokens.counters import anthropic_counter
from duramen.context.tokens.estimate import Estimate
from duramen.errors import InvalidInput

estimate = Estimate().count


class CountServer(TCPServer):
    """Answers requests of Anthropic's `count_tokens` with the number of characters."""

    status = 200

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), CountHandler)
        self.bodies: list[dict[str, Any]] = []


class CountHandler(BaseHTTPRequestHandler):
    server: CountServer

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
def server() -> Iterator[CountServer]:
    with CountServer() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_each_text_is_counted_as_a_user_message(server: CountServer) -> None:
    with Anthropic(api_key="none", base_url=f"http://127.0.0.1:{server.server_address[1]}") as client:
        counter = anthropic_counter(client, "some-model")
        assert counter.name == "anthropic:some-model"
        assert [counter.count(text) for text in ("harbour", "a\ud800", "  \n")] == [7, 2, estimate("  \n")]
        requests = [(body["model"], body["messages"]) for body in server.bodies]
        assert requests == [("some-model", [{"role": "user", "content": text}]) for text in ("harbour", "a\ufffd")]
        assert {body["path"] for body in server.bodies} == {"/v1/messages/count_tokens"}
        server.status = 500
        assert counter.count("village") == estimate("village")
        assert len(server.bodies) == 3  # no retry: the counter uses the estimate
        assert counter.failures == 1


def test_an_async_client_is_refused() -> None:
    for client in (AsyncAnthropic(api_key="none"), SimpleNamespace()):
        with pytest.raises(InvalidInput, match="count_tokens") as refused:
            anthropic_counter(client, "some-model")
        assert "anthropic.Anthropic()" in refused.value.hint
