"""Opens the store and the journal that an address and settings describe."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, TypedDict

from ..context.episode_policy import EpisodePolicy
from ..context.window.settings import Window
from ..errors import InMemoryRefused, InvalidInput, shown
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
    """The clock of the machine."""

    def now(self) -> int:
        return time.time_ns() // 1000


class Settings(TypedDict, total=False):
    """The settings of `open` and `aopen`.

    Attributes:
        workspace: the tenant. A handle reads and writes one workspace only. Default: "default".
        key: the master key that seals payloads: 32 bytes, hex or base64. A list holds the current key first, then
            older ones. A function may return the key or the list. Default: the environment variable DURAMEN_KEY.
            Without a key nothing is sealed.
        file_key: encrypts a whole SQLite file: 32 bytes, hex or base64. Default: the environment variable
            DURAMEN_FILE_KEY.
        redact: whether credentials are replaced before they are stored, or a `Redactor`. Default: True.
        blob_above: text and bytes above this size are stored as blobs, equal ones once. In bytes. Default: 16 KiB.
        max_payload: the maximum size of one event, in bytes. Default: 64 MiB.
        timeout: seconds to wait for a lock or a connection. Default: 30.
        pool_size: the maximum number of connections to PostgreSQL. Default: 10.
        keep_unknown: return values of unregistered classes as `Unregistered`. Default: False, which raises
            `UnknownType`.
        readonly: open the store without the right to write. Default: False.
        embedder: computes vectors of texts: "minilm", "openai:NAME@URL", a function or an `Embedder`. "none" searches
            by words alone. Default: the environment variable DURAMEN_EMBEDDER, or "minilm".
        episodes: an `EpisodePolicy`: how many episodes a session has, and how long they count. Default: 1,000 and one
            day.
        policies: when a kind of memory is stale, and what it then needs before use: {"fact": KindPolicy(…)}.
        suspicious: what recall does with text that looks like instructions to the model: "keep", "flag" (the
            default), or "quarantine", which leaves it out.
        window: a `Window`: how the context of a session is built. Default: 8,000 tokens, summarised from 80 %.
        write_back: whether facts and procedures from finished turns and runs are saved in the background. Default:
            True.
        model: a model, or its name such as "anthropic:claude-haiku-4-5". In the background, it reads finished turns
            for facts that the built-in rules miss. Default: none, which uses the rules alone.
        model_every: the number of turns of a session after which `model` reads them. Default: 5.
        production: refuse stores that lose data. Default: True if the environment variable DURAMEN_ENV is
            "production".
        clock: where the time comes from. Default: the clock of the machine.
        ids: where unguessable bytes come from. Default: the operating system.
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
    """The store at an address. Blocks. Raises `InvalidInput` if the address is not valid."""
    text = os.fspath(address) if isinstance(address, (str, PathLike)) else None
    if not isinstance(text, str) or not text or "\0" in text or not _encodes(text) or len(text) > 4096:
        raise InvalidInput(f"{shown(address)} is not an address", hint="give a path, or a postgresql:// URL")
    scheme = text.split("://", 1)[0].lower() if "://" in text else ""
    if text in ("memory:", ":memory:", "memory://"):
        return _in_memory(settings, runtime)
    if scheme in ("postgresql", "postgres"):
        return _postgres(text, settings, runtime)
    if scheme in ("", "sqlite", "file"):
        path = text if not scheme else text.split("://", 1)[1].removeprefix("/" if scheme == "sqlite" else "")
        if not path:
            raise InvalidInput(
                f"the address {shown(text)} has no file name", hint="write sqlite:///agent.db, or agent.db"
            )
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
            "the in-memory store is not allowed in production: it loses all data when the process ends",
            hint="open a file such as agent.db, or a postgresql:// URL",
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
    """The key from the settings, or from an environment variable."""
    return given if given is not None else os.environ.get(variable) or None


def _postgres(url: str, settings: Settings, runtime: Runtime) -> Store:
    try:
        from ..stores.postgres import PostgresSettings, PostgresStore
    except ImportError as error:
        raise InvalidInput(
            f"the PostgreSQL store needs a package that is not installed: {error.name}",
            hint="run: pip install 'duramen[postgres]'",
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
    """A function that loads the embedder of these settings. It downloads missing files if its argument is true."""
    chosen = settings.get("embedder", os.environ.get("DURAMEN_EMBEDDER") or "minilm")

    def load(fetch: bool) -> Embedder | None:
        from ..embedders import load_embedder

        return load_embedder(chosen, fetch=fetch)

    return load


_MOST = 2**31
_NUMBERS: dict[str, tuple[type, ...]] = {
    "timeout": (int, float),
    "max_payload": (int,),
    "blob_above": (int,),
    "pool_size": (int,),
    "model_every": (int,),
}


def check_settings(settings: Settings) -> None:
    """Raise `InvalidInput` for invalid and for unknown settings: a misspelt `key` must not leave data unsealed."""
    for name, kinds in _NUMBERS.items():
        value: object = settings.get(name, 1)
        good = isinstance(value, kinds) and not isinstance(value, bool)
        if not good or not 0 < value < _MOST:  # type: ignore[operator]
            raise InvalidInput(f"`{name}` cannot be {shown(value)}", hint="give a number above 0")
    for name, method in (("clock", "now"), ("ids", "random")):
        given: object = settings.get(name)
        if given is not None and not callable(getattr(given, method, None)):
            raise InvalidInput(f"`{name}` cannot be {shown(given)}", hint=f"give an object with {method}()")
    clock = settings.get("clock")
    if clock is not None and not isinstance(clock.now(), int):
        raise InvalidInput(f"`clock` cannot be {shown(clock)}", hint="now() returns microseconds since 1970, as an int")
    if not isinstance(settings.get("window", Window()), Window):
        raise InvalidInput(f"`window` cannot be {shown(settings['window'])}", hint="give a duramen.Window(…)")
    if not isinstance(settings.get("episodes", EpisodePolicy()), EpisodePolicy):
        hint = "give a duramen.EpisodePolicy(…)"
        raise InvalidInput(f"`episodes` cannot be {shown(settings['episodes'])}", hint=hint)
    if settings.get("suspicious", "flag") not in ("keep", "flag", "quarantine"):
        hint = "give keep, flag or quarantine"
        raise InvalidInput(f"`suspicious` cannot be {shown(settings['suspicious'])}", hint=hint)
    _check_policies(settings.get("policies", {}))
    unknown = sorted(set(settings) - Settings.__annotations__.keys())
    if unknown:
        known = ", ".join(sorted(Settings.__annotations__))
        raise InvalidInput(f"open() got an unknown setting {shown(unknown[0])}", hint=f"valid settings: {known}")


def _check_policies(policies: object) -> None:
    good = isinstance(policies, Mapping) and all(
        isinstance(kind, str) and isinstance(policy, KindPolicy) for kind, policy in policies.items()
    )
    if not good:
        raise InvalidInput(
            f"`policies` cannot be {shown(policies)}",
            hint='give a dict such as {"fact": duramen.KindPolicy("check", stale_after=30)}',
        )
