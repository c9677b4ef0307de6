"""Encodes plain data and registered types as msgpack, and decodes them. It never uses pickle.

Types that msgpack does not have are stored as extension types (see `Tag`). Equal values give equal bytes in every
process: sets are sorted, and mappings keep their order, which is part of their value. Text and bytes above a size
become blobs. The payload then contains the address of the blob.
"""

from __future__ import annotations

import datetime as dt
import enum
import pathlib
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from ..errors import InvalidInput, UnknownType, shown
from .redaction import Redactor
from .registry import DEFAULT, Registry

_pack = msgspec.msgpack.encode
_Ext = msgspec.msgpack.Ext
Reference = Callable[[bytes], bytes]
_PLAIN_KEYS = frozenset([str, int, float, bool, type(None)])
_SEQUENCES = frozenset([list, tuple])


class Tag:
    """The extension types. Their numbers are stored, so a number must never get another meaning."""

    TUPLE = 1
    SET = 2
    FROZENSET = 3
    DATETIME = 4
    DATE = 5
    TIME = 6
    TIMEDELTA = 7
    DECIMAL = 8
    UUID = 9
    PATH = 10
    INTEGER = 11  # integers outside 64 bits
    REGISTERED = 12
    BLOB = 13
    TEXT = 14  # text with lone surrogates, which UTF-8 cannot encode
    COMPLEX = 15
    MAPPING = 16  # mappings with keys other than text, numbers and None


class BlobRef(msgspec.Struct, frozen=True, array_like=True):
    """A reference in a payload to bytes or text in a blob."""

    address: bytes
    size: int
    text: bool


class Unregistered(msgspec.Struct, frozen=True):
    """A value whose class this program does not register, if the codec has `keep_unknown`."""

    name: str
    version: int
    fields: Any


class Encoded(NamedTuple):
    """A payload and its large parts, by address."""

    payload: bytes
    parts: dict[bytes, bytes]


class Codec:
    """Encodes values, with redaction, and decodes payloads, which it does not trust.

    Text and bytes of more than `blob_above` bytes become blobs. With `keep_unknown`, a value of an unregistered class
    is decoded as `Unregistered`. Without it, such a value raises `UnknownType`.
    """

    def __init__(
        self,
        *,
        registry: Registry = DEFAULT,
        redactor: Redactor | None = None,
        blob_above: int = 16384,
        keep_unknown: bool = False,
    ) -> None:
        self._registry = registry
        self._redactor = redactor
        self._keep_unknown = keep_unknown
        self.blob_above = blob_above
        self.decode_whole = self.reader(_no_blob)

    def whole(self) -> Codec:
        """The same codec, but without blobs: payloads contain all of their data."""
        twin = Codec(registry=self._registry, redactor=self._redactor, keep_unknown=self._keep_unknown)
        twin.blob_above = 2**62
        return twin

    def encode(self, value: Any, reference: Reference) -> Encoded:
        """Encode a value. `reference` returns the address of a large part. Raises `UnknownType` for a type that is not
        registered, and `InvalidInput` for data that is nested too deeply or contains itself."""
        return _Encoding(self._registry, self._redactor, self.blob_above, reference).run(value)

    def decode(self, payload: bytes | memoryview, load: Callable[[BlobRef], Any]) -> Any:
        """Decode a payload. `load` returns the content of a blob. Raises `UnknownType` for a type that is not
        registered and ValueError for damaged bytes."""
        try:
            return self.reader(load)(payload)
        except (msgspec.DecodeError, TypeError, LookupError, ArithmeticError, OSError, RecursionError) as error:
            raise ValueError(f"the payload cannot be decoded: {error!r}") from error

    def reader(self, load: Callable[[BlobRef], Any]) -> Callable[[bytes | memoryview], Any]:
        """A function that decodes many payloads faster than `decode`. It raises the errors of msgspec."""

        def hook(code: int, data: memoryview) -> Any:
            value = self._revive(code, data, hook)
            return load(value) if code == Tag.BLOB else value

        return msgspec.msgpack.Decoder(ext_hook=hook).decode

    def _revive(self, code: int, data: memoryview, hook: Callable[[int, memoryview], Any]) -> Any:
        revive = _REVIVE.get(code)
        if revive is None and code != Tag.REGISTERED:
            raise UnknownType(f"extension {code}", hint="upgrade duramen: a newer version wrote this value")
        inner = msgspec.msgpack.Decoder(ext_hook=hook).decode(data)
        if revive is not None:
            return revive(inner)
        name, version, fields = inner
        entry = self._registry.by_name.get(name)
        if entry is None and self._keep_unknown:
            return Unregistered(name, version, fields)
        if entry is None:
            raise UnknownType(name, hint=f"import the module that registers {shown(name)} before reading")
        return entry.load(version, fields)


