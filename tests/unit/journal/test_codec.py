"""The codec: values round-trip unchanged in every process. Unknown types are refused on encode and decode."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import datetime as dt
import enum
import hashlib
import math
import os
import pathlib
import subprocess
import sys
import uuid
from decimal import Decimal
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import duramen
from duramen.errors import DuramenError, InvalidInput, JournalDamaged, UnknownType
from duramen.journal.codec import Codec, Tag
from duramen.journal.registry import Registry

FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
SOURCE = pathlib.Path(duramen.__file__).parent
pack, Ext = msgspec.msgpack.encode, msgspec.msgpack.Ext


@dataclasses.dataclass
class Point:
    x: Any
    y: Any = 0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    price: int
    tax: int = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tax", self.price // 5)


class Leg(msgspec.Struct, frozen=True, rename="camel", tag="leg", array_like=True):
    from_port: str
    stops: tuple[str, ...] = ()


class Colour(enum.Enum):
    RED = "r"
    GREEN = "g"


class Rank(enum.IntEnum):
    LOW = 1


class Right(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


class Traveller(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")

    name: str
    seat: str = "window"
    home: str | None = pydantic.Field(default=None, alias="homeAirport")


def registry_of(*classes: type) -> Registry:
    registry = Registry()
    for cls in classes:
        registry.add(cls, None, 1, {})
    return registry


KNOWN = Codec(registry=registry_of(Point, Receipt, Leg, Colour, Rank, Right, Traveller))


def address(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=32).digest()


def encode(value: Any, codec: Codec = KNOWN) -> bytes:
    return codec.encode(value, address).payload


def round_trip(value: Any, codec: Codec = KNOWN) -> Any:
    payload, parts = codec.encode(value, address)

    def load(ref: Any) -> Any:
        body = parts[ref.address]
        return body.decode("utf-8", "surrogatepass") if ref.text else body

    return codec.decode(payload, load)


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal, of the same type, and equal in the details that `==` ignores."""
    if isinstance(one, bytearray):
        one = bytes(one)
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        pairs = zip(one.items(), other.items(), strict=True)
        return len(one) == len(other) and all(same(a, b) and same(c, d) for (a, c), (b, d) in pairs)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, Point):
        return same(vars(one), vars(other))
    if isinstance(one, dt.datetime):
        return (one.replace(tzinfo=None), one.fold, one.utcoffset()) == (
            other.replace(tzinfo=None),
            other.fold,
            other.utcoffset(),
        ) and getattr(one.tzinfo, "key", None) == getattr(other.tzinfo, "key", None)
    if isinstance(one, (float, complex, Decimal)):
        return repr(one) == repr(other)
    return bool(one == other)


anything_text = st.text(st.characters(), max_size=20)
path_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
fixed_zones = st.integers(-86_399, 86_399).map(lambda seconds: dt.timezone(dt.timedelta(seconds=seconds)))
moments = st.datetimes(timezones=st.none() | st.timezones() | fixed_zones).flatmap(
    lambda moment: st.sampled_from([moment, moment.replace(fold=1)])
)
hashable_scalars = st.one_of(
    *(st.none(), st.booleans(), st.integers(), st.integers(-(2**200), 2**200), st.floats(allow_nan=False)),
    *(anything_text, st.binary(max_size=20), st.uuids(), st.dates(), st.timedeltas(), moments),
    *(st.times(timezones=st.none() | fixed_zones), st.decimals(allow_nan=False), path_text.map(pathlib.Path)),
    path_text.map(pathlib.PurePosixPath),
)
hashables = st.recursive(
    hashable_scalars,
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3) | st.builds(Receipt, price=st.integers()),
    max_leaves=4,
)
scalars = st.one_of(
    hashable_scalars,
    st.binary().map(bytearray),
    st.floats(),
    st.complex_numbers(),
    st.decimals(),
    st.sampled_from([*Colour, *Rank]),
)
values = st.recursive(
    scalars | st.sets(hashables, max_size=4),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.tuples(inner, inner),
        st.dictionaries(hashables, inner, max_size=4),
        st.builds(Point, inner, inner),
        st.builds(Leg, path_text, st.tuples(path_text)),
    ),
    max_leaves=12,
)


@FUZZ
@given(values)
def test_every_value_round_trips(value: Any) -> None:
    assert same(value, round_trip(value))


