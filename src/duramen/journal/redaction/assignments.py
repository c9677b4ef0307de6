"""Names of credentials inside text, and the values that belong to them.

A name is found by its stem ("pass", "token", …). The syntax after it decides how the value must look: between quotes
almost anything is a credential, after "is" only a word with letters and digits. Placeholders, types and expressions of
program code are left alone. Text of any length takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from .names import words_of

_STEMS_OF_PROSE = ("pass", "pwd", "secret", "token", "otp")
"""Names that also come before a credential without a colon or an equals sign: "the password is …"."""
_STEMS = (*_STEMS_OF_PROSE, "key", "auth", "cookie", "credential", "pin")
_STEMS_OF_JSON = ("bearer", "jwt", "cvv", "ssn", "csrf", "xsrf")
_STEMS_OF_QUERIES = ("sig", "appid")
"""Every name of a credential contains one of these stems. Looking for all of them in every text would be slow."""
_NAME_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"
_LONGEST_NAME = 60
_LONGEST_VALUE = 4096
_LETTERS = str.maketrans({one: one.lower() for one in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"})

_AFTER_NAME = re.compile(
    r"""[\w.-]{0,60} (?P<close> \\{0,15}["'`]? ) (?:
          \]?[ \t]{0,20} (?P<sign> =>|:=|[:=] ) (?P<space> \s{0,20} )
        | [ \t]{0,20} (?P<pair> ,?\s{0,20}["']?[Vv]alue["']?[ \t]{0,20}[:=]\s{0,20} | ,\s{0,20} ) (?=["'])
        | (?P<tag> > )
        | [ \t]{1,20} (?P<verb> (?:is|was)[ \t:]{1,20} )?
    ) (?P<open> \\{0,15}["'`] )?""",
    re.VERBOSE,
)
"""What is between a name and its value."""
_BARE_VALUE = re.compile(r"""[^\s"'`<>]+""")
_NEXT_FIELD = re.compile(r"[&;,](?=[\w.$-]{1,40}=|\s|\Z)")
_BEFORE_KEY = re.compile(r"(?:api|access|secret|private|auth|license) \Z", re.IGNORECASE)
_COOKIES = re.compile(r"[\w.$-]+=[^\s;]*(?:;[ \t]*[\w.$-]+=[^\s;]*)*")
_BETWEEN_WORDS = re.compile(r"""[\s,;="']+""")
_TEMPLATE = re.compile(
    r"""\$\{ | \{\{ | \$\( | <[^>]*>\Z | \[redacted\]\W*\Z | [*.•…_-]+\Z | [xX]+\Z | (?:your|insert|enter)[ _-]""",
    re.VERBOSE | re.IGNORECASE,
)
_PLACEHOLDER = re.compile(
    r"""\$[A-Za-z_]+\W*\Z | [%{<\[*(] | @[\w./-]+\Z | (?:my|the|some|example|dummy|fake|sample)[ _-]
        | (?:none|null|nil|true|false|undefined|string|str|bytes|int|text|password|passwort|secret|token|key|apikey
            |required|optional|enabled|disabled|hidden|masked|empty|unset|include|omit|bearer|basic)\W*\Z""",
    re.VERBOSE | re.IGNORECASE,
)
"""What people write where a credential will be. Between quotes only a template counts: a password may be any word."""
_EXPRESSION = re.compile(
    r"""[A-Za-z_][\w.]*[(\[] | [A-Za-z_]\w{0,24}(?:(?:\.|::|->)[A-Za-z_]\w{0,24})+\W*\Z
        | (?:u?int|float|sha|md|base|utf|oauth|argon|ed|rsa|aes|hs|rs|es|http|ipv)[-_]?\d+\w{0,3}\W*\Z""",
    re.VERBOSE | re.IGNORECASE,
)
"""Program code, and names of types and algorithms."""
_IN_QUERY = re.compile(r"(?:[\w-]*signature|sig|appid|key)\Z", re.IGNORECASE)
_ANYWHERE = re.compile(r"_?auth\Z|[A-Z][A-Z0-9_]*_KEY\Z")
"""Names that say little: only a long random value is a credential. The first ones count in query strings only."""
_PASSWORD_WORDS = frozenset(["password", "passwd", "passphrase", "pwd"])
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_DIGITS_COUNT = re.compile(r"pin|otp|cvv|ssn|pass|pwd", re.IGNORECASE)

Span = tuple[int, int]


class _Assignment(NamedTuple):
    """A name in a text, and the syntax after it."""

    text: str
    name: str
    before: str
    """The end of the text before the name."""
    after: re.Match[str]

    @property
    def quote(self) -> str | None:
        return self.after["open"]

    @property
    def sign(self) -> str | None:
        return self.after["sign"]

    @property
    def both_quoted(self) -> bool:
        """Whether name and value are quoted alike, as in JSON."""
        return self.sign is not None and self.quote is not None and self.quote == self.after["close"]


def lower_case(text: str) -> str:
    """The text in lower case, with the same number of characters."""
    lowered = text.lower()
    return (
        lowered if len(lowered) == len(text) else text.translate(_LETTERS)
    )  # the lower case of some letters is two characters


def stems_in(text: str, lowered: str, more: Iterable[str] = ()) -> list[str]:
    """The stems of names of credentials, and `more` such stems, that a text contains."""
    if ":" not in text and "=" not in text:
        return [stem for stem in _STEMS_OF_PROSE if stem in lowered]
    stems = (*_STEMS, *more)
    if '"' in text or "'" in text:
        stems += _STEMS_OF_JSON
    if "?" in text or "&" in text:
        stems += _STEMS_OF_QUERIES
    return [stem for stem in stems if stem in lowered]


def credential_spans(text: str, lowered: str, stems: Iterable[str], hides: Callable[[str], bool]) -> list[Span]:
    """Where the values are that belong to names with these stems, in order. `hides` decides whether a name is that of
    a credential."""
    spans: list[Span] = []
    for stem in stems:
        at = lowered.find(stem)
        while at >= 0:
            end = at + len(stem)
            span = _span_after(text, at, end, hides)
            if span is not None:
                spans.append(span)
                end = max(end, span[1])
            at = lowered.find(stem, end)
    return sorted(spans)


def _span_after(text: str, start: int, end: int, hides: Callable[[str], bool]) -> Span | None:
    """Where the credential is whose name contains the stem between `start` and `end`."""
    after = _AFTER_NAME.match(text, end)
    if after is None:
        return None
    before = text[max(0, start - _LONGEST_NAME) : start]
    left = before.rstrip(_NAME_CHARACTERS)
    found = _Assignment(text, text[start - len(before) + len(left) : after.start("close")], left, after)
    name = found.name.strip("-.")
    if hides(name):
        if found.sign == ":" and not found.quote and name.lower().endswith(("authorization", "cookie")):
            return _header_span(found)
        return _value_span(found)
    if name.lower().startswith("key") and _BEFORE_KEY.search(left) and hides("api_" + name):
        return _value_span(found)
    if found.sign and (_ANYWHERE.match(name) or (_IN_QUERY.match(name) and left[-1:] in ("?", "&"))):
        span = _bounds(found)
        return span if span is not None and _is_random(text[slice(*span)]) else None
    return None


def _value_span(found: _Assignment) -> Span | None:
    """Where the value is, if it is a credential."""
    if not _is_assignment(found):
        return None
    span = _bounds(found)
    value = found.text[slice(*span)] if span is not None else ""
    if not value or _TEMPLATE.match(value):
        return None
    return span if found.both_quoted or _is_credential(found, value) else None


def _is_assignment(found: _Assignment) -> bool:
    after = found.after
    if after["tag"]:
        return found.before[-1:] == "<"
    if found.sign or after["verb"] or after["pair"]:
        return True
    return found.name.startswith("--") or _last_word(found.name) in _PASSWORD_WORDS


def _bounds(found: _Assignment) -> Span | None:
    """Where the value begins and ends; None if there is none."""
    text, start, quote = found.text, found.after.end(), found.quote
    if quote is None:
        return _bare_bounds(text, start)
    limit = len(text) if found.both_quoted else start + _LONGEST_VALUE
    end = text.find(quote, start, limit)
    while len(quote) == 1 and end > start and _is_escaped(text, start, end):
        end = text.find(quote, end + 1, limit)
    if end < 0:
        return (start, len(text)) if found.both_quoted else None  # JSON that was cut off
    return start, end


def _bare_bounds(text: str, start: int) -> Span | None:
    bare = _BARE_VALUE.match(text, start, start + _LONGEST_VALUE)
    if bare is None:
        return None
    following = _NEXT_FIELD.search(text, start, bare.end())
    end = bare.end() if following is None else following.start()
    return start, start + len(text[start:end].rstrip(".,;)]}"))


def _is_escaped(text: str, start: int, at: int) -> bool:
    part = text[max(start, at - 100) : at]
    return (len(part) - len(part.rstrip("\\"))) % 2 == 1


def _header_span(found: _Assignment) -> Span | None:
    """Where the credential of a header is: the rest of its line, without the scheme of an authorization."""
    text, start = found.text, found.after.end()
    quote = found.before[-1:] if found.before[-1:] in ("'", '"', "`") else "\n"
    ends = [at for at in (text.find(one, start, start + _LONGEST_VALUE) for one in ("\r", "\n", quote)) if at >= 0]
    end = min(ends, default=min(len(text), start + _LONGEST_VALUE))
    rest = text[start:end]
    if found.name.lower().endswith("cookie"):
        cookies = _COOKIES.match(rest)
        values = [] if cookies is None else [one.partition("=")[2] for one in cookies[0].split(";")]
        return (start, end) if any(len(value) >= 8 for value in values) else None
    words = _BETWEEN_WORDS.split(rest, maxsplit=12)[:12]
    if not any(len(word) >= 8 and _is_mixed(word) and not _is_placeholder(word) for word in words):
        return None
    scheme, space, _ = rest.partition(" ")
    return (start + len(scheme) + 1, end) if space else (start, end)


def _is_placeholder(value: str) -> bool:
    return bool(_TEMPLATE.match(value) or _PLACEHOLDER.match(value))


def _is_credential(found: _Assignment, value: str) -> bool:
    """Whether a value looks like a credential, given its name and the syntax between them."""
    if "\n" in value or "://" in value or _is_placeholder(value):
        return False
    words, last = words_of(found.name), _last_word(found.name)
    if value.isdigit():
        return 4 <= len(value) <= 12 and _DIGITS_COUNT.search(found.name) is not None
    if found.quote is None and _EXPRESSION.match(value):
        return False
    if last and value.lower().startswith(last) and len(value) <= len(last) + 2:
        return False  # token = token2
    if " " in value:
        return found.quote is not None and last == "passphrase"
    if found.after["pair"] and any(stem in value.lower() for stem in _STEMS):
        return False  # two names
    if found.sign == ":" and not found.after["space"] and not found.quote and last not in _PASSWORD_WORDS:
        return _is_random(value) and _UUID.fullmatch(value) is None  # "password-reset:user4711" is a name
    if not found.sign:
        return _is_mixed(value) and _has(value, str.isdigit) and "=" not in value
    if _is_mixed(value):
        return True
    if found.quote:
        return len(value) >= 4 and _names_a_password(words)
    # NAME=value, as in an environment: a password may be a plain word
    return found.sign == "=" and not found.after["space"] and found.name.isupper() and value.isalpha()


def _last_word(name: str) -> str:
    words = words_of(name)
    return words[-1] if words else ""


def _names_a_password(words: list[str]) -> bool:
    return any(word.endswith(("password", "passwd", "pwd", "secret", "passphrase")) for word in words)


def _is_mixed(value: str) -> bool:
    """Whether a word has digits or signs between its letters, and is no path."""
    if len(value) < 6 or not _has(value, str.isalpha):
        return False
    if value[0] in "/.~" and not (_has(value, str.isdigit) and _has(value, str.isupper)):
        return False
    return _has(value, str.isdigit) or any(one in "!#$%&*+?@^~=" for one in value[1:])


def _is_random(value: str) -> bool:
    return len(value) >= 20 and _has(value, str.isdigit) and _has(value, str.isalpha) and " " not in value


def _has(value: str, test: Callable[[str], bool]) -> bool:
    return any(map(test, value))
