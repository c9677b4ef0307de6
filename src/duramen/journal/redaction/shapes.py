"""The shapes of credentials that are recognized without a name next to them: keys of providers, URLs, command lines.

The list follows the rules of gitleaks and detect-secrets. Every pattern takes linear time on any text.
"""

from __future__ import annotations

import re

REDACTED = "[redacted]"
_SHORTEST_KEY = 20
_LONG = 16

_KEY_SHAPES = (
    r"(?:sk|pk|rk)[-_](?=[a-z_-]*[A-Z0-9])[A-Za-z0-9_-]{20,}",  # OpenAI, Anthropic, Stripe, OpenRouter, Langfuse, …
    r"gh[pousr]_[A-Za-z0-9_-]{16,}",
    r"github_pat_\w{20,}",
    r"gl(?:pat|dt|rt|ft|ffct|soat|cbt|ptt|imt|agent|oas)-[A-Za-z0-9_.-]{16,}",  # GitLab
    r"GR1348941[\w-]{20,}",
    r"xox[abeoprs][.-][A-Za-z0-9.-]{16,}",  # Slack
    r"xapp-\d-[A-Za-z0-9-]{20,}",
    r"(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{16}(?![A-Za-z0-9])",  # AWS
    r"AIza[\w-]{35}",  # Google
    r"ya29\.[\w.-]{20,}",
    r"GOCSPX-[\w-]{20,}",
    r"ey[JK][\w-]{8,}\.ey[\w-]{8,}(?:\.[\w-]+)?",  # JSON web tokens
    r"(?:whsec|hf|api_org|gsk|npm|dop_v1|doo_v1|dor_v1|glsa|glc|ntn|rubygems|rdme|pnu|sbp|napi)"
    r"_(?=[a-z_-]*[A-Z0-9])[A-Za-z0-9+/=_-]{30,}",
    r"secret_[A-Za-z0-9]{43}",  # Notion
    r"(?:lin_api|lin_oauth|lsv2_[ps][tk]|shp(?:at|ss|ca|pa)|figd|r8|pcsk|nfp|tfp|sgp|sntry[su]|squ|sqp|sqa|CCIPAT)"
    r"_(?=[a-z_-]*[A-Z0-9])[A-Za-z0-9+/=_-]{30,}",
    r"(?:dckr_pat|pscale_(?:tkn|pw|oauth)|shippo_(?:live|test)|duffel_(?:live|test)|sm_[aps]at|vercel_blob_rw|bkua|aio|fo1|fm2"
    r"|e2b|jina|CLOJARS|FLWSECK_TEST|phx)[_-](?=[a-z_-]*[A-Z0-9])[A-Za-z0-9+/=_.-]{16,}",
    r"ops_eyJ[A-Za-z0-9+/=_-]{40,}",  # 1Password
    r"(?:pypi|xkeysib|NRAK|NRII|PMAK|pplx|xai|nvapi|tvly|pul|ico|tskey|csk|fio-u|tk-us|HRKU|sq0[ac][ts]p|dnkey|CFPAT"
    r"|AGE-SECRET-KEY|bedrock-api-key|s-s4t2(?:ud|af)|FLWSECK)-[A-Za-z0-9_=-]{20,}",
    r"pat-[a-z]{2}\d-[0-9a-f-]{36}",  # HubSpot
    r"access-(?:sandbox|development|production)-[0-9a-f-]{36}",  # Plaid
    r"key-[0-9a-f]{32}",  # Mailgun
    r"[0-9a-f]{32}-us\d{1,2}(?!\w)",  # Mailchimp
    r"SG\.[\w-]{16,}\.[\w-]{16,}",  # SendGrid
    r"hv[sbr]\.[\w-]{20,}|s\.[A-Za-z0-9]{24}(?!\w)",  # Vault
    r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{30,}",  # Doppler
    r"dt0[a-z]\d\d\.[A-Z0-9]{24}\.[A-Z0-9]{64}",  # Dynatrace
    r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}",  # Airtable
    r"[A-Za-z0-9]{14}\.atlasv1\.[\w-]{40,}",  # Terraform
    r"[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,}",  # Discord
    r"sl\.[\w-]{100,}",  # Dropbox
    r"dapi[0-9a-f]{32}(?:-\d)?(?!\w)",  # Databricks
    r"SK[0-9a-f]{32}(?!\w)",  # Twilio
    r"AT(?:ATT|BB|CTT)[A-Za-z0-9_-]{24,}(?:=[A-F0-9]{8})?",  # Atlassian
    r"EAA[A-Za-z][\w-]{50,}",  # Facebook, Square
    r"(?:EZAK|EZTK|AKCp|LTAI|AQVN|ABSK|HRKU)[A-Za-z0-9_+/=-]{18,}",
    r"[\w.~-]{3}\dQ~[\w.~-]{31,34}",  # Azure
    r"sha256~[\w-]{43}",  # OpenShift
)
_KEY = re.compile("|".join(_KEY_SHAPES), re.ASCII)
_RUNS = re.compile(r"[\w.~-]+", re.ASCII)
"""The words of a text for keys. A key begins where a word begins."""
_ESCAPED_SPACE = re.compile(r"\\[nrt]")
_RUN = re.compile(rf"(\\[nrt])?({_RUNS.pattern})", re.ASCII)

