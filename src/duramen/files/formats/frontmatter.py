"""The YAML fields at the top of a file, between two lines of ---.

The reader is strict: no anchors, no tags, no duplicate keys, one document. A scalar keeps its source text, so that
``no``, ``1e3`` and ``2024-01-01`` stay as the author wrote them. `Scalar.value` is the value that YAML gives it.
Values are written so that YAML 1.1 and 1.2 parsers read the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import FileMalformed, InvalidInput, shown

FENCE = "---"
MAX_LETTERS = 256 * 1024
_MAX_DEPTH = 20
_PLAIN = re.compile(r"[^\W\d](?:[\w./@+-]|[ ](?=[\w./@(+-])|[,#()](?=[\w.)])|:(?=[\w/]))*\)?")
_PLAIN_INSIDE = re.compile(r"[^\W\d](?:[\w./@+-]|[ ](?=[\w./@+-]))*")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"}
_INT = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,300})", re.ASCII)
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][+-]?[0-9]{1,4})?", re.ASCII)
_WRITTEN: dict[str, Any] = {"": None, "~": None, "null": None, "true": True, "false": False}
_WRITTEN |= {".nan": math.nan, ".inf": math.inf, "+.inf": math.inf, "-.inf": -math.inf}


@dataclass(frozen=True, slots=True)
class Scalar:
    """One value: its source text, whether it is unquoted, and its line."""

    text: str
    plain: bool
    line: int

    @property
    def value(self) -> Any:
        """The value in YAML: text, a number, a boolean or None. Dates stay text."""
        if not self.plain:
            return self.text
        low = self.text.lower()
        if low in _WRITTEN:
            return _WRITTEN[low]
        if _INT.fullmatch(self.text):
            return int(self.text)
        return float(self.text) if _FLOAT.fullmatch(self.text) else self.text


@dataclass(frozen=True, slots=True)
class Many:
    """A list or a mapping."""

    items: tuple[Node, ...] | Mapping[str, Node]
    line: int

    @property
    def value(self) -> Any:
        """The list or mapping as plain data."""
        if isinstance(self.items, tuple):
            return [item.value for item in self.items]
        return {key: item.value for key, item in self.items.items()}


Node = Scalar | Many


def split(text: str, path: str) -> tuple[dict[str, Node], str, int]:
    """The fields of a file, the text after them, and the line number at which that text begins. Without front matter
    the whole file is text. Raises `FileMalformed`."""
    lines = text.split("\n")
    if lines[0].rstrip() != FENCE:
        return {}, text, 1
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == FENCE), None)
    if end is None:
        raise FileMalformed(path, 1, "the front matter is not closed", hint="end it with a line of ---")
    block = "\n".join(lines[1:end])
    if len(block) > MAX_LETTERS:
        raise FileMalformed(path, 1, f"the front matter has more than {MAX_LETTERS:,} characters", hint="shorten it")
    return _read(block, path), "\n".join(lines[end + 1 :]), end + 2


def _read(block: str, path: str) -> dict[str, Node]:
    import yaml  # imported here, because the import is slow and most programs do not need it

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        node = _Reading(yaml, yaml.parse(block, Loader=loader), path).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "not YAML"
        raise FileMalformed(path, (mark.line if mark else 0) + 2, problem, hint=_QUOTE) from error
    except (yaml.YAMLError, UnicodeEncodeError) as error:  # a character that YAML does not allow
        line = block.count("\n", 0, getattr(error, "position", 0) or 0) + 2
        raise FileMalformed(path, line, "YAML does not allow this character", hint=_QUOTE) from error
    if node is None:
        return {}
    if isinstance(node, Many) and isinstance(node.items, Mapping):
        return dict(node.items)
    raise FileMalformed(path, node.line, "the front matter has no fields", hint="write `name: value` in each line")


_QUOTE = "write `name: value` in each line, with quotes around a value that has a colon, a # or a bracket"


class _Reading:
    """Builds the tree of a document from the events of the parser."""

    def __init__(self, yaml: Any, events: Iterator[Any], path: str) -> None:
        self._yaml, self._events, self._path = yaml, events, path

    def document(self) -> Node | None:
        node, documents = None, 0
        for event in self._events:
            if isinstance(event, self._yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._refused(event, "a second YAML document is not allowed")
                node = self._node(next(self._events), 0)
        return node

    def _node(self, event: Any, depth: int) -> Node:
        if isinstance(event, self._yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            raise self._refused(event, "YAML anchors and aliases are not allowed")
        if event.tag is not None:
            raise self._refused(event, "YAML tags are not allowed")
        if depth > _MAX_DEPTH:
            raise self._refused(event, f"nested more than {_MAX_DEPTH} levels deep")
        line = event.start_mark.line + 2
        if isinstance(event, self._yaml.ScalarEvent):
            return Scalar(event.value, bool(event.implicit[0]), line)
        if isinstance(event, self._yaml.SequenceStartEvent):
            return Many(tuple(self._node(item, depth + 1) for item in self._until("SequenceEndEvent")), line)
        return Many(self._mapping(depth), line)

    def _mapping(self, depth: int) -> dict[str, Node]:
        items: dict[str, Node] = {}
        for event in self._until("MappingEndEvent"):
            key = self._node(event, depth + 1)
            if not isinstance(key, Scalar):
                raise self._refused(event, "the name of a field must be text")
            if key.text in items:
                raise self._refused(event, f"the field {shown(key.text)} occurs twice")
            items[key.text] = self._node(next(self._events), depth + 1)
        return items

    def _until(self, end: str) -> Iterator[Any]:
        kind = getattr(self._yaml, end)
        for event in self._events:
            if isinstance(event, kind):
                return
            yield event

    def _refused(self, event: Any, reason: str) -> FileMalformed:
        return FileMalformed(self._path, event.start_mark.line + 2, reason, hint=_QUOTE)


def joined(fields: Mapping[str, Any], text: str, *, fenced: bool = False) -> str:
    """The text with the fields as front matter before it. Without fields there is no front matter, unless `fenced`. A
    `Verbatim` value is written unchanged."""
    if not fields and not fenced:
        return text
    lines = [f"{written(name, 1)}: {written(value)}" for name, value in fields.items()]
    return "\n".join([FENCE, *lines, FENCE, text])


class Verbatim(str):
    """Text that is already YAML, such as a time."""

    __slots__ = ()


def written(value: Any, depth: int = 0) -> str:
    """A value as one line of YAML. Raises `InvalidInput` for other types than plain data."""
    match value:
        case Verbatim():
            return str(value)
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case int():
            return str(value)
        case float():
            return _float(value)
        case str():
            return value if _is_plain(value, depth) else _quoted(value)
        case Mapping() if depth < _MAX_DEPTH:
            below = depth + 1
            return "{" + ", ".join(f"{written(str(k), below)}: {written(v, below)}" for k, v in value.items()) + "}"
        case Sequence() if depth < _MAX_DEPTH and not isinstance(value, bytes):
            return "[" + ", ".join(written(item, depth + 1) for item in value) + "]"
    raise InvalidInput(
        f"a field of a file cannot be a {type(value).__name__}", hint="use texts, numbers, lists and mappings"
    )


def _float(value: float) -> str:
    if math.isfinite(value):
        digits, exponent, power = repr(value).partition("e")
        return f"{digits if '.' in digits else digits + '.0'}{exponent}{power}"
    return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"


def _is_plain(text: str, depth: int) -> bool:
    form = _PLAIN_INSIDE if depth else _PLAIN
    return len(text) < 1000 and text.lower() not in _WORDS and form.fullmatch(text) is not None


def _quoted(text: str) -> str:
    letters = (letter if letter.isprintable() or letter in '"\\' else _escape(letter) for letter in text)
    return '"' + "".join(_DOUBLE.get(letter, letter) for letter in letters) + '"'


_DOUBLE = {'"': '\\"', "\\": "\\\\"}
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _escape(letter: str) -> str:
    if letter in _SHORT:
        return _SHORT[letter]
    code = ord(letter)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
