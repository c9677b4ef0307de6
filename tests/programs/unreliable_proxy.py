"""A proxy between client and PostgreSQL that delays data and drops or half-closes connections."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from typing import Self
from urllib.parse import urlsplit


class UnreliableProxy:
    """An asyncio proxy on its own thread. While it is unreliable, it may delay data, drop the connection on both sides,
    or close one side."""

    def __init__(self, url: str, chance: random.Random) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname, parts.port)
        self._chance = chance
        self._unreliable = False
        self._ends: list[asyncio.StreamWriter] = []
        self.faults: Counter[str] = Counter()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        listener = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._connect, "127.0.0.1", 0), self._loop)
        self._listener = listener.result()
        self.url = url.replace(f":{parts.port}/", f":{self._listener.sockets[0].getsockname()[1]}/")

    def set_unreliable(self, unreliable: bool) -> None:
        """Start or stop the faults."""
        self._unreliable = unreliable

    async def _connect(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        server_in, server_out = await asyncio.open_connection(*self._server)
        ends = (client_out, server_out)
        self._ends += ends
        await asyncio.gather(self._forward(client_in, server_out, ends), self._forward(server_in, client_out, ends))
        for end in ends:
            end.close()

    async def _forward(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, ends: tuple[asyncio.StreamWriter, ...]
    ) -> None:
        try:
            while data := await source.read(1 << 16):
                draw = self._chance.random() if self._unreliable else 1.0
                if draw < 0.01:
                    self.faults["dropped"] += 1
                    break
                if draw < 0.015:
                    self.faults["half-closed"] += 1
                    target.write_eof()
                    return
                if draw < 0.15:
                    self.faults["delayed"] += 1
                    await asyncio.sleep(self._chance.uniform(0, 0.02))
                target.write(data)
                await target.drain()
            else:
                target.write_eof()
                return
        except OSError:
            self.faults["broken"] += 1
        for end in ends:
            end.transport.abort()

    def close(self) -> None:
        """Close all connections."""
        self._listener.close()
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for end in self._ends:
            end.transport.abort()
            end.close()
        self._ends.clear()
        await asyncio.sleep(0.05)  # so that the transports can close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
