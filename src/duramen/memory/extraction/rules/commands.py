"""The rule for commands: keeps those that worked and that the conversation shows to be the way to do something."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .sentences import sentences, strip_lead
from .turns import PROCEDURE, Finding, TurnRecord

_TRIVIAL = re.compile(
    r"^(?:sudo )?(?:ls|cd|cat|pwd|echo|head|tail|less|more|grep|rg|find|which|whereis|wc|ps|top|ping|sleep|mkdir"
    r"|rm|cp|mv|touch|chmod|chown|date|whoami"
    r"|env|export|kill|nohup|man|history|clear|tree|stat|file|sort|uniq|diff|sed|awk|jq|nl|type|true|false|test"
    r"|df|du|free|uptime|id|uname|hostname|tee|xargs"
    r"|git (?:status|log|diff|show|add|commit|push|pull|fetch|checkout|switch|merge|branch|stash|rebase|clone)"
    r"|curl|wget|vi|vim|nano|open)\b"
)
_SPLIT = re.compile(r"\s*(?:&&|\|\||;|\|)\s*")
_RUN_VALUE = re.compile(
    r"/tmp/|/var/folders/|\$!|[0-9a-f]{8}-[0-9a-f]{4}-|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,}\b"
    r"|\b\d{6,}\b|--pid|\b\d{4}-\d\d-\d\d"
)
_SECRET = re.compile(
    r"password|passwd|secret|token|api[-_]?key|--pass\b|\[redacted"
    r"|://[^/\s]+:[^@\s]+@",
    re.IGNORECASE,
)
_TOLD = re.compile(
    r"^(?:so |then |and |ok,? )*(?:(?:i|we|i['\u2019]ve|we['\u2019]ve) (?:just |have |already )?(?:ran|run"
    r"|executed|started|called|did|used|tried)|running|executing|ran|executed|started|output of|result of)\b"
    r"|\b(?:finished|failed|was run|has run|printed|returned|reported)\b",
    re.IGNORECASE,
)
"""Sentences that only report that a command was run."""
_DOUBT = re.compile(
    r"\b(?:maybe|perhaps|try|might|could|probably|guess|think|not sure|should work|what if|does .* work"
    r"|instead of|don['\u2019]?t (?:use|run)|never (?:use|run)|used to|first\b.*\bthen"
    r"|deprecated|for now|today|temporar\w+|workaround|just this once|this time)\b",
    re.IGNORECASE,
)
_RECENT = 5


def commands(turns: Sequence[TurnRecord]) -> Iterator[Finding]:
    """A finding for each command of the last turn: kept if it is the way to do something, otherwise with the reason why
    not."""
    last, seen = turns[-1], set[str]()
    for call in last.calls:
        command = call.command
        if command is None or command in seen:
            continue
        seen.add(command)
        outcome = [one.ok for one in last.calls if one.command == command][-1]
        kept, evidence = _evidence(turns, command)
        reason = _refused(command, outcome) or ("" if kept else "nothing shows that this is the way to do it")
        yield Finding(
            not reason,
            PROCEDURE,
            evidence if not reason else command,
            reason or kept,
            evidence or last.user,
            last.position,
            name=_name(command),
            steps=(f"`{command}`",),
            worked=outcome,
        )


def _refused(command: str, worked: bool) -> str:
    if not worked:
        return "it failed"
    if all(_TRIVIAL.match(part) for part in _SPLIT.split(command) if part):
        return "a trivial command"
    if _RUN_VALUE.search(command):
        return "a value of this run"
    return "a secret" if _SECRET.search(command) else ""


def _evidence(turns: Sequence[TurnRecord], command: str) -> tuple[str, str]:
    """Why a command is the way to do something, and the sentence that shows it; empty if nothing does."""
    last = turns[-1]
    for text, reason in (
        (last.user, "the user says that this is the way to do it"),
        (last.assistant, "the assistant says that this worked"),
    ):
        for sentence in sentences(text):
            plain = strip_lead(sentence)
            if _names(plain, command) and not _TOLD.search(plain) and not _DOUBT.search(plain):
                return reason, plain
    worked = [turn for turn in turns[-_RECENT:] if any(one.ok and one.command == command for one in turn.calls)]
    if len(worked) > 1:
        return f"it worked in {len(worked)} of the last turns", f"Asked: {worked[0].user}"
    return "", ""


def _names(sentence: str, command: str) -> bool:
    """Whether a sentence names a command, or the start of it between backticks."""
    plain = " ".join(sentence.split())
    if command in plain and len(plain.split()) > len(command.split()) + 2:
        return True
    quoted = re.findall(r"`([^`]+)`", plain)
    return any(len(one.split()) > 1 and command.startswith(" ".join(one.split())) for one in quoted)


def _name(command: str) -> str:
    return command if len(command) <= 80 else command[:77] + "..."