_BLOCK = re.compile(
    r"-----BEGIN ([A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:(?:(?!-----).)*-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----"
    r"|[\sA-Za-z0-9+/=\\]*))",
    re.DOTALL,
)
"""A block without an end is cut off: its lines of base64 are replaced, and not the text after them."""
_AWS_SECRET = (
    r"(?<![A-Za-z0-9/+=])(?=[a-z0-9/+]{0,39}[A-Z])(?=[A-Z0-9/+]{0,39}[a-z])([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+=])"
)
"""Searched only in a text with an access key id. Other words of 40 characters are hashes."""
_SEARCHED = (
    (":AA", re.compile(r"(?<!\d)(\d{8,10}:AA[\w-]{32,})")),  # Telegram
    ("1//0", re.compile(r"(?<![\w/:])(1//0[\w-]{30,})")),  # Google refresh tokens
    ("IQoJb3JpZ2lu", re.compile(r"(IQoJb3JpZ2lu[A-Za-z0-9+/=]{80,})")),  # AWS session tokens
    ("oGZXIvYXdz", re.compile(r"(F[wQ]oGZXIvYXdz[A-Za-z0-9+/=]{80,})")),
    ("sntrys_", re.compile(r"(sntrys_[A-Za-z0-9+/=_]{40,})")),  # Sentry
    ("hooks.slack.com/", re.compile(r"hooks\.slack\.com/(?:services|workflows|triggers)/([\w/]{30,})")),
    ("/api/webhooks/", re.compile(r"/api/webhooks/\d+/([\w-]{40,})")),  # Discord
    (".webhook.office.com/", re.compile(r"\.webhook\.office\.com/([\w@/-]{60,})")),
    ("PuTTY-User-Key", re.compile(r"Private-Lines: (\d{1,4}\s+[A-Za-z0-9+/=\s]+)")),
    ("AKIA", re.compile(_AWS_SECRET)),
    ("ASIA", re.compile(_AWS_SECRET)),
)
"""Signs and patterns. A text is searched with a pattern only if it contains the sign. The group is replaced."""
_URL = re.compile(
    r"""://([^\s/:@"'<>]*:(?!\d{1,5}[?#])(?![$<{%][^\s@/]*[}>)]?@|\*+@)[^\s/]+(?=@)|[A-Za-z0-9_-]{20,}(?=@))"""
)
_IDENTIFIED = re.compile(r"identified\s+(?:with\s+\S+\s+)?by\s+'([^'\n]+)'", re.IGNORECASE)  # SQL
_SCHEMES = (
    ("bearer", re.compile(r"[Bb](?i:earer)\s+(?=[A-Za-z0-9+/=._~-]*[A-Z0-9=])([A-Za-z0-9+/=._~-]{16,})")),
    ("basic", re.compile(r"[Bb](?i:asic)\s+(?=[A-Za-z0-9+/=._~-]*[A-Z0-9=])([A-Za-z0-9+/=._~-]{16,})")),
)
_COMMANDS = (
    ("htpasswd", re.compile(r"htpasswd\s+-\w{0,8}b\w{0,8}\s+\S{1,200}\s+\S{1,200}\s+(\S+)")),
    (" -p", re.compile(r"sshpass\s+-p\s*['\"]?([^\s'\"]+)")),
    (" -p", re.compile(r"\bmysql\w{0,20}\s[^\n]{0,200}?\s-p(?=\S*\d)([^\s'\"]{4,})")),
    (" -p", re.compile(r"login\s[^\n]{0,200}?\s-p\s+(?=\S*\d)([^\s'\"]{4,})")),
    (" -u", re.compile(r" -u\s*['\"]?[^\s:'\"/]+:(?=\S*\d)(?=\S*[A-Za-z])([^\s'\"]{4,})")),
    (" --user", re.compile(r" --user[= ]['\"]?[^\s:'\"/]+:(?=\S*\d)(?=\S*[A-Za-z])([^\s'\"]{4,})")),
)


