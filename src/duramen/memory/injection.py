"""Remembered text is data, not instructions.

This module finds text that looks like instructions to a model, so that callers can flag it or leave it out. It also
escapes text for a prompt, so that no text can break out of its element.
"""

from __future__ import annotations

import re
from html import escape
from urllib.parse import quote, unquote

_SIGNS: tuple[tuple[str, str], ...] = (
    (
        "asks to ignore instructions",
        r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,30}"
        r"\b(?:previous|prior|earlier|above|all|any|your|system|these)\b.{0,30}"
        r"\b(?:instructions?|prompts?|rules|guidelines|directions|training|safety)\b",
    ),
    (
        "gives a new role",
        r"\byou (?:are|will be) now\b|\bact as (?:an?|the) (?:unrestricted|jailbroken|different|evil)\b",
    ),
    ("gives new instructions", r"\b(?:new|updated|real|actual|hidden) (?:system )?(?:instructions?|prompt)\b\s*[:=]"),
    (
        "asks for the prompt",
        r"\b(?:reveal|print|show|repeat|output|leak)\b.{0,30}\b(?:system|hidden|initial) (?:prompt|message)\b",
    ),
    (
        "asks for secrecy",
        r"\b(?:do not|don't|never) (?:tell|inform|mention|reveal|show)\b.{0,30}\b(?:the )?(?:user|human|operator)\b",
    ),
    (
        "speaks as the system",
        r"<\|[a-z_]+\|>|\[/?(?:INST|SYS)\]|<</?SYS>>|</?(?:system|assistant|instructions?)>"
        r"|^\s*(?:system|assistant)\s*:",
    ),
    (
        "sends data away",
        r"\b(?:send|post|upload|forward|exfiltrate|e-?mail)\b.{0,60}"
        r"\b(?:password|credential|secret|token|api key|conversation|history|memories)\w*\b"
        r".{0,60}(?:https?://|@|\bto\b)",
    ),
    (
        "demands a tool call",
        r"\b(?:you must|always) (?:call|invoke|run|execute) (?:the )?(?:tool|function|command|code)\b",
    ),
    ("asks for an unrestricted mode", r"\b(?:developer|dan|god|sudo|jailbreak) mode\b"),
)
_PATTERNS = tuple((name, re.compile(pattern, re.IGNORECASE | re.MULTILINE | re.DOTALL)) for name, pattern in _SIGNS)


def suspicions(text: str) -> tuple[str, ...]:
    """The reasons why a text looks like instructions to a model; empty if it does not."""
    return tuple(name for name, pattern in _PATTERNS if pattern.search(text))


def attribute(value: str) -> str:
    """The value, on one line and escaped for use between the quotes of an attribute."""
    return escape(" ".join(value.split()), quote=True)


def reference(source: str) -> str:
    """The source of a memory as a model sees it. Characters that a model may not repeat exactly are percent-encoded."""
    return _FRAGILE.sub(lambda found: quote(found[0], safe=""), source)


def referred(reference: str) -> str:
    """The source that was encoded by `reference`."""
    return unquote(reference)


_FRAGILE = re.compile(r"""[%&<>"']|[^\S ]| (?= )|^ | $""")
_DELIMITER = re.compile(r"<(?=[^\w<>]*(?:memory|recalled))", re.IGNORECASE)
"""Text that a model could read as the start or end of an element, even with spaces or invisible characters in it."""


def enclosed(text: str) -> str:
    """The text, escaped so that it can neither end the element around it nor start another one."""
    return _DELIMITER.sub("&lt;", text)
