"""Writes an ONNX file without the `onnx` package. It supports only the protobuf messages that our graphs need.

The field numbers are from onnx.proto3. Their meaning never changes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

_FLOAT, _INT = 1, 2
_TENSOR_TYPES: Mapping[str, int] = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7}
_IR_VERSION = 8
_OPSETS: Mapping[str, int] = {"": 20, "com.microsoft": 1}
_EXTERNAL = 1


class GraphWriter:
    """Collects the nodes and constants of a graph. The same calls give the same bytes.

    Methods return the name of a value. Use it as an input of other nodes.
    """

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._constants: list[bytes] = []
        self._inputs: list[bytes] = []
        self._outputs: list[bytes] = []

    def input(self, name: str, dtype: str, shape: Sequence[int | str]) -> str:
        """Declare a value that the caller provides. A string in the shape is a variable dimension."""
        self._inputs.append(_value_info(name, dtype, shape))
        return name

    def output(self, name: str, dtype: str, shape: Sequence[int | str]) -> None:
        """Declare a value that the caller receives."""
        self._outputs.append(_value_info(name, dtype, shape))

    def constant(self, array: npt.NDArray[Any]) -> str:
        """Add an array that is stored in the file."""
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        return self._tensor(array, _bytes_field(9, little.tobytes()))

    def external(self, array: npt.NDArray[Any], file: str, offset: int) -> str:
        """Add an array that is stored in another file in the same folder."""
        location = {"location": file, "offset": str(offset), "length": str(array.nbytes)}
        entries = (_text_field(1, key) + _text_field(2, value) for key, value in location.items())
        return self._tensor(
            array, b"".join(_bytes_field(13, entry) for entry in entries) + _varint_field(14, _EXTERNAL)
        )

    def node(self, kind: str, inputs: Sequence[str], domain: str = "", **attributes: int | float) -> str:
        """Add a node that computes a value from `inputs`. An empty name omits an optional input."""
        name = f"{kind}{len(self._nodes)}"
        body = b"".join(_text_field(1, value) for value in inputs)
        body += _text_field(2, name) + _text_field(3, name) + _text_field(4, kind)
        body += b"".join(_bytes_field(5, _attribute(key, value)) for key, value in attributes.items())
        self._nodes.append(body + _text_field(7, domain))
        return name

    def save(self) -> bytes:
        """The bytes of the file."""
        graph = b"".join(_bytes_field(1, node) for node in self._nodes) + _text_field(2, "duramen")
        graph += b"".join(_bytes_field(5, constant) for constant in self._constants)
        graph += b"".join(_bytes_field(11, value) for value in self._inputs)
        graph += b"".join(_bytes_field(12, value) for value in self._outputs)
        model = _varint_field(1, _IR_VERSION) + _text_field(2, "duramen") + _bytes_field(7, graph)
        for domain, version in _OPSETS.items():
            model += _bytes_field(8, _text_field(1, domain) + _varint_field(2, version))
        return model

    def _tensor(self, array: npt.NDArray[Any], content: bytes) -> str:
        name = f"constant{len(self._constants)}"
        body = b"".join(_varint_field(1, size) for size in array.shape)
        body += _varint_field(2, _TENSOR_TYPES[array.dtype.name]) + _text_field(8, name)
        self._constants.append(body + content)
        return name


def _attribute(name: str, value: int | float) -> bytes:
    named = _text_field(1, name)
    if isinstance(value, int):
        return named + _varint_field(3, value) + _varint_field(20, _INT)
    return named + _tag(2, 5) + np.float32(value).tobytes() + _varint_field(20, _FLOAT)


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
