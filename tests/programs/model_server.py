"""An HTTP server on 127.0.0.1 with the protocols of the model providers and their failures.

with ModelServer() as server:
    server.answers = [says(500, error("boom")), hangs]
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class ModelServer(ThreadingHTTPServer):
    """Answers requests with `answers` in turn, then with the last one again. Records the requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.answers: list[Answer] = []
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.over = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The client closed the connection, as expected."""


class _Handler(BaseHTTPRequestHandler):
    server: ModelServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.requests.append((self.path, dict(self.headers), body))
        answers = self.server.answers
        (answers.pop(0) if len(answers) > 1 else answers[0])(self)

    def log_message(self, *_: object) -> None:
        pass


Answer = Callable[[_Handler], None]


def says(status: int, body: Any, **headers: str) -> Answer:
    """Answers with these bytes, or with this value as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    def answer(to: _Handler) -> None:
        to.send_response(status)
        for name, value in ({"content_type": "application/json"} | headers).items():
            to.send_header(name.replace("_", "-"), value)
        to.send_header("content-length", str(len(content)))
        to.end_headers()
        to.wfile.write(content)

    return answer


def hangs(to: _Handler) -> None:
    """Does not answer, for longer than any timeout."""
    to.close_connection = True
    to.server.over.wait(10)


def drips(to: _Handler) -> None:
    """Sends white space, as gateways do, for longer than any timeout."""
    _begin(to)
    for _ in range(200):
        if not to.server.over.wait(0.05):
            to.wfile.write(b" ")


def pours(to: _Handler) -> None:
    """Sends more bytes than an answer may have."""
    _begin(to)
    for _ in range(64):
        to.wfile.write(b" " * 2**20)


def vanishes(to: _Handler) -> None:
    """Closes the connection without an answer."""
    to.close_connection = True


def breaks_off(to: _Handler) -> None:
    """Closes the connection in the middle of the answer."""
    _begin(to, content_length="100")
    to.wfile.write(b'{"choices": [')


def _begin(to: _Handler, **headers: str) -> None:
    to.close_connection = True
    to.send_response(200)
    for name, value in headers.items():
        to.send_header(name.replace("_", "-"), value)
    to.end_headers()


def error(message: str, kind: str = "api_error") -> dict[str, Any]:
    """The body of an error, as both providers send it."""
    return {"type": "error", "error": {"type": kind, "message": message}}


def claude(*blocks: dict[str, Any], stop: str = "end_turn") -> dict[str, Any]:
    """The body of an answer of Anthropic's."""
    return {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": blocks, "stop_reason": stop}


def gpt(content: Any, *, stop: str = "stop", **message: Any) -> dict[str, Any]:
    """The body of an answer of OpenAI's."""
    choice = {"index": 0, "finish_reason": stop, "message": {"role": "assistant", "content": content} | message}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "x", "choices": [choice]}


def good(protocol: str, text: str) -> dict[str, Any]:
    """The body of an answer that holds this text."""
    return claude({"type": "text", "text": text}) if protocol == "anthropic" else gpt(text)