@pytest.mark.parametrize(
    "value",
    [
        {"": 1, "a.b": 2, 3: 4, None: 5, True: 6, 2.5: 7, b"raw": 8, (1, ("x",)): 9, frozenset({1}): 10, 2**70: 11},
        [((), (1, [2, (3,)])), {1, (2, 3), frozenset({frozenset()})}, frozenset()],
        dt.datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        dt.datetime(2024, 3, 31, 2, 30, tzinfo=ZoneInfo("Europe/Berlin")),
        dt.datetime(1, 1, 1, tzinfo=dt.timezone(dt.timedelta(hours=-3, seconds=7, microseconds=1), "odd")),
        dt.datetime(2024, 10, 27, 2, 30, fold=1),
        *(dt.date.max, dt.time(23, 59, 59, 999999), dt.time(1, tzinfo=dt.UTC), dt.timedelta.min, dt.timedelta.max),
        *(Decimal("1E-400"), Decimal("NaN"), Decimal("-Infinity"), Decimal("0.10")),
        *(uuid.UUID(int=5), pathlib.Path("folder/ä b"), b"", b"\x00\xff", bytearray(b"xy")),
        *(0, -(2**63), 2**63, 2**64 - 1, 2**64, -(2**63) - 1, 10**300),
        *(math.nan, math.inf, -math.inf, -0.0, complex(math.nan, -0.0)),
        *("\ud800", "a\udfffb", {"\ud800": "\udc00", "plain": ["\ud801"]}),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_unusual_values_round_trip(value: Any) -> None:
    assert same(value, round_trip(value))


def test_large_values_are_stored_as_blobs_once() -> None:
    small = Codec(registry=Registry(), blob_above=64)
    value = ["ä" * 100, b"x" * 100, {"again": "ä" * 100, "lone": "\ud800" * 100}]
    encoded = small.encode(value, address)
    assert len(encoded.parts) == 3
    assert same(value, round_trip(value, small))


@pytest.mark.parametrize("moment", [dt.time(12, tzinfo=ZoneInfo("Europe/Berlin")), dt.time(2, 30, fold=1)], ids=str)
def test_a_time_of_day_keeps_its_zone_and_fold(moment: dt.time) -> None:
    decoded = round_trip(moment)
    assert (decoded, decoded.tzinfo, decoded.fold) == (moment, moment.tzinfo, moment.fold)


def test_a_windows_path_round_trips() -> None:
    assert same(pathlib.PureWindowsPath(r"C:\temp\x"), round_trip(pathlib.PureWindowsPath(r"C:\temp\x")))


def test_a_path_that_is_not_utf8_round_trips() -> None:
    odd = pathlib.Path("caf\udce9")  # how Python represents a POSIX name that is not UTF-8
    assert same(odd, round_trip(odd))


def test_registered_classes_round_trip() -> None:
    receipt = Receipt(price=50)
    object.__setattr__(receipt, "tax", 7)
    for value in [Point({"deep": Point(1)}), receipt, Leg("HAM", ("CPH",)), Colour.GREEN, Rank.LOW, Right.WRITE]:
        assert same(value, round_trip(value))
    assert round_trip(receipt).tax == 7, "a field outside __init__ is stored, not recomputed"


@pytest.mark.parametrize("rights", [Right.READ | Right.WRITE, Right(0)], ids=["both", "none"])
def test_combined_flags_round_trip(rights: Right) -> None:
    assert round_trip(rights) is rights


def test_pydantic_models_keep_aliases_extras_and_the_set_fields() -> None:
    model = Traveller(name="Ada", homeAirport="HAM", meal="vegan")
    decoded = round_trip(model)
    assert decoded == model
    assert (decoded.home, decoded.seat, decoded.model_extra) == ("HAM", "window", {"meal": "vegan"})
    assert decoded.model_fields_set == {"name", "home", "meal"}
    assert decoded.model_dump(exclude_unset=True, by_alias=True) == {
        "name": "Ada",
        "homeAirport": "HAM",
        "meal": "vegan",
    }


# -- refused on encode


class Unregistered:
    pass


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"messages": [1, 2, 3, {"when": Unregistered()}]}, "$.messages[3].when"),
        ({"a": ({"b": Unregistered()},)}, "$.a[0].b"),
        ({7: {None: Unregistered()}}, "$[7][None]"),
        ({(1, 2): Unregistered()}, "$[(1, 2)]"),
        ({"p": Point(x=[Unregistered()])}, "$.p.x[0]"),
        (Unregistered(), "$"),
    ],
)
def test_an_unknown_type_is_refused_with_its_path(value: Any, path: str) -> None:
    with pytest.raises(UnknownType) as refused:
        encode(value)
    assert refused.value.path == path
    assert refused.value.type_name.endswith("test_codec.Unregistered")
    assert path in str(refused.value)
    assert refused.value.hint


