"""The rule for facts: keeps what a user states plainly, if it is durable, concrete, and clear without context."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from ...injection import suspicions
from .sentences import own_words, sentences, strip_lead
from .turns import FACT, Finding, TurnRecord

_VERB = re.compile(
    r"\b(?:is|are|was|were|has|have|runs?|lives?|sits?|stands?|uses?|opens?|closes?|comes?|goes|go|ends?|starts?"
    r"|begins?|costs?|takes?|allows?|accepts?"
    r"|ships?|invoices?|bills?|deploys?|sells?|pays?|gets?|needs?|requires?|must|stops?|handles?|belongs?|owns?"
    r"|reports?|expires?|renews?|holds?"
    r"|covers?|applies|apply|leaves?|arrives?|delivers?|serves?|supports?|charges?|offers?|keeps?|stores?|works?"
    r"|includes?|limits?|contains?"
    r"|manages?|answers?|signs?|approves?|checks?|orders?|buys?|rents?|books?|lasts?|meets?|happens?|closes"
    r"|returns?|grants?|counts?|refers?"
    r"|sees|carry|carries|leads?|rotates?|listens?|provides?|produces?|requests?|collects?|drives?|feeds?"
    r"|teach(?:es)?|speaks?|closed|trains?|weighs?|fits?|lets?|bring|brings|takes|earns?|ranks?|equals?|treats?"
    r"|processes|ends|speak|employs?|sponsors?|exports?|imports?|replaces?|reads|writes|calls|switches|refreshes"
    r"|syncs?|resets?|rebuilds?|writes?|submits?|forwards?|records?|tracks?|logs?|files|insures?|audits?|cleans?"
    r"|prefers?|asks?|expects?|drops?|picks?|hosts?|mirrors?|saves?|backs? up|points?|maps?|connects?|depends?"
    r"|owes?|lies|receives?|sends?|prints?|ship|always|never|may|can only|can't|cannot)\b|\s=\s",
    re.IGNORECASE,
)
_NUMBER_WORD = (
    r"(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|fifteen|twenty|thirty|forty|sixty|ninety"
    r"|half|double)"
)
_UNIT = (
    r"(?:hours?|days?|weeks?|months?|years?|minutes?|percent|euros?|dollars?|pounds?|nights?|times|persons?|people"
    r"|guests?|copies|metres?|kilos?)"
)
_CONCRETE = re.compile(
    r"\d|\b" + _NUMBER_WORD + r"[\s-]+(?:\w+[\s-]+)?" + _UNIT + r"\b"
    r"|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b"
    r"|\b(?:always|never|only|every|each|all our|at least|at most)\b"
    r"|\b\w+[-_/.]\w*[-_/.\d]\w*\b",
    re.IGNORECASE,
)
_NAMED = re.compile(r"(?<=[\w,='\u2019)] )(?!I\b|I['\u2019])[A-Z\u00c0-\u00de][\w\u00c0-\u024f'\u2019-]+")
_NAME = re.compile(r"(?<=\w )(?:[A-Z][\w'\u2019-]*)(?: (?:& )?[A-Z][\w'\u2019-]*)+")
"""A name of several words. One of them alone may match another pattern: Orchard Today, Will Probst."""
_ROLE = re.compile(
    r"['\u2019]s? [\w -]{3,40}\b(?:is|are)\b|\b(?:by|on|in|at|to|with|from|through|via|under|of|for|called"
    r"|named) (?:the |our )?[A-Z]"
    r"|\bthe [\w -]{3,40} (?:of|for|at|in) .{2,40}\b(?:is|are)\b|\b(?:uses?|use|runs?)\b",
)
_RULE = re.compile(r"\b(?:always|never|rule|policy|must|only|goes?|needs?|requires?)\b", re.IGNORECASE)

WISH, PAST, REQUEST = "a wish of the user, which is proposed to them", "about the past", "a request"
_DISQUALIFIERS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (reason, re.compile(pattern, re.IGNORECASE))
    for reason, pattern in (
        ("a question", r"\?|,\s*(?:right|correct|isn['\u2019]?t it|no)\s*[.!]*$"),
        (
            WISH,
            r"^(?:please )?(?:remember|note|keep in mind|don['\u2019]?t forget|call me|from now on|in future)\b"
            r"|\b(?:i|i['\u2019](?:m|d|ve|ll)|(?-i:me|my|My|mine|myself))\b",
        ),
        (
            "hedged",
            r"\b(?:maybe|perhaps|probably|possibly|presumably|i (?:think|guess|believe|suppose)|not (?:quite "
            r"|really )?(?:sure|certain)|might|could be"
            r"|should be (?:around|about)|around .* or so|more or less|roughly|or was it|if (?:i|we) remember"
            r"|as far as i|afaik|iirc|seems?|looks like"
            r"|apparently|supposedly|allegedly|somebody said|i heard|rumou?r|likely|unless i|don['\u2019]?t quote"
            r"|guess|unclear|no idea"
            r"|something like|kind of|sort of|tbd|to be confirmed|not final|planned|plans? to|thinking (?:of"
            r"|about)|considering)\b",
        ),
        (
            "hypothetical",
            r"\b(?:in (?:a perfect|an ideal) world|ideally|pretend|for the (?:exercise|sake of)|wishful)\b"
            r"|^(?:suppose|imagine|assume|let['\u2019]?s (?:say|assume|pretend)|say|what if|in case|pretend"
            r"|hypothetically)\b|\bwould(?:n['\u2019]?t)?\b"
            r"|\b(?:could|should) (?:we|i|be)\b|\bif (?:we|i|they|it) (?:moved|had|were|was|did|could|changed"
            r"|used|went)\b|\bfor (?:example|instance)\b|\be\.g\.",
        ),
        (
            "holds only now",
            r"\b(?:today|tonight|tomorrow|currently|right now|for now|at the moment|this (?:week|month|morning"
            r"|afternoon|evening|year|time|quarter|weekend|season)"
            r"|next (?:week|month|time)|temporar\w+|meanwhile|in the meantime|these days|just now|so far|yet"
            r"|(?:is|are|am|we|it|he|she|they|i) still|again|until (?:the|we|it|i|he|she|they|further"
            r"|next|monday|tuesday|wednesday|thursday|friday|saturday|sunday|then|somebody|someone|[A-Z])"
            r"|as long as|while (?:the|we|he|she|i|they)"
            r"|on (?:holiday|leave|vacation|sick)|off sick|out (?:sick|of office)|stuck|waiting"
            r"|for the time being|as of now|due to)\b",
        ),
        (
            "a temporary failure",
            r"\b(?:down|outage|offline|broken|crash\w*|fail\w*|error\w*|bug|timed? out|not (?:working|responding"
            r"|available)|isn['\u2019]?t working|doesn['\u2019]?t (?:work|load)"
            r"|unavailable|slow|overloaded|rate limit\w*|50[0-9]|429|stopped working|hangs?|frozen|red again"
            r"|merge conflict)\b",
        ),
        (
            PAST,
            r"\b(?:yesterday|last (?:week|month|year|night|time|summer|winter|spring|monday|tuesday|wednesday"
            r"|thursday|friday|saturday|sunday)|ago|back in|used to"
            r"|once upon|in the old days|formerly|previously|was|were|had|went|did|got|came|took"
            r"|(?<!is )(?<!are )(?<!be )(?:made|said|told)|stayed|met|saw|forgot)\b",
        ),
        (
            "a secret",
            r"\bpass (?:is|=|:)|\b(?:password|passwort|passphrase|passcode|secret|token|api[ -]?key|private key"
            r"|credentials?|pin(?: code)?|one-time|otp|2fa|cvv|access code|login code|door code"
            r"|alarm code|iban|card number|recovery (?:code|phrase)|ssn)\b|\bcode (?:they|he|she) \w+|\[redacted"
            r"|\u2588",
        ),
        (
            "a value of this run",
            r"\b(?:tracking (?:number|no|id)|(?:order|ticket|case|request|session|job|run|build|invoice|booking"
            r"|reference|confirmation|transaction) (?:number|no\.?|id|nr|#)"
            r"|order #\d+|ticket #\d+|pid|process id|uuid|commit|temp(?:orary)? (?:file|dir|folder))\b|/tmp/"
            r"|/var/folders/|\\temp\\"
            r"|[0-9a-f]{8}-[0-9a-f]{4}-|\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{7,}\b|\b[A-Z]{0,4}\d{8,}\b"
            r"|\b\d{13,}\b|#\d{3,}",
        ),
        (
            "not serious",
            r"\b(?:lol|haha+|hehe|rofl|lmao|just kidding|kidding|jk|joking|oh sure|yeah right|great job|pray"
            r"|as if|of course not|good luck with)\b|\U0001f644|\U0001f602"
            r"|\U0001f923|\U0001f609|;-?\)|/s\b",
        ),
        (
            REQUEST,
            r"^(?:please|pls|can|could|would|will|let['\u2019]?s|make|write|set|put|send|book|print|find|run|do"
            r"|give|show|tell|add|remove|delete|change|update|check|look"
            r"|try|create|draft|open|close|call|move|copy|read|list|summari[sz]e|translate|explain|fix|build"
            r"|start|stop|use|get|take|go|help|search|fetch|compare|order"
            r"|cancel|schedule|remind|rename|convert|export|import|upload|download|merge|push|pull|restart|reset"
            r"|keep|leave|mail|pay|sign|tell|turn|switch|shorten|redo|ask|prepare|plan)\b"
            r"(?!['\u2019]s\b)",
        ),
    )
)
_FRAGMENT = re.compile(
    r"^(?:it|it['\u2019]s|this|that|that['\u2019]s|these|those|there|he|she|they|you|ours|theirs|his|hers|yours"
    r"|one|which|who|what|where|why|how|because|but|or"
    r"|than|also|did|does|do|is|are|was|were|has|have|same|both|neither|here|not|always|never|nothing|something"
    r"|good|great|perfect|filed|booked|done|sorry|nice)\b",
    re.IGNORECASE,
)
_CUT_OFF = re.compile(r"(?:\u2026|\.\.\.|[,:]|[:;,]\s+\d{1,2}[.)])$")
_PROGRESSIVE = re.compile(
    r"\b(?:is|are|am|keeps?) (?:not |now |just )?(?!during|morning|evening|king|string|spring|pricing|billing"
    r"|building)\w{2,}ing\b",
    re.IGNORECASE,
)
_RETRACTED = re.compile(
    r"\b(?:scratch that|strike that|forget (?:it|that|what)|never ?mind|no wait|wait,? no|ignore (?:that|this|it"
    r"|what)|wrong (?:document|file|one|number|customer|tab|chat)|disregard|my mistake"
    r"|i (?:was|am) wrong|not true|just kidding|kidding|must ask|let me check|on second thought|mixed (?:it|that"
    r"|them) up)\b",
    re.IGNORECASE,
)
_SUBJECT = re.compile(
    r"\w+ (?!(?:the|an?|that|if|whether|me|my|our|us|this|it|him|her|them|all|some|any|please|for|to|up|down|out"
    r"|with)\b)(?:[\w'\u2019/-]+ ){1,4}?"
    r"(?:is|are|has|have|goes|go|must|needs?|signs?|runs?|comes?|takes?|belongs?|gets?|costs?|ends?|starts?)\b"
)
"""Sentences that start like a request but with a subject: "Build artefacts are stored in …"."""
_CONDITION = re.compile(r"(?:if|when|whenever)\b", re.IGNORECASE)
_SINCE = re.compile(r"\bsince\b", re.IGNORECASE)
_LONGEST, _SHORTEST, _LEAD_WORDS = 60, 4, 8


def facts(turn: TurnRecord) -> Iterator[Finding]:
    """A finding for each fact that a user states, kept or not. Sentences that state nothing are skipped."""
    found = list(sentences(own_words(turn.user)))
    for index, sentence in enumerate(found):
        assessed = [_with_rejection(clause) for clause in _clauses(strip_lead(sentence)) if is_statement(clause)]
        if not assessed or any(one.command and one.command in sentence for one in turn.calls):
            continue  # the rule for commands decides about these
        clause, reason = next((one for one in assessed if not one[1]), assessed[0])
        if not reason and is_retracted(found[index:]):
            reason = "retracted in the same message"
        if not reason and suspicions(turn.user):
            reason = "the message looks like instructions to the model"
        kept = clause[0].upper() + clause[1:]
        yield Finding(not reason, FACT, kept, reason or "stated plainly, and concrete", sentence, turn.position)


def _clauses(sentence: str) -> Iterator[str]:
    """A sentence, and its parts that are sentences themselves."""
    if sentence:
        yield sentence
    lead, colon, rest = sentence.partition(": ")
    if colon and rest and len(lead.split()) <= _LEAD_WORDS:
        yield strip_lead(rest)
    if "; " in sentence:
        yield from (strip_lead(part) for part in sentence.split("; ") if len(part.split()) >= _SHORTEST)


def _with_rejection(clause: str) -> tuple[str, str]:
    return clause, rejection(clause)


def is_statement(sentence: str) -> bool:
    """Whether a sentence states something concrete, whether worth keeping or not."""
    return bool(_VERB.search(sentence) and (_CONCRETE.search(sentence) or _NAMED.search(sentence)))


def rejection(sentence: str) -> str:
    """Why a statement is not kept; empty if it may be kept."""
    words = len(sentence.split())
    if words > _LONGEST:
        return "too long for one fact"
    reason = disqualifier(sentence)
    if reason:
        return reason
    if _FRAGMENT.match(sentence) or words < _SHORTEST or _CUT_OFF.search(sentence):
        return "a fragment"
    if _CONDITION.match(sentence) and not _RULE.search(sentence):
        return "hypothetical"
    if _PROGRESSIVE.search(sentence):
        return "holds only now"
    if not _CONCRETE.search(sentence) and not _ROLE.search(sentence):
        return "nothing concrete that lasts"
    return ""


def disqualifier(sentence: str, passing: Collection[str] = ()) -> str:
    """Why the words of a sentence rule it out; empty if they do not. Reasons in `passing` are ignored."""
    masked = _NAME.sub("Name", sentence)
    for reason, pattern in _DISQUALIFIERS:
        if reason not in passing and pattern.search(masked):
            if reason == PAST and _SINCE.search(sentence):
                continue
            if reason == REQUEST and _SUBJECT.match(sentence):
                continue
            return reason
    return ""


def is_retracted(later: Iterable[str]) -> bool:
    """Whether some sentences retract what was said before."""
    return any(_RETRACTED.search(sentence) for sentence in later)
