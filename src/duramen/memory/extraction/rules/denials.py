"""The rule for blockers: finds access that is denied repeatedly. A single denial is not kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from .turns import BLOCKER, Finding, ToolCall, TurnRecord

_DENIED = re.compile(
    r"permission (?:to [\w./-]+ )?(?:is |was )?denied|access (?:is |was )?denied|accessdenied|forbidden"
    r"|not (?:permitted|allowed|authori[sz]ed)|unauthori[sz]ed|\b403\b"
    r"|\bEACCES\b|\bEPERM\b|insufficient (?:permissions?|privileges?|scope)|read-only role|no (?:write "
    r"|read )?(?:access|permission)",
    re.IGNORECASE,
)
_PASSES = re.compile(
    r"rate.?limit|quota|retry|try again|timed? ?out|too many|temporar|throttl|expired|maintenance", re.IGNORECASE
)
_PLACE = re.compile(
    r"(?:[a-z][\w+.-]*://|//|/|~/|[A-Za-z]:\\)[^\s'\",;:)]+|[\w.+-]+@[\w-]+\.[\w.]+|\b[\w-]+(?:[._/-][\w-]+)+\b"
)
_OBJECT = re.compile(
    r"\b(?:table|relation|bucket|schema|database|view|service|queue|topic|channel|repository|project|folder"
    r"|file)\s+[`'\"]?([\w./-]+)",
    re.IGNORECASE,
)
_NOT_PLACES = re.compile(r"^(?:/|//|\d+(?:\.\d+)*|no-\w+|--?\w[\w-]*|read-only|[\d.]+[a-z]?)$")
_RECENT = 5


class _Denial(NamedTuple):
    turn: TurnRecord
    call: ToolCall
    places: frozenset[str]


def denials(turns: Sequence[TurnRecord]) -> Iterator[Finding]:
    """A finding for each denial of the last turn. It is kept if the same was denied at least once more in the last five
    turns."""
    recent = turns[-_RECENT:]
    found = [_Denial(turn, call, _places(call)) for turn in recent for call in turn.calls if _is_denied(call)]
    reported: list[_Denial] = []
    for one in reversed(found):
        if one.turn is not recent[-1] or any(_same(one, other) for other in reported):
            continue
        reported.append(one)
        alike = [other for other in found if _same(one, other)]
        reason = ""
        if len(alike) < 2:
            reason = "denied once only"
        elif _granted(recent[-1].calls, one):
            reason = "it was granted later"
        line = next((text.strip() for text in one.call.output.splitlines() if _DENIED.search(text)), "denied")
        content = f"{one.call.tool} is denied {_target(alike)}: {line[:200]}"
        why = reason or f"denied {len(alike)} times in the last turns"
        yield Finding(not reason, BLOCKER, content, why, line[:200], recent[-1].position)


def _is_denied(call: ToolCall) -> bool:
    return not call.ok and bool(_DENIED.search(call.output)) and not _PASSES.search(call.output)


def _same(one: _Denial, other: _Denial) -> bool:
    if one.call.tool != other.call.tool:
        return False
    return _as_text(one.call.arguments) == _as_text(other.call.arguments) or bool(one.places & other.places)


def _granted(calls: Sequence[ToolCall], denial: _Denial) -> bool:
    """Whether a later call to the same target succeeded."""
    after = calls[calls.index(denial.call) + 1 :]
    return any(call.ok and call.tool == denial.call.tool and _places(call) & denial.places for call in after)


def _places(call: ToolCall) -> frozenset[str]:
    """The targets of a call: paths, addresses and names in its arguments and output."""
    text = f"{_words(call.arguments)}\n{call.output}"
    found = {one.rstrip(".,:;'\"/") for one in _PLACE.findall(text)} | set(_OBJECT.findall(text))
    return frozenset(one for one in found if len(one) > 3 and not _NOT_PLACES.match(one))


def _target(alike: Sequence[_Denial]) -> str:
    shared = frozenset.intersection(*(one.places for one in alike))
    if shared:
        return "access to " + ", ".join(sorted(shared, key=lambda one: (-len(one), one))[:2])
    return f"with {_as_text(alike[-1].call.arguments)[:200]}"


def _words(arguments: Any) -> str:
    if isinstance(arguments, Mapping):
        return "\n".join(_words(value) for value in arguments.values())
    if isinstance(arguments, (list, tuple)):
        return "\n".join(map(_words, arguments))
    return str(arguments)


def _as_text(arguments: Any) -> str:
    return json.dumps(arguments, sort_keys=True, default=str, ensure_ascii=False)