def test_unregistered_subclasses_are_refused() -> None:
    class Point3(Point):
        pass

    class Text(str):
        __slots__ = ()

    for value in (Point3(1), Text("x"), enum.IntEnum("Level", ["HIGH"]).HIGH, type("Bag", (dict,), {})()):
        with pytest.raises(UnknownType):
            encode(value)


def test_the_error_for_an_unknown_type_shows_how_to_register_it() -> None:
    with pytest.raises(UnknownType, match=r"duramen\.register\(Point\)"):
        encode(Point(1), Codec(registry=Registry()))
    with pytest.raises(InvalidInput, match="cannot be registered"):
        duramen.register(Unregistered)


def test_two_classes_cannot_share_a_name() -> None:
    registry = Registry()
    one, two = dataclasses.make_dataclass("Order", ["id"]), dataclasses.make_dataclass("Order", ["id", "sum"])
    one.__module__, two.__module__ = "shop.orders", "bar.orders"
    registry.add(one, None, 1, {})
    with pytest.raises(InvalidInput, match=r"shop\.orders"):
        registry.add(two, None, 1, {})
    registry.add(two, "bar.Order", 1, {})


def test_cycles_and_extreme_depth_are_refused() -> None:
    ring: list[Any] = []
    ring.append({"ring": ring})
    point = Point(1)
    point.x = point
    deep: Any = None
    for _ in range(100_000):
        deep = [deep]
    for value in (ring, point, deep, {"x": (ring,)}):
        with pytest.raises(InvalidInput, match="too deep"):
            encode(value)
    del ring[:]
    while deep:
        deep = deep.pop()  # CPython would free it recursively


def call_with_deep_stack(frames: int, work: Any) -> Any:
    return work() if frames == 0 else call_with_deep_stack(frames - 1, work)


@pytest.mark.promise("J8")
def test_a_deep_payload_is_not_damage_for_a_reader_with_little_stack() -> None:
    deep: Any = ()
    for _ in range(250):
        deep = (deep,)
    session = duramen.open("memory:").session("s")
    try:
        session.append("note", deep)
    except InvalidInput:
        return  # refusing it is correct too
    try:
        call_with_deep_stack(sys.getrecursionlimit() - 400, lambda: list(session.events()))
    except JournalDamaged:
        pytest.fail("the store is not damaged: the stack of the reader is too small")
    except (DuramenError, RecursionError):
        pass


@dataclasses.dataclass
class Halved:
    whole: int
    part: dataclasses.InitVar[int]

    def __post_init__(self, part: int) -> None:
        self.whole -= part


@pytest.mark.promise("J5")
def test_values_that_could_not_be_loaded_are_not_stored() -> None:
    duramen.register(Halved, name="test_codec.Halved")
    session = duramen.open("memory:").session("s")
    with pytest.raises(UnknownType):
        session.append("note", Halved(4, 1))
    assert session.head().position == 0, "nothing was stored"
    session.append("note", "accepted")
    assert [event.data for event in session.events()] == ["accepted"]


# -- refused on decode


@pytest.mark.promise("G7")
def test_an_unknown_type_is_refused_on_load() -> None:
    payload = encode([Point(1)])
    with pytest.raises(UnknownType) as refused:
        Codec(registry=Registry()).decode(payload, lambda ref: None)
    assert refused.value.type_name == "Point"
    assert "registers 'Point'" in refused.value.hint
    with pytest.raises(UnknownType, match="extension 99"):
        KNOWN.decode(pack(Ext(99, b"")), lambda ref: None)


@pytest.mark.promise("G7")
def test_mismatched_fields_are_refused_on_load() -> None:
    for fields in ({"z": 1}, {"x": 1, "y": 2, "__class__": 3}, [], "x", None):
        with pytest.raises(UnknownType):
            KNOWN.decode(pack(Ext(Tag.REGISTERED, pack(["Point", 1, fields]))), lambda ref: None)
    for name, fields in (("Colour", {"name": "__class__"}), ("Colour", {"name": []}), ("Traveller", {"set": 1})):
        with pytest.raises(UnknownType):
            KNOWN.decode(pack(Ext(Tag.REGISTERED, pack([name, 1, fields]))), lambda ref: None)


