"""The registry of classes that may be stored: their names, versions and conversions from old versions.

Classes are never looked up by import path. A stored name that is not registered is refused, so stored data cannot
choose which code runs.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from ..errors import InvalidInput, UnknownType, clipped, shown
from .events import check_name, check_whole

C = TypeVar("C", bound=type)
Fields = dict[str, Any]
Upcast = Callable[[Fields], Fields]


@dataclass(frozen=True, slots=True)
class Registered:
    """A class that may be stored. `fields` turns an instance into its fields, `build` does the opposite."""

    cls: type
    name: str
    version: int
    upcasts: Mapping[int, Upcast]
    fields: Callable[[Any], Fields]
    build: Callable[[Fields], Any]

    def load(self, version: int, fields: Fields) -> Any:
        """An instance from fields that `version` stored. Raises `UnknownType` if they do not fit the class, or if the
        version is newer or has no upcast."""
        while version < self.version:
            upcast = self.upcasts.get(version)
            if upcast is None:
                raise UnknownType(
                    f"{self.name} version {version}",
                    hint=f"register {self.name} with upcasts={{{version}: …}} to convert the old fields",
                )
            fields = upcast(fields)
            version += 1
        if version > self.version:
            raise UnknownType(
                f"{self.name} version {version}",
                hint=f"deploy the newer code: this program registers version {self.version}",
            )
        try:
            return self.build(fields)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise UnknownType(
                f"{self.name} version {self.version}",
                hint="increase the version and add an upcast: "
                f"the stored fields do not fit the class ({str(error)[:200]})",
            ) from error


class Registry:
    """Classes by type and by stored name."""

    def __init__(self) -> None:
        self.by_type: dict[type, Registered] = {}
        self.by_name: dict[str, Registered] = {}

    def add(self, cls: type, name: str | None, version: int, upcasts: Mapping[int, Upcast]) -> None:
        """Register a class. Registering it again, for example after a reload of its module, replaces it. Raises
        `InvalidInput` if another class has the name, or if a class of this kind cannot be stored."""
        if not isinstance(cls, type):
            raise InvalidInput(f"{shown(cls)} is not a class", hint="decorate a class with register")
        name = cls.__name__ if name is None else check_name("name", name)
        version = check_whole("version", version, 1)
        if not isinstance(upcasts, Mapping) or not all(callable(upcast) for upcast in upcasts.values()):
            raise InvalidInput(f"`upcasts` cannot be {shown(upcasts)}", hint="give a dict of functions by version")
        known = self.by_name.get(name)
        if known is not None and _full_name(known.cls) != _full_name(cls):
            raise InvalidInput(
                f"the name {shown(name)} is already registered for {_full_name(known.cls)}",
                hint="register one of the two classes with another name: register(name=…)",
            )
        fields, build = _shape(cls)
        entry = Registered(cls, name, version, dict(upcasts), fields, build)
        self.by_type[cls] = entry
        self.by_name[name] = entry


DEFAULT = Registry()
"""The registry that `duramen.register` fills."""


def register(
    cls: C | None = None,
    *,
    name: str | None = None,
    version: int = 1,
    upcasts: Mapping[int, Upcast] | None = None,
) -> Any:
    """Let a dataclass, msgspec Struct, pydantic model or enum be stored in events.

    Use it as a decorator, with or without arguments. `upcasts[n]` receives the fields that version n stored and returns
    those of version n + 1.
    """

    def add(target: C) -> C:
        DEFAULT.add(target, name, version, {} if upcasts is None else upcasts)
        return target

    return add if cls is None else add(cls)


def _full_name(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _shape(cls: type) -> tuple[Callable[[Any], Fields], Callable[[Fields], Any]]:
    if issubclass(cls, enum.Flag):
        return (lambda flags: {"value": flags.value}), (lambda fields: cls(fields["value"]))
    if issubclass(cls, enum.Enum):
        return (lambda member: {"name": member.name}), (lambda fields: cls[fields["name"]])
    if issubclass(cls, msgspec.Struct):
        return msgspec.structs.asdict, lambda fields: cls(**fields)
    if dataclasses.is_dataclass(cls):
        return _dataclass_shape(cls)
    if hasattr(cls, "model_fields") and hasattr(cls, "model_construct"):
        return _pydantic_fields, lambda fields: cls.model_construct(fields["set"], **fields["values"])
    raise InvalidInput(
        f"{clipped(cls.__qualname__)} cannot be registered",
        hint="register dataclasses, msgspec Structs, pydantic models or enums, or store plain data",
    )


def _dataclass_shape(cls: type) -> tuple[Callable[[Any], Fields], Callable[[Fields], Any]]:
    names = [field.name for field in dataclasses.fields(cls)]
    late = {field.name for field in dataclasses.fields(cls) if not field.init}

    def build(fields: Fields) -> Any:
        made = cls(**{name: value for name, value in fields.items() if name not in late})
        for name in late & fields.keys():
            object.__setattr__(made, name, fields[name])
        return made

    return (lambda value: {name: getattr(value, name) for name in names}), build


def _pydantic_fields(model: Any) -> Fields:
    values = {name: getattr(model, name) for name in type(model).model_fields}
    values.update(model.model_extra or {})
    return {"set": set(model.model_fields_set), "values": values}
