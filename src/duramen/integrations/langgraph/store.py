"""LangGraph's long-term store on a journal."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from typing import Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    ListNamespacesOp,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    validate_op_namespace,
)
from langgraph.store.base import Item as StoreItem

from ...api._async.duramen import AsyncDuramen
from ...api._sync.duramen import Duramen
from ...checkpoints.kv_items import KvItem, KvItems
from ...errors import InvalidInput
from ...runtime import drive
from .handle import HandleAdapter
from .search import filter_namespaces, matches, ranked

_MINUTE = 60_000_000


class DuramenStore(BaseStore):
    """Items with namespaces and keys that outlive threads.

    Filters, namespaces and validation are those of LangGraph. `search(query=…)` ranks by words: the score is the share
    of the query's words that an item contains. `ttl` takes LangGraph's `TTLConfig`. Expired items are never returned;
    their payloads are removed by `sweep_ttl`. With `sweep_interval_minutes`, the first put after that interval sweeps
    too.
    """

    supports_ttl = True

    def __init__(self, dm: Duramen | AsyncDuramen, *, index: Any = None, ttl: TTLConfig | None = None) -> None:
        if index is not None:
            raise InvalidInput(
                "DuramenStore has no vector index", hint="leave out index=; search(query=…) ranks by words"
            )
        self._handle = HandleAdapter(dm)
        self._items = KvItems(self._handle.journal)
        self.ttl_config = ttl
        self._next_sweep = 0

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Execute operations and return their results. All reads come first and do not see the writes of this batch. Of
        several writes to one key, only the last is stored."""
        return drive(self._do(list(ops)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """As `batch`."""
        return await self._handle.run(self._do(list(ops)))

    def sweep_ttl(self) -> int:
        """Remove expired items. Returns how many."""
        return drive(self._items.sweep())

    async def asweep_ttl(self) -> int:
        """As `sweep_ttl`."""
        return await self._handle.run(self._items.sweep())

    async def _do(self, ops: list[Op]) -> list[Result]:
        for op in ops:
            validate_op_namespace(op)
        results = [await self._read(op) for op in ops]
        for write in {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}.values():
            await self._write(write)
        return results

    async def _read(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            item = await self._items.get(op.namespace, op.key, touch=op.refresh_ttl)
            return None if item is None else StoreItem(**_facts(item))
        if isinstance(op, SearchOp):
            return await self._search(op)
        if isinstance(op, ListNamespacesOp):
            namespaces = filter_namespaces(await self._items.namespaces(), op.match_conditions, op.max_depth)
            return namespaces[op.offset : op.offset + op.limit]
        if not isinstance(op, PutOp):
            raise InvalidInput(f"{type(op).__name__} is not a store operation", hint="use the methods of the store")
        return None

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        found = [item for item in await self._items.find(op.namespace_prefix) if matches(item.value, op.filter or {})]
        page = ranked(found, op.query)[op.offset : op.offset + op.limit]
        for item, _ in page:
            if op.refresh_ttl and item.ttl is not None:
                await self._items.get(item.namespace, item.key, touch=True)
        return [SearchItem(**_facts(item), score=score) for item, score in page]

    async def _write(self, op: PutOp) -> None:
        if op.value is None:
            await self._items.remove(op.namespace, op.key)
            return
        ttl = None if op.ttl is None else round(op.ttl * _MINUTE)
        await self._items.put(op.namespace, op.key, dict(op.value), ttl_us=ttl)
        await self._sweep_if_due()

    async def _sweep_if_due(self) -> None:
        interval = (self.ttl_config or {}).get("sweep_interval_minutes")
        now = self._handle.journal.clock.now()
        if interval is None or now < self._next_sweep:
            return
        if self._next_sweep:
            await self._items.sweep()
        self._next_sweep = now + round(interval * _MINUTE)


def _facts(item: KvItem) -> dict[str, Any]:
    return {
        "namespace": item.namespace,
        "key": item.key,
        "value": item.value,
        "created_at": _moment(item.created),
        "updated_at": _moment(item.updated),
    }


def _moment(micros: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)