@pytest.mark.promise("G7")
def test_the_library_never_executes_stored_data() -> None:
    modules = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle", "joblib"}
    calls = {"eval", "exec", "compile", "__import__"}
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 20
    suspicious = [file for file in files if any(name in file.read_text("utf-8") for name in modules | calls)]
    for file in suspicious:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                assert not modules & {alias.name.split(".")[0] for alias in node.names}, file
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in modules, file
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in calls, f"{file}:{node.lineno}"


def decode_any(payload: bytes) -> None:
    with contextlib.suppress(ValueError, UnknownType):
        KNOWN.decode(payload, lambda ref: None)


@FUZZ
@given(values.map(encode), st.data())
def test_damaged_payloads_raise_only_named_errors(payload: bytes, data: st.DataObject) -> None:
    broken = bytearray(payload)
    for _ in range(data.draw(st.integers(1, 3))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    decode_any(bytes(broken))
    decode_any(payload[: data.draw(st.integers(0, len(payload)))])


inner_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**16) | st.floats() | st.text(max_size=5) | st.binary(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=5,
)


@FUZZ
@given(st.integers(-128, 127), inner_values.map(pack) | st.binary(max_size=20))
@example(Tag.UUID, pack(2**50))
@example(Tag.TEXT, pack(2**50))
@example(Tag.DATETIME, pack(["2024-01-01T00:00:00", "America", 0]))
@example(Tag.DATETIME, pack(["2024-01-01T00:00:00", "../../etc/passwd", 0]))
@example(Tag.REGISTERED, pack(["Point", "1", {}]))
@example(Tag.BLOB, pack([[], {}, None]))
@example(Tag.BLOB, pack([]))
def test_any_extension_raises_only_named_errors(code: int, inner: bytes) -> None:
    decode_any(pack(Ext(code, inner)))


@FUZZ
@given(st.binary(max_size=60))
def test_any_bytes_raise_only_named_errors(payload: bytes) -> None:
    decode_any(payload)
    decode_any(b"\x91" * 100_000 + payload)


# -- versions


@pytest.mark.promise("J16")
def test_old_events_are_upcast_and_newer_ones_refused(tmp_path: pathlib.Path) -> None:
    def program(fields: list[str], **options: Any) -> type:
        made = dataclasses.make_dataclass("Booking", fields)
        duramen.register(made, name="test_codec.Booking", **options)
        return made

    with duramen.open(tmp_path / "agent.db") as dm:
        dm.session("s").append("booked", program(["seat"])("12A"))
    upcasts = {1: lambda f: {"row": f["seat"][:-1], "letter": f["seat"][-1]}, 2: lambda f: {**f, "row": int(f["row"])}}
    newest = program(["row", "letter"], version=3, upcasts=upcasts)
    with duramen.open(tmp_path / "agent.db") as dm:
        assert [event.data for event in dm.session("s").events()] == [newest(12, "A")]
        dm.session("s").append("booked", newest(7, "C"))
        program(["row", "letter"], version=2, upcasts=upcasts)
        with pytest.raises(UnknownType, match="version 3") as refused:
            list(dm.session("s").events(start=2))
        assert "deploy the newer code" in refused.value.hint
        program(["row", "letter"], version=3)
        with pytest.raises(UnknownType, match="version 1") as refused:
            list(dm.session("s").events())
        assert "upcasts" in refused.value.hint


# -- determinism

PROGRAM = """
import dataclasses, sys, duramen
from duramen.testing.clock import FakeClock, FakeIds
@duramen.register
@dataclasses.dataclass(frozen=True)
class Tagged:
    tags: frozenset
value = {"set": {f"item {n}" for n in range(50)}, "mixed": {1, "1", None, (1,), b"1"}, (1, 2): {"z": 1, "a": 2}}
value["tagged"] = Tagged(frozenset(Tagged(frozenset({n, str(n)})) for n in range(9)))
with duramen.open(sys.argv[1], clock=FakeClock(), ids=FakeIds(7), key=bytes(32)) as dm:
    print(dm.session("s").append("state", value, subject="ada").hash.hex())
    print(dm.session("s").append("state", value).hash.hex())
"""


@pytest.mark.promise("J11")
def test_the_same_state_gives_the_same_bytes_and_hash_in_two_processes(tmp_path: pathlib.Path) -> None:
    def run(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        command = [sys.executable, "-c", PROGRAM, str(tmp_path / f"{seed}.db")]
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout

    assert len(run("1").split()) == 2
    assert run("11") == run("22") == run("33")