def redact_shapes(value: str, lowered: str) -> str:
    """The text with every credential replaced that its shape reveals. `lowered` is the text in lower case."""
    words = _long_words(value)
    if words:
        value = _redact_keys(_substituted(value, lowered, _SCHEMES), words)
    if "@" in value and "://" in value:
        value = _URL.sub(_hide_group, value)
    if " -" in value:
        value = _substituted(value, value, _COMMANDS)
    if "'" in value and "IDENTIFIED" in value:
        value = _IDENTIFIED.sub(_hide_group, value)
    return value


def _long_words(value: str) -> str:
    """The words of a text that are long enough to hold a key, in one text of ASCII characters."""
    if len(value) < _LONG:
        return ""
    words = " ".join([word for word in value.split() if len(word) >= _LONG])
    if words.isascii():
        return words
    ascii_words = words.encode("ascii", "replace").decode().replace("?", " ").split()
    return " ".join([word for word in ascii_words if len(word) >= _LONG])


def _redact_keys(value: str, words: str) -> str:
    """The text with the keys in these words of it replaced."""
    value = _substituted(value, words, _SEARCHED)
    if "\\" in words:
        words = _ESCAPED_SPACE.sub(" ", words)
    if any(len(run) >= _SHORTEST_KEY and _find_key(run) for run in _RUNS.findall(words)):
        value = _RUN.sub(_redact_run, value)
    return _BLOCK.sub(_hide_group, value) if "-----BEGIN" in value else value


_PART = re.compile(r"[A-Za-z0-9+/=]{8,}")
_LETTER, _DIGIT = re.compile("[A-Za-z]"), re.compile("[0-9]")


def _find_key(run: str) -> re.Match[str] | None:
    """The key at the beginning of a word. A key has a long part with letters and digits; an identifier such as
    `pk_users_2026_daily_export` consists of words and numbers."""
    key = _KEY.match(run)
    if key is None or not any(_LETTER.search(part) and _DIGIT.search(part) for part in _PART.findall(key[0])):
        return None
    return key


def _redact_run(found: re.Match[str]) -> str:
    key = _find_key(found[2]) if len(found[2]) >= _SHORTEST_KEY else None
    return found[0] if key is None else (found[1] or "") + REDACTED + found[2][key.end() :]


def _substituted(value: str, searched: str, patterns: tuple[tuple[str, re.Pattern[str]], ...]) -> str:
    for sign, pattern in patterns:
        if sign in searched:
            value = pattern.sub(_hide_group, value)
    return value


def _hide_group(found: re.Match[str]) -> str:
    start, end = found.span(1)
    return found.string[found.start() : start] + REDACTED + found.string[end : found.end()]
