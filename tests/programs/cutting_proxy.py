"""A proxy between client and PostgreSQL that breaks a connection at a chosen message."""

from __future__ import annotations

import socket
import threading
from typing import Self
from urllib.parse import urlsplit


class CuttingProxy:
    """Forwards bytes. After `cut_after`, the next message with the given text still reaches the server. The proxy drops
    the answer and closes the connection on both sides."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = url.replace(f":{parts.port}/", f":{self._listener.getsockname()[1]}/")
        self._mutex = threading.Lock()
        self._cut_at: bytes | None = None
        self._open: list[socket.socket] = []
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_after(self, text: bytes) -> None:
        """Drop the answer to the next message that contains `text`."""
        with self._mutex:
            self._cut_at = text

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._server)
            cutting = threading.Event()
            self._open += [client, server]
            threading.Thread(target=self._forward_requests, args=(client, server, cutting), daemon=True).start()
            threading.Thread(target=self._forward_answers, args=(client, server, cutting), daemon=True).start()

    def _forward_requests(self, client: socket.socket, server: socket.socket, cutting: threading.Event) -> None:
        while data := _received(client):
            with self._mutex:
                if self._cut_at is not None and self._cut_at in data:
                    self._cut_at = None
                    self.cuts += 1
                    cutting.set()
            _sent(server, data)
        _shut(client, server)

    def _forward_answers(self, client: socket.socket, server: socket.socket, cutting: threading.Event) -> None:
        while data := _received(server):
            if cutting.is_set():
                break  # the server has executed the request, but the client gets no answer
            _sent(client, data)
        _shut(client, server)

    def close(self) -> None:
        """Close all connections."""
        _shut(self._listener, *self._open)
        self._listener.close()
        for end in self._open:
            end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _received(end: socket.socket) -> bytes:
    try:
        return end.recv(1 << 20)
    except OSError:
        return b""


def _sent(end: socket.socket, data: bytes) -> None:
    try:
        end.sendall(data)
    except OSError:
        _shut(end)


def _shut(*ends: socket.socket) -> None:
    for end in ends:
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue
