"""From an address and settings to a journal: which store, which keys, which clock."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, TypedDict

from ..context.episode_policy import EpisodePolicy
from ..context.window.settings import Window
from ..errors import InMemoryRefused, InvalidInput
from ..journal.codec import Codec
from ..journal.events import check_name
from ..journal.journal import Journal
from ..journal.redaction import Redactor
from ..journal.sealing import Keyring, KeySource, SystemIds, master_keys
from ..memory.catalog.memory_event import MemoryProjection
from ..memory.knowledge.policies import KindPolicy
from ..ports import Clock, Embedder, Ids, Model, Store
from ..runtime import Runtime

Address = str | PathLike[str]


class SystemClock:
    """The machine's clock."""

    def now(self) -> int:
        return time.time_ns() // 1000


class Settings(TypedDict, total=False):
    """The settings of `open` and `aopen`, in addition to the address.

    workspace       the tenant; nothing crosses it ("default")
    key             master key(s) for sealing: 32 bytes, hex, base64, several (the first one wraps), or a
                    function that gives them; else the environment's DURAMEN_KEY; without one, nothing is sealed
    file_key        encrypts a SQLite file whole (32 bytes, hex or base64); else DURAMEN_FILE_KEY
    redact          whether credentials are replaced before they are stored (True), or a `Redactor`
    blob_above      bytes from which text and bytes are stored apart, once (16 KiB)
    max_payload     bytes that one event may hold (64 MiB)
    timeout         seconds to wait for a lock or a connection (30)
    pool_size       connections to PostgreSQL at most (10)
    keep_unknown    give values of classes that are not registered as `Unregistered` instead of refusing them (False)
    readonly        open without the right to write (False)
    embedder        what makes vectors of texts: "minilm" (the default), "openai:NAME@URL", a function or an `Embedder`;
                    "none" searches by words alone; else the environment's DURAMEN_EMBEDDER
    episodes        how many episodes sessions have, and how long they count: an `EpisodePolicy` (1,000, a day)
    suspicious      what recall does with text that looks like instructions to the model: "keep", "flag" (the default)
                    or "quarantine", which leaves it out
    policies        what kinds of memory need before they are used, and when they are stale: {"fact": KindPolicy(…)}
    write_back      whether what is worth keeping of a turn is written back in the background (True)
    model           a model, or its name ("anthropic:claude-haiku-4-5"), that reads over what was said, in that
                    background, for what the rules miss (none: the rules alone)
    model_every     after how many turns of a session it does (5)
    window          how the contexts of sessions are built: a `Window` (8,000 tokens, summarised from 80 %)
    production      refuse what loses data; else the environment's DURAMEN_ENV=production (False)
    clock, ids      where time and unguessable bytes come from
    """

    workspace: str
    key: KeySource | None
    file_key: bytes | str | None
    redact: bool | Redactor
    blob_above: int
    max_payload: int
    timeout: float
    pool_size: int
    keep_unknown: bool
    readonly: bool
    embedder: str | Embedder | Callable[[list[str]], Any] | None
    episodes: EpisodePolicy
    policies: Mapping[str, KindPolicy]
    suspicious: str
    window: Window
    write_back: bool
    model: Model | str | None
    model_every: int
    production: bool
    clock: Clock
    ids: Ids


def open_store(address: Address, settings: Settings, runtime: Runtime) -> Store:
    """The store that an address leads to. Blocks."""
    text = os.fspath(address) if isinstance(address, (str, PathLike)) else None
    if not isinstance(text, str) or not text or "\0" in text or not _encodes(text):
        raise InvalidInput(f"{address!r} is not an address", hint="give a path, or a postgresql:// URL")
    scheme = text.split("://", 1)[0].lower() if "://" in text else ""
    if text in ("memory:", ":memory:", "memory://"):
        return _in_memory(settings, runtime)
    if scheme in ("postgresql", "postgres"):
        return _postgres(text, settings, runtime)
    if scheme in ("", "sqlite", "file"):
        path = text if not scheme else text.split("://", 1)[1].removeprefix("/" if scheme == "sqlite" else "")
        if not path:
            raise InvalidInput(f"{address!r} names no file", hint="write it as sqlite:///agent.db, or just agent.db")
        return _sqlite(path, settings, runtime)
    raise InvalidInput(
        f"duramen has no store for {scheme}:// addresses",
        hint="use a path such as agent.db, postgresql://…, or memory: in tests",
    )


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _in_memory(settings: Settings, runtime: Runtime) -> Store:
    from ..stores.inmemory import InMemoryStore

    production = settings.get("production", os.environ.get("DURAMEN_ENV") == "production")
    if production:
        raise InMemoryRefused(
            "the in-memory store loses everything with the process; production refuses it",
            hint="open a file (agent.db) or postgresql://…",
        )
    return InMemoryStore(runtime)


