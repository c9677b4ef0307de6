"""The table of relations that `entities` finds in plain English sentences.

A row has a relation, the forms of its verb for one person and for several people (or the speaker), and whether a name
or a phrase follows. Forms are regular expressions. They include the preposition before the object.
"""

from __future__ import annotations

from typing import NamedTuple


class Verb(NamedTuple):
    """The forms of a relation's verb. `one`: "lives in". `many`: "live in". `either`: "moved to"."""

    relation: str
    one: str = ""
    many: str = ""
    either: str = ""
    named: bool = True
    """Whether its object is a name."""


def _being(relation: str, words: str, *, named: bool = True) -> Verb:
    return Verb(relation, rf"is (?:{words})", rf"(?:are|am) (?:{words})", named=named)


VERBS = (
    Verb("lives in", "(?:lives|resides|is living) in", "(?:live|reside|(?:are|am) living) in"),
    Verb("lived in", either="(?:lived|used to live|resided) in"),
    Verb("moved to", either="(?:(?:has |have )?(?:moved|relocated|emigrated)) (?:back )?to"),
    Verb("works for", "(?:works|is working|is employed) (?:at|for|by)", "(?:work|(?:are|am) working) (?:at|for)"),
    Verb("worked for", either="(?:worked|used to work) (?:at|for)"),
    Verb("works as", "(?:works|is working) as", "(?:work|(?:are|am) working) as", named=False),
    Verb("works with", "(?:works|collaborates) with", "(?:work|collaborate) with"),
    Verb("reports to", "reports to", "report to"),
    Verb("manages", "(?:manages|supervises)", "(?:manage|supervise)"),
    Verb("founded", either="(?:has |have )?(?:co-?)?founded"),
    Verb("joined", either="(?:has |have )?joined"),
    Verb("left", either="(?:(?:has |have )?left|(?:quit|resigned from))"),
    Verb("studied at", "studies at", "study at", "(?:studied|went to school) at"),
    Verb("studies", "(?:studies|is studying)", "(?:study|(?:are|am) studying)", named=False),
    Verb("graduated from", either="(?:has |have )?graduated from"),
    Verb("teaches", "teaches", "teach", named=False),
    Verb("attends", "attends", "attend", "attended"),
    Verb("speaks", "speaks", "speak"),
    Verb("likes", "(?:likes|loves|enjoys|adores)", "(?:like|love|enjoy|adore)", named=False),
    Verb("dislikes", "(?:dislikes|hates|detests)", "(?:dislike|hate|detest)", named=False),
    Verb("prefers", "prefers", "prefer", named=False),
    Verb("owns", "owns", "own", named=False),
    Verb("drives", "drives", "drive", named=False),
    Verb("plays", "plays", "play", named=False),
    Verb("uses", "uses", "use", named=False),
    Verb("adopted", either="(?:has |have )?adopted", named=False),
    Verb("knows", "knows", "know"),
    Verb("met", either="(?:has |have )?met"),
    Verb("visited", either="(?:has |have )?(?:visited|travell?ed to|flew to)"),
    Verb("married to", "is married to", "(?:are|am) married to", "(?:got )?married(?: to)?"),
    Verb("engaged to", "is engaged to", "(?:are|am) engaged to", "got engaged to"),
    Verb("dates", "(?:is dating|dates)", "(?:are|am) dating"),
    Verb("wrote", either="(?:has written|have written|wrote)", named=False),
    Verb("born in", "was born in", "(?:were|was) born in"),
    Verb("depends on", "depends on", "depend on"),
    Verb("runs on", "runs on", "run on"),
    Verb("belongs to", "belongs to", "belong to"),
    _being("from", "(?:originally )?from"),
    _being("located in", "(?:located|based|situated|headquartered) in"),
    _being("part of", "(?:a )?part of"),
    _being("member of", "a member of|members of"),
    _being("allergic to", "(?:severely |highly )?allergic to", named=False),
    _being("interested in", "(?:very )?interested in", named=False),
    _being("afraid of", "(?:afraid|scared) of", named=False),
    _being("responsible for", "(?:responsible for|in charge of)", named=False),
)

_KIN = """
    sister brother mother father mom mum dad wife husband son daughter parent child cousin uncle aunt niece nephew
    grandmother grandfather grandson granddaughter friend boss manager colleague coworker co-worker neighbour neighbor
    roommate flatmate partner girlfriend boyfriend fiancé fiancée teacher doctor lawyer assistant coach mentor tutor
    student dog cat horse parrot rabbit hamster landlord client customer supervisor twin stepmother stepfather
"""
KIN = tuple(_KIN.split())
"""Relations to a person: "Ada is Bob's sister", "Bob's sister is Ada", "Bob's sister Ada"."""

_ROLES = """
    CEO CTO CFO COO founder co-founder president vice-president director head chair chairman chairwoman chairperson
    owner captain mayor author editor chancellor dean principal leader capital maintainer creator inventor
    coordinator secretary treasurer minister king queen
"""
ROLES = tuple(_ROLES.split())
"""Roles in a company, a place or a work: "Ada is the CEO of Acme"."""

DONE_BY = {"founded": "founded", "written": "wrote", "owned": "owns", "managed": "manages", "led": "leads"}
"""Passive forms ("Acme was founded by Ada"), and the relation of each."""
