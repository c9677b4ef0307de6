"""Writes an ONNX model without the `onnx` package: the few protobuf messages that a graph of our own needs.

The field numbers are those of onnx.proto3, which never change meaning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .safetensors import Place

_FLOAT, _INT, _STRING = 1, 2, 3
_TENSOR_TYPES: Mapping[str, int] = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "float16": 10}
_IR_VERSION = 8
_ELSEWHERE = 1

Attribute = int | float | str


class GraphWriter:
    """Collects nodes and constants; `save` gives the file's bytes. The same calls give the same bytes."""

    def __init__(self, opset: int = 17) -> None:
        self._opset = opset
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []
        self._inputs: list[bytes] = []
        self._outputs: list[bytes] = []

    def input(self, name: str, dtype: str, shape: Sequence[int | str]) -> str:
        """Declare what the caller feeds. A str in the shape is a dimension that varies."""
        self._inputs.append(_value_info(name, dtype, shape))
        return name

    def output(self, name: str, dtype: str, shape: Sequence[int | str]) -> None:
        """Declare what the caller fetches."""
        self._outputs.append(_value_info(name, dtype, shape))

    def constant(self, name: str, array: npt.NDArray[Any]) -> str:
        """Put an array into the file."""
        body = b"".join(_varint_field(1, size) for size in array.shape)
        body += _varint_field(2, _TENSOR_TYPES[array.dtype.name]) + _text_field(8, name)
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        self._constants.append(body + _bytes_field(9, little.tobytes()))
        return name

    def external(self, name: str, file: str, place: Place) -> str:
        """Name an array that stays in a file beside this one."""
        body = b"".join(_varint_field(1, size) for size in place.shape)
        body += _varint_field(2, _TENSOR_TYPES[place.dtype.name]) + _text_field(8, name)
        where = {"location": file, "offset": str(place.offset), "length": str(place.length)}
        body += b"".join(_bytes_field(13, _text_field(1, key) + _text_field(2, value)) for key, value in where.items())
        self._constants.append(body + _varint_field(14, _ELSEWHERE))
        return name

    def node(self, kind: str, inputs: Sequence[str], output: str, domain: str = "", **attributes: Attribute) -> str:
        """Compute `output` from `inputs`; an empty name leaves an optional input out."""
        body = b"".join(_text_field(1, name) for name in inputs)
        body += _text_field(2, output) + _text_field(3, output) + _text_field(4, kind)
        body += b"".join(_bytes_field(5, _attribute(name, value)) for name, value in attributes.items())
        self._nodes.append(body + (_text_field(7, domain) if domain else b""))
        return output

    def save(self) -> bytes:
        """The model as a file's bytes."""
        graph = b"".join(_bytes_field(1, node) for node in self._nodes) + _text_field(2, "duramen")
        graph += b"".join(_bytes_field(5, constant) for constant in self._constants)
        graph += b"".join(_bytes_field(11, value) for value in self._inputs)
        graph += b"".join(_bytes_field(12, value) for value in self._outputs)
        model = _varint_field(1, _IR_VERSION) + _text_field(2, "duramen") + _bytes_field(7, graph)
        for domain, version in (("", self._opset), ("com.microsoft", 1)):
            model += _bytes_field(8, _text_field(1, domain) + _varint_field(2, version))
        return model


def _attribute(name: str, value: Attribute) -> bytes:
    named = _text_field(1, name)
    if isinstance(value, int):
        return named + _varint_field(3, value) + _varint_field(20, _INT)
    if isinstance(value, float):
        return named + _tag(2, 5) + np.float32(value).tobytes() + _varint_field(20, _FLOAT)
    return named + _text_field(4, value) + _varint_field(20, _STRING)


def _value_info(name: str, dtype: str, shape: Sequence[int | str]) -> bytes:
    sizes = [_text_field(2, size) if isinstance(size, str) else _varint_field(1, size) for size in shape]
    dimensions = b"".join(_bytes_field(1, size) for size in sizes)
    tensor = _varint_field(1, _TENSOR_TYPES[dtype]) + _bytes_field(2, dimensions)
    return _text_field(1, name) + _bytes_field(2, _bytes_field(1, tensor))


def _text_field(number: int, text: str) -> bytes:
    return _bytes_field(number, text.encode())


def _bytes_field(number: int, content: bytes) -> bytes:
    return _tag(number, 2) + _varint(len(content)) + content


def _varint_field(number: int, value: int) -> bytes:
    return _tag(number, 0) + _varint(value)


def _tag(number: int, wire: int) -> bytes:
    return _varint(number << 3 | wire)


def _varint(value: int) -> bytes:
    value &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)