def _no_blob(ref: BlobRef) -> Any:
    raise ValueError(f"a part of {ref.size} bytes is in a blob")


class _Encoding:
    """The encoding of one value."""

    __slots__ = ("_blob_above", "_redactor", "_reference", "_registry", "_surrogates", "parts")

    def __init__(self, registry: Registry, redactor: Redactor | None, blob_above: int, reference: Reference) -> None:
        self._registry = registry.by_type
        self._redactor = redactor
        self._blob_above = blob_above
        self._reference = reference
        self._surrogates = False
        self.parts: dict[bytes, bytes] = {}

    def run(self, value: Any) -> Encoded:
        try:
            try:
                return Encoded(_pack(self._walk(value)), self.parts)
            except UnicodeEncodeError:
                self._surrogates = True  # rare, so texts are only checked in a second pass
                return Encoded(_pack(self._walk(value)), self.parts)
        except RecursionError:
            raise InvalidInput(
                "the payload is nested too deeply, or contains itself", hint="store flatter data without cycles"
            ) from None

    def _walk(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            return self._text(value)
        if kind is dict:
            return self._mapping(value)
        if kind is list:
            return self._items(value)
        if kind is int:
            if -(2**63) <= value < 2**64:
                return value
            return _Ext(Tag.INTEGER, _pack(hex(value)))
        if value is None or kind is bool or kind is float:
            return value
        return self._special(value, kind)

    def _text(self, value: str) -> Any:
        if self._redactor is not None:
            value = self._redactor.text(value)
        if len(value) > self._blob_above // 4:
            body = _surrogate_bytes(value)
            if len(body) > self._blob_above:
                return self._apart(body, text=True)
        if self._surrogates and not _is_unicode(value):
            return _Ext(Tag.TEXT, _pack(_surrogate_bytes(value)))
        return value

    def _apart(self, body: bytes, *, text: bool) -> Any:
        address = self._reference(body)
        self.parts[address] = body
        return _Ext(Tag.BLOB, _pack(BlobRef(address, len(body), text)))

    def _mapping(self, value: Mapping[Any, Any]) -> Any:
        plain = {}
        redactor = self._redactor
        known = redactor.known if redactor is not None else {}
        named = redactor is not None and redactor.names_a_value(value)
        for key, item in value.items():
            kind = type(key)
            if kind is str:
                # A name that is known to be harmless needs no check, unless its item is a list or tuple.
                if redactor is not None and (named or type(item) in _SEQUENCES or known.get(key) is not False):
                    item = redactor.member(key, item, named)
                odd = self._surrogates and not _is_unicode(key)
            else:
                odd = kind not in _PLAIN_KEYS or (kind is int and not -(2**63) <= key < 2**64)
            if odd:
                return self._pairs(value)
            try:
                plain[key] = self._walk(item)
            except UnknownType as error:
                raise _deeper(error, f".{key}" if kind is str else f"[{shown(key)}]") from None
        return plain

    def _pairs(self, value: Mapping[Any, Any]) -> Any:
        """A mapping with keys that msgpack cannot represent, as a list of pairs."""
        pairs = []
        for key, item in value.items():
            if self._redactor is not None:
                item = self._redactor.member(key, item, False)
            try:
                pairs.append((self._walk(key), self._walk(item)))
            except UnknownType as error:
                raise _deeper(error, f"[{shown(key)}]") from None
        return _Ext(Tag.MAPPING, _pack(pairs))

    def _items(self, value: Any) -> list[Any]:
        walk, redactor = self._walk, self._redactor
        index = 0
        plain = []
        try:
            for index, item in enumerate(value):  # noqa: B007 - the index is part of the path in the error
                if redactor is not None and type(item) is tuple:
                    item = redactor.pair(item)
                plain.append(walk(item))
        except UnknownType as error:
            raise _deeper(error, f"[{index}]") from None
        return plain

    def _special(self, value: Any, kind: type) -> Any:
        if kind is bytes or kind is bytearray:
            body = bytes(value)
            return self._apart(body, text=False) if len(body) > self._blob_above else body
        if kind is tuple:
            return _Ext(Tag.TUPLE, _pack(self._items(value)))
        if kind is set or kind is frozenset:
            encoded = sorted(_pack(self._walk(item)) for item in value)
            tag = Tag.SET if kind is set else Tag.FROZENSET
            return _Ext(tag, _pack([msgspec.Raw(item) for item in encoded]))
        entry = self._registry.get(kind)
        if entry is not None:
            fields = self._walk(entry.fields(value))
            return _Ext(Tag.REGISTERED, _pack([entry.name, entry.version, fields]))
        return _scalar(value, kind)


def _scalar(value: Any, kind: type) -> Any:
    dismantle = _DISMANTLE.get(kind)
    if dismantle is not None:
        tag, take = dismantle
        return _Ext(tag, _pack(take(value)))
    if isinstance(value, pathlib.PurePath):
        flavour = "path" if isinstance(value, pathlib.Path) else kind.__name__
        return _Ext(Tag.PATH, _pack([flavour, _surrogate_bytes(str(value))]))
    name = f"{kind.__module__}.{kind.__qualname__}"
    raise UnknownType(name, hint=_advice(value, kind))


def _advice(value: Any, kind: type) -> str:
    registrable = isinstance(value, (enum.Enum, msgspec.Struct)) or hasattr(kind, "__dataclass_fields__")
    if registrable or hasattr(kind, "model_fields"):
        return f"register the class: duramen.register({kind.__name__})"
    return "store plain data (dict, list, str, int, float, bool, None, bytes, …) or register a dataclass"


def _deeper(error: UnknownType, step: str) -> UnknownType:
    path = "$" + step + error.path[1:]
    return UnknownType(error.type_name, path=path, hint=error.hint)


def _is_unicode(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _surrogate_bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")


def surrogate_text(body: bytes) -> str:
    """Decode UTF-8 that may contain lone surrogates."""
    return body.decode("utf-8", "surrogatepass")


def _moment_parts(value: dt.datetime | dt.time) -> list[Any]:
    zone = value.tzinfo.key if isinstance(value.tzinfo, ZoneInfo) else None
    return [value.isoformat(), zone, value.fold]


def _datetime(parts: list[Any]) -> dt.datetime:
    text, zone, fold = parts
    value = dt.datetime.fromisoformat(text).replace(fold=fold)
    return value if zone is None else value.replace(tzinfo=ZoneInfo(zone))


def _time(parts: list[Any]) -> dt.time:
    text, zone, fold = parts
    value = dt.time.fromisoformat(text).replace(fold=fold)
    return value if zone is None else value.replace(tzinfo=ZoneInfo(zone))


def _path(parts: list[Any]) -> pathlib.PurePath:
    flavour, body = parts
    return _FLAVOURS[flavour](surrogate_text(_bytes(body)))


def _bytes(value: Any) -> bytes:
    # bytes(n) would allocate n zero bytes: stored data must not choose how much memory is used.
    if not isinstance(value, bytes):
        raise ValueError("a value that should be bytes is not")
    return value


_FLAVOURS: dict[str, type[pathlib.PurePath]] = {
    "path": pathlib.Path,
    "PurePosixPath": pathlib.PurePosixPath,
    "PureWindowsPath": pathlib.PureWindowsPath,
}
_DISMANTLE: dict[type, tuple[int, Callable[[Any], Any]]] = {
    dt.datetime: (Tag.DATETIME, _moment_parts),
    dt.date: (Tag.DATE, dt.date.isoformat),
    dt.time: (Tag.TIME, _moment_parts),
    dt.timedelta: (Tag.TIMEDELTA, lambda span: [span.days, span.seconds, span.microseconds]),
    Decimal: (Tag.DECIMAL, str),
    uuid.UUID: (Tag.UUID, lambda value: value.bytes),
    complex: (Tag.COMPLEX, lambda value: [value.real, value.imag]),
}
_REVIVE: dict[int, Callable[[Any], Any]] = {
    Tag.TUPLE: tuple,
    Tag.SET: set,
    Tag.FROZENSET: frozenset,
    Tag.DATETIME: _datetime,
    Tag.DATE: dt.date.fromisoformat,
    Tag.TIME: _time,
    Tag.TIMEDELTA: lambda parts: dt.timedelta(*parts),
    Tag.DECIMAL: Decimal,
    Tag.UUID: lambda data: uuid.UUID(bytes=_bytes(data)),
    Tag.PATH: _path,
    Tag.INTEGER: lambda text: int(text, 16),
    Tag.BLOB: lambda parts: BlobRef(_bytes(parts[0]), *parts[1:]),
    Tag.TEXT: lambda data: surrogate_text(_bytes(data)),
    Tag.COMPLEX: lambda parts: complex(*parts),
    Tag.MAPPING: dict,
}
