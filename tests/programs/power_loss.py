"""Opens a store on a simulated disk that loses unsynced writes at a power cut."""

from __future__ import annotations

from duramen.api._async.duramen import AsyncDuramen
from duramen.api._sync.duramen import Duramen
from duramen.api.settings import open_journal
from duramen.runtime import Blocking
from duramen.stores.sqlite import SqliteSettings, SqliteStore
from duramen.testing.power_loss import PowerLossDisk


def open_on(disk: PowerLossDisk, synchronous: str = "full") -> Duramen:
    store = SqliteStore(SqliteSettings("agent.db", vfs=disk.vfs_name), Blocking())
    store._access.writer.connection.pragma("synchronous", synchronous)
    return Duramen(AsyncDuramen(open_journal(store, {}), Blocking()))
