"""Texts with and without credentials. Credentials are made from templates: none is in the repository."""

from __future__ import annotations

import random
import re
import string
from typing import NamedTuple

from .paths import CORPUS, DATA
from .seeds import seeded

_TEMPLATES = DATA / "redaction"
_SLOT = re.compile(r"\{(b32|b64u|b64|url|an|alpha|low|up|hex|HEX|num):(\d+)\}|\{(pwurl|pw|phrase|uuid)\}")
_LETTERS = string.ascii_letters
_CHARACTERS = {
    "an": _LETTERS + string.digits,
    "alpha": _LETTERS,
    "low": string.ascii_lowercase + string.digits,
    "up": string.ascii_uppercase + string.digits,
    "hex": "0123456789abcdef",
    "HEX": "0123456789ABCDEF",
    "num": string.digits,
    "b32": "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
    "b64": _LETTERS + string.digits + "+/",
    "b64u": _LETTERS + string.digits,
    "url": _LETTERS + string.digits + "-_",
}
_WORDS = ["summer", "winter", "dragon", "monkey", "coffee", "purple", "garden", "silver", "hunter", "shadow", "castle"]
_SOURCES_WITH_CREDENTIALS = ("eyJhbGci", "app:s3cr3t@")
"""Parts of the lines of the corpus that hold a credential."""
HARMLESS_TEXTS = 1000


class Sample(NamedTuple):
    """A text with credentials."""

    kind: str
    text: str
    secrets: tuple[str, ...]
    held_out: bool


def credentials() -> list[Sample]:
    """Two hundred texts with credentials of many kinds."""
    samples, held_out = [], False
    for number, line in enumerate((_TEMPLATES / "credentials.txt").read_text().splitlines()):
        held_out = held_out or line == "# == held out"
        if line and not line.startswith("#"):
            kind, _, template = line.partition(" | ")
            marked = _filled(template, seeded("credential", number))
            secrets = tuple(re.findall("«(.*?)»", marked, re.DOTALL))
            samples.append(Sample(kind, marked.replace("«", "").replace("»", ""), secrets, held_out))
    return samples


def harmless() -> list[tuple[str, bool]]:
    """A thousand texts without credentials, and whether each is held out. Half of them look as if they had some, the
    others are lines of the corpus."""
    texts = []
    templates = [one for one in (_TEMPLATES / "harmless.txt").read_text().splitlines() if not one.startswith("#")]
    for number, template in enumerate(templates):
        texts += [(_filled(template, seeded("harmless", number, time)), number % 2 == 1) for time in range(2)]
    for path in sorted(CORPUS.glob("*.txt")):
        for line in path.read_text().splitlines():
            if len(line) >= 8 and not any(one in line for one in _SOURCES_WITH_CREDENTIALS):
                texts.append((line, len(texts) % 2 == 1))
    assert len(texts) >= HARMLESS_TEXTS
    return texts[:HARMLESS_TEXTS]


def _filled(template: str, chance: random.Random) -> str:
    def fill(slot: re.Match[str]) -> str:
        characters, count, name = slot.groups()
        if characters:
            return "".join(chance.choices(_CHARACTERS[characters], k=int(count)))
        return _NAMED[name](chance)

    return _SLOT.sub(fill, template.replace("\\\\", "\0").replace("\\n", "\n").replace("\\r", "\r").replace("\0", "\\"))


def _password(chance: random.Random, symbols: str = "!?#$%&*+-") -> str:
    first, second = chance.sample(_WORDS, 2)
    number = str(chance.randrange(1, 10_000))
    return chance.choice(
        [
            first + number,
            first.capitalize() + number + chance.choice(symbols),
            first[:3] + chance.choice(symbols) + second.upper()[:4] + number,
            "".join(chance.choices(_CHARACTERS["an"], k=11)) + number,
            f"{first}-{second}-{number}",
            first.replace("e", "3").replace("o", "0").replace("a", "4") + "_" + number,
        ]
    )


_NAMED = {
    "pw": _password,
    "pwurl": lambda chance: _password(chance, "!*-_"),
    "phrase": lambda chance: " ".join(chance.sample(_WORDS, 4)),
    "uuid": lambda chance: "{}{}-{}-4{}-8{}-{}{}{}".format(
        *("".join(chance.choices(_CHARACTERS["hex"], k=size)) for size in (4, 4, 4, 3, 3, 4, 4, 4))
    ),
}
