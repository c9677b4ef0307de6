"""The rule for procedures: keeps those that a conversation describes step by step, once they have worked."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ...injection import suspicions
from .sentences import own_words
from .turns import PROCEDURE, Finding, ToolCall, TurnRecord

_NUMBERED = re.compile(r"(?:^|(?<=[\s:;,]))(?:step\s+)?(\d{1,2})\s*(?:[.):]|-)\s+(?=\S)", re.IGNORECASE)
_ORDERED = re.compile(
    r"(?:^|[\s,;:])(?:first(?:ly)?|then|after(?:wards| that)|next|second(?:ly)?|third(?:ly)?|finally|lastly"
    r"|and then|at the end)\b,?\s+",
    re.IGNORECASE,
)
_FRAME = re.compile(
    r"^(?:.{0,60}?\b)?(?:(?:to|for)\s+(?P<aim>[^:,.]{3,80}?)(?:[:,]|\s+(?:you|we|one)\b)"
    r"|(?P<way>[^:.\n]{3,60}?)\s+(?:goes|works|is done|runs)\s+(?:like this|this way|so|as follows)"
    r"|(?:how (?:we|you|to)|our (?:process|way|procedure|routine) (?:for|to|of)|the (?:steps|procedure|routine"
    r"|way) (?:for|to|of))\s+(?P<told>[^:,.]{3,80})|(?P<head>[^:.\n]{3,60}):\s)",
    re.IGNORECASE,
)
_ASKED = re.compile(
    r"^(?:.{0,40}?\b)?(?:how (?:do|can|would|should|does|must) (?:i|we|you|one)|how to|what['\u2019]?s the way to"
    r"|what is the way to|help me(?: to)?|(?:please )?(?:can|could) you)\s+(?P<aim>[^?.,\n]{3,80})",
    re.IGNORECASE,
)
_WORKED = re.compile(
    r"\b(?:that|it|this|all|everything)(?: all)? (?:worked|works|did (?:the trick|it)|helped|solved it|fixed it"
    r"|is (?:fine|ok|running|up|solved|fixed|done) (?:now|again))|\bworked\b|works (?:now|again|fine|great"
    r"|perfectly|like)|went (?:smooth|well|fine)\w*|(?:is|are) (?:green|gone|clear|happy|fine) (?:now|again)"
    r"|did the trick|problem solved|solved!|run(?:s|ning)? (?:fine|again|smoothly)|went through"
    r"|filed and accepted|accepted|all good now|back (?:up|online)|success\w*|no more \w+|(?:is|are) (?:back|gone"
    r"|away|solved|fixed)",
    re.IGNORECASE,
)
_FAILED = re.compile(
    r"\b(?:did(?:n['\u2019]?t| not) (?:work|help)|does(?:n['\u2019]?t| not) work|not work(?:ing|ed)?|no luck"
    r"|still (?:the same|broken|not|fails?|shows?|no|e\d)|failed|same (?:error|as before|problem|thing)"
    r"|not tried|have(?:n['\u2019]?t| not) (?:tried|done|tested)|untested|never tried|no success|worse|nope"
    r"|won['\u2019]?t|in vain|not yet|couldn['\u2019]?t|isn['\u2019]?t working|broke)\b|\bstill\b",
    re.IGNORECASE,
)
_REQUEST = re.compile(r"\s*(?:first|please|pls|can you|could you|do|run|make|let)\b", re.IGNORECASE)
_RECENT = 5
_LONGEST_STEP = 300


def recipes(turns: Sequence[TurnRecord]) -> Iterator[Finding]:
    """A finding for each procedure described in the last five turns whose outcome is in the last turn, and for each one
    described in the last turn, with or without an outcome."""
    recent = turns[-_RECENT:]
    for index, turn in enumerate(recent):
        for speaker, text in (("user", own_words(turn.user)), ("assistant", turn.assistant)):
            steps = _steps(text)
            if len(steps) < 2:
                continue
            later = recent[index + 1 :]
            if later and any(_outcome(speaker, turn, later[:at]) is not None for at in range(len(later))):
                continue  # settled in an earlier turn
            verdict = _outcome(speaker, turn, later)
            if verdict is None and later:
                continue
            name = _purpose(speaker, text, turn)
            reason = _rejection(speaker, text, name, verdict, turn)
            why = reason or "described step by step, and it worked"
            content = "; ".join(steps)
            yield Finding(not reason, PROCEDURE, content, why, text[:400], turn.position, name or "", steps, verdict)


def _rejection(speaker: str, text: str, name: str | None, verdict: bool | None, turn: TurnRecord) -> str:
    if verdict is None:
        return "no success yet"
    if not verdict:
        return "it did not work"
    if suspicions(text):
        return "the message looks like instructions to the model"
    if name is None:
        return "a request, not a procedure" if speaker == "user" else "the text does not say what it is for"
    return ""


def _steps(text: str) -> tuple[str, ...]:
    """The steps of a text, marked by numbers or by words such as "then"."""
    marks = list(_NUMBERED.finditer(text))
    run = [mark for number, mark in enumerate(marks, 1) if int(mark[1]) == number]
    if len(run) > 1 and len(run) == len(marks):
        ends = [mark.start() for mark in run[1:]] + [len(text)]
        return _clean(text[mark.end() : end] for mark, end in zip(run, ends, strict=True))
    first = re.search(r"(?:^|[\s:,;])first(?:ly)?\b,?\s+", text, re.IGNORECASE)
    if first is None:
        return ()
    steps_text = text[first.start() :]
    pieces = [piece for piece in _ORDERED.split(steps_text) if piece.strip(" ,;:.")]
    return _clean(pieces) if len(pieces) > 1 else ()


def _clean(pieces: object) -> tuple[str, ...]:
    found = []
    for piece in pieces:  # type: ignore[attr-defined]
        step = re.split(r"(?<=[.!?])\s+(?=[A-Z])|\n\s*\n|\n(?=[A-Z])", piece.strip(), maxsplit=1)[0]
        step = re.sub(r"[\s,;]+(?:and|but)?$", "", step.strip(" ,;")).rstrip(".")
        if step:
            found.append(" ".join(step.split())[:_LONGEST_STEP])
    return tuple(found)


def _purpose(speaker: str, text: str, turn: TurnRecord) -> str | None:
    """What a procedure is for; None if the text does not say."""
    head = text[:200]
    if speaker == "user":
        framed = _FRAME.match(head)
        if framed is None or _REQUEST.match(head):
            return None
        aim = framed["aim"] or framed["way"] or framed["told"] or framed["head"]
    else:
        asked = _ASKED.match(turn.user.strip())
        aim = asked["aim"] if asked is not None else re.split(r"[?.!,\n]", turn.user.strip())[0]
    aim = re.sub(r"\b(?:please|pls|again)\b", "", aim).strip(" :,-")
    return " ".join(aim.split())[:80] or None


def reported_outcome(speaker: str, turn: TurnRecord, later: Sequence[TurnRecord]) -> bool | None:
    """The first report in later turns on whether a procedure worked; None if there is none."""
    found = (_outcome(speaker, turn, later[:upto]) for upto in range(len(later) + 1))
    return next((verdict for verdict in found if verdict is not None), None)


def _outcome(speaker: str, turn: TurnRecord, later: Sequence[TurnRecord]) -> bool | None:
    """Whether a procedure worked, as of the last of these turns; None if they do not say."""
    if speaker == "user" and _FAILED.search(turn.user):
        return False if later or re.search(r"tried|tested|done", turn.user) is None else None
    if speaker == "user" and _WORKED.search(turn.user):
        return True
    own = _calls_succeeded(turn.calls)
    if not later:
        return own
    newest = later[-1]
    if _FAILED.search(newest.user):
        return False
    if own is None and _WORKED.search(newest.user):
        return True
    return own if own is not None else _calls_succeeded(newest.calls) if speaker == "user" else None


def _calls_succeeded(calls: Sequence[ToolCall]) -> bool | None:
    """Whether all calls succeeded; None if there were none."""
    return all(call.ok for call in calls) if calls else None