def _sqlite(path: str, settings: Settings, runtime: Runtime) -> Store:
    from ..stores.sqlite import SqliteSettings, SqliteStore

    keys = master_keys(_key_source(settings.get("file_key"), "DURAMEN_FILE_KEY"))
    chosen = SqliteSettings(
        path,
        timeout=settings.get("timeout", 30.0),
        readonly=settings.get("readonly", False),
        file_key=keys[0] if keys else None,
        place=os.path.abspath(path),
    )
    return SqliteStore(chosen, runtime)


def _key_source(given: KeySource | None, variable: str) -> KeySource | None:
    """The key that was given, else the environment's."""
    return given if given is not None else os.environ.get(variable) or None


def _postgres(url: str, settings: Settings, runtime: Runtime) -> Store:
    try:
        from ..stores.postgres import PostgresSettings, PostgresStore
    except ImportError as error:
        raise InvalidInput(
            f"PostgreSQL needs a driver that is not installed ({error.name})",
            hint="pip install 'duramen[postgres]'",
        ) from error
    chosen = PostgresSettings(
        url,
        pool_size=settings.get("pool_size", 10),
        timeout=settings.get("timeout", 30.0),
        readonly=settings.get("readonly", False),
        workspace=check_name("workspace", settings.get("workspace", "default")),
    )
    return PostgresStore(chosen, runtime)


def open_journal(store: Store, settings: Settings) -> Journal:
    """A journal on an open store."""
    ids = settings.get("ids") or SystemIds()
    source = _key_source(settings.get("key"), "DURAMEN_KEY")
    redact = settings.get("redact", True)
    redactor = redact if isinstance(redact, Redactor) else Redactor() if redact else None
    return Journal(
        store,
        settings.get("workspace", "default"),
        clock=settings.get("clock") or SystemClock(),
        ids=ids,
        codec=Codec(
            redactor=redactor,
            blob_above=settings.get("blob_above", 16 * 1024),
            keep_unknown=settings.get("keep_unknown", False),
        ),
        keyring=Keyring(master_keys(source), ids),
        max_payload=settings.get("max_payload", 64 * 1024 * 1024),
        projection=MemoryProjection(),
    )


def embedder_loader(settings: Settings) -> Callable[[bool], Embedder | None]:
    """A function that loads the embedder of these settings, and fetches its files if its argument is true."""
    chosen = settings.get("embedder", os.environ.get("DURAMEN_EMBEDDER") or "minilm")

    def load(fetch: bool) -> Embedder | None:
        from ..embedders import load_embedder

        return load_embedder(chosen, fetch=fetch)

    return load


_NUMBERS: dict[str, tuple[type, ...]] = {
    "timeout": (int, float),
    "max_payload": (int,),
    "blob_above": (int,),
    "pool_size": (int,),
    "model_every": (int,),
}


def check_settings(settings: Settings) -> None:
    """Refuse unknown settings: a misspelt `key` must not leave data unsealed."""
    for name, kinds in _NUMBERS.items():
        value: object = settings.get(name, 1)
        if not isinstance(value, kinds) or isinstance(value, bool) or not value > 0:  # type: ignore[operator]
            raise InvalidInput(f"{value!r} cannot be `{name}`", hint="give a number above 0")
    if not isinstance(settings.get("window", Window()), Window):
        raise InvalidInput(f"{settings['window']!r} cannot be `window`", hint="give a duramen.Window(…)")
    if not isinstance(settings.get("episodes", EpisodePolicy()), EpisodePolicy):
        raise InvalidInput(f"{settings['episodes']!r} cannot be `episodes`", hint="give a duramen.EpisodePolicy(…)")
    if settings.get("suspicious", "flag") not in ("keep", "flag", "quarantine"):
        hint = "say keep, flag or quarantine"
        raise InvalidInput(f"{settings['suspicious']!r} cannot be `suspicious`", hint=hint)
    _check_policies(settings.get("policies", {}))
    unknown = sorted(set(settings) - Settings.__annotations__.keys())
    if unknown:
        known = ", ".join(sorted(Settings.__annotations__))
        raise InvalidInput(f"unknown setting {unknown[0]!r}", hint=f"valid settings: {known}")


def _check_policies(policies: object) -> None:
    good = isinstance(policies, Mapping) and all(
        isinstance(kind, str) and isinstance(policy, KindPolicy) for kind, policy in policies.items()
    )
    if not good:
        raise InvalidInput(
            f"{policies!r} cannot be `policies`", hint='give {"fact": duramen.KindPolicy("check", stale_after=30)}'
        )
