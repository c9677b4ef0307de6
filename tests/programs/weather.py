"""A network with bad weather between client and PostgreSQL: it delays, drops and half-closes connections."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter
from typing import Self
from urllib.parse import urlsplit


class BadWeather:
    """An asyncio proxy on a thread of its own. While the weather is bad, a piece of data may be passed on late, or be
    the last one: the connection is dropped on both sides, or closed on one side only."""

    def __init__(self, url: str, seed: int) -> None:
        parts = urlsplit(url)
        self._server = (parts.hostname, parts.port)
        self._chance = random.Random(seed)
        self._bad = False
        self._ends: list[asyncio.StreamWriter] = []
        self.seen: Counter[str] = Counter()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        door = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._pass_on, "127.0.0.1", 0), self._loop)
        self._door = door.result()
        self.url = url.replace(f":{parts.port}/", f":{self._door.sockets[0].getsockname()[1]}/")

    def turn(self, bad: bool) -> None:
        """Let the weather turn bad, or good."""
        self._bad = bad

    async def _pass_on(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        server_in, server_out = await asyncio.open_connection(*self._server)
        ends = (client_out, server_out)
        self._ends += ends
        await asyncio.gather(self._carry(client_in, server_out, ends), self._carry(server_in, client_out, ends))
        for end in ends:
            end.close()

    async def _carry(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, ends: tuple[asyncio.StreamWriter, ...]
    ) -> None:
        try:
            while data := await source.read(1 << 16):
                fate = self._chance.random() if self._bad else 1.0
                if fate < 0.01:
                    self.seen["dropped"] += 1
                    break
                if fate < 0.015:
                    self.seen["half-closed"] += 1
                    target.write_eof()
                    return
                if fate < 0.15:
                    self.seen["delayed"] += 1
                    await asyncio.sleep(self._chance.uniform(0, 0.02))
                target.write(data)
                await target.drain()
            else:
                target.write_eof()
                return
        except OSError:
            self.seen["broken"] += 1
        for end in ends:
            end.transport.abort()

    def close(self) -> None:
        """Cut everything."""
        self._door.close()
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
        await asyncio.sleep(0.05)  # time for the transports to be gone

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
