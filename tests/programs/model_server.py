"""An HTTP server on 127.0.0.1 with the protocols of the model providers and their failures.

with ModelServer() as server:
    server.answers = [responds(500, error("boom")), hangs]
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
        self.closing = threading.Event()
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore it: the client closed the connection, as expected."""


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


def responds(status: int, body: Any, **headers: str) -> Answer:
    """Answers with these bytes, or with any other value as JSON."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()

    def answer(handler: _Handler) -> None:
        handler.send_response(status)
        for name, value in ({"content_type": "application/json"} | headers).items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", str(len(content)))
        handler.end_headers()
        handler.wfile.write(content)

    return answer


def hangs(handler: _Handler) -> None:
    """Does not answer, for longer than any timeout."""
    handler.close_connection = True
    handler.server.closing.wait(10)


def trickles(handler: _Handler) -> None:
    """Sends a blank now and then, as gateways do, for longer than any timeout."""
    _begin(handler)
    for _ in range(200):
        if not handler.server.closing.wait(0.05):
            handler.wfile.write(b" ")


def floods(handler: _Handler) -> None:
    """Sends more bytes than the size limit of an answer."""
    _begin(handler)
    for _ in range(64):
        handler.wfile.write(b" " * 2**20)


def disconnects(handler: _Handler) -> None:
    """Closes the connection without an answer."""
    handler.close_connection = True


def truncates(handler: _Handler) -> None:
    """Closes the connection before the end of the answer."""
    _begin(handler, content_length="100")
    handler.wfile.write(b'{"choices": [')


def _begin(handler: _Handler, **headers: str) -> None:
    handler.close_connection = True
    handler.send_response(200)
    for name, value in headers.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()


def error(message: str, kind: str = "api_error") -> dict[str, Any]:
    """The body of an error, as both providers send it."""
    return {"type": "error", "error": {"type": kind, "message": message}}


def anthropic_body(*blocks: dict[str, Any], stop: str = "end_turn") -> dict[str, Any]:
    """The body of an answer from Anthropic."""
    return {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": blocks, "stop_reason": stop}


def openai_body(content: Any, *, stop: str = "stop", **message: Any) -> dict[str, Any]:
    """The body of an answer from OpenAI."""
    choice = {"index": 0, "finish_reason": stop, "message": {"role": "assistant", "content": content} | message}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "x", "choices": [choice]}


def text_body(protocol: str, text: str) -> dict[str, Any]:
    """The body of an answer with this text."""
    return anthropic_body({"type": "text", "text": text}) if protocol == "anthropic" else openai_body(text)
