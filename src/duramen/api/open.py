"""`open` and `aopen`: from an address and settings to a handle."""

from __future__ import annotations

from typing import Unpack

from ..memory.loader import MemorySettings
from ..runtime import Blocking, Looping, Runtime, drive
from ._async.duramen import AsyncDuramen
from ._sync.duramen import Duramen
from .options import model_of
from .settings import Address, Settings, check_settings, embedder_loader, open_journal, open_store


def open(address: Address, **settings: Unpack[Settings]) -> Duramen:
    """Open a store for blocking code and return a handle on one workspace.

    Close the handle with `dm.close()`, or use it with `with`.

    Args:
        address: a path such as "agent.db" for SQLite (the file is created), a postgresql:// URL, or "memory:" for
            tests.
        **settings: see `Settings`.

    Raises:
        InvalidInput: the address or a setting is not valid.
        NotAStore: the address leads to something other than a duramen store.
        StoreUnavailable: the store cannot be reached.
        KeyMissing: the store holds sealed data and no key was given.
        WrongKey: the key does not fit the store.
    """
    return Duramen(drive(open_on(Blocking(), address, settings)))


async def aopen(address: Address, **settings: Unpack[Settings]) -> AsyncDuramen:
    """Open a store for use from an event loop and return a handle on one workspace.

    It takes the same arguments and raises the same errors as `open`. Close the handle with `await dm.close()`, or use
    it with `async with`.
    """
    return await open_on(Looping(), address, settings)


async def open_on(runtime: Runtime, address: Address, settings: Settings) -> AsyncDuramen:
    """Open a store on a runtime: `Looping` for an event loop, or `Blocking`, which never suspends."""
    check_settings(settings)
    memory = MemorySettings(
        embedder=embedder_loader(settings),
        suspicious=settings.get("suspicious", "flag"),
        policies=settings.get("policies"),
        write_back=settings.get("write_back", True),
        model=model_of(settings.get("model")),
        model_every=settings.get("model_every", 5),
    )
    store = await runtime.run(lambda: open_store(address, settings, runtime))
    try:
        journal = open_journal(store, settings)
        await journal.check_key()
    except BaseException:
        await store.close()
        raise
    return AsyncDuramen(journal, runtime, settings.get("window"), settings.get("episodes"), memory)
