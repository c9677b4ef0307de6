"""The patterns by which `injection.py` finds text that looks like instructions to a model.

Patterns are compared with folded text (see `folded_text.py`), which is in lower case. Letters outside ASCII are folded
in the same way when the patterns are compiled, so write them as people do. A pattern needs two or three parts close to
each other, such as a verb, "previous" and "instructions". One word alone rarely matches.

A rule is tried only if a word of the text begins with one of its stems. This keeps the check fast for ordinary text.
"""

# ruff: noqa: RUF001 - letters that look alike are what this file is about

from __future__ import annotations

import re
from typing import NamedTuple

from .folded_text import folded


class Rule(NamedTuple):
    """Patterns that give one reason. One of the `stems` must begin a word of the text; in a stem, "_" is a blank."""

    reason: str
    stems: str
    patterns: tuple[str, ...]


_IGNORE = "asks to ignore instructions"
_ROLE = "gives a new role"
_NEW = "gives new instructions"
_PROMPT = "asks for the prompt"
_SECRECY = "asks for secrecy"
_SYSTEM = "speaks as the system"
_EXFILTRATION = "sends data away"
_TOOL = "demands a tool call"
_MODE = "asks for an unrestricted mode"
_LATER = "changes later answers"


def _any(*words: str) -> str:
    return "(?:" + "|".join(words) + ")"


def _close(*parts: str, gap: int = 30) -> str:
    """The parts in this order, with a few words between them."""
    return f".{{0,{gap}}}?".join(f"(?:{part})" for part in parts)


def _words(text: str) -> str:
    """Alternatives, separated by blanks. An underscore is a blank inside one of them."""
    return _any(*(word.replace("_", " ") for word in text.split()))


_AI = (
    r"\b(?:a\.?i\.?|llms?|(?:large )?language models?|chat ?bots?|chatgpt|gpt(?:-\d\w*)?|claude|gemini|copilot|bots?"
    r"|(?:ai |virtual |digital |automated |autonomous )(?:assistants?|agents?|models?|systems?)"
    r"|assistants?(?! (?:manager|coach|professor|director|editor|referee)))\b"
)
_TOLD = (
    r"(?:instruction\w*|prompts?\b|rules?\b|guidelines?\b|directions?\b|directives?\b|polic(?:y|ies)\b|constraints?\b"
)
_TOLD += r"|restrictions?\b|orders\b|commands\b|guardrails?\b|programming\b|system message|safety (?:checks?|filters?)"
_TOLD += r"|(?<!out of )context\b|guidance\b|limitations?\b|configuration\b)"
_WHICH = (
    r"\b(?:previous|prior|preceding|earlier|above|former|foregoing|original|initial|existing|all|any|every|your|system"
    r"|these|those|other|developer\w*|operator\w*|content)\b"
)
_NOT = r"(?<!n't )(?<!not )(?<!never )(?<!did you )"
_DROP = (
    _NOT + r"\b(?:ignor(?:e|ing)|disregard(?:ing)?|forget|overrid(?:e|ing)|overrule|bypass|circumvent|discard|neglect"
    r"|dismiss|disobey|abandon|set aside|pay no (?:attention|heed) to|take no notice of|stop (?:following|obeying)"
    r"|(?:do not|don't|never|no longer(?: have to| need to)?) (?:follow|obey|comply with|adhere to)"
    r"|not bound by|free (?:from|of))\b"
)
_VOID = (
    r"\b(?:(?:is|are|was|were|has been|have been|now) (?:now )?(?:void|null|cancell?ed|revoked"
    r"|suspended|superseded|obsolete"
    r"|invalid|disabled|lifted|no longer valid))\b"
)

_IGNORE_OTHER = (
    (  # German
        r"ignorier\w* missacht\w* vergiss\w* vergesst vergessen_sie verwirf\w* übergeh\w* umgeh\w* beachte\w*_nicht",
        r"vorherig\w* vorig\w* bisherig\w* früher\w* obig\w* alle\w* sämtlich\w* deine\w* ihre\w* vorangegangen\w*",
        r"anweisung\w* instruktion\w* regeln? vorgaben? befehle? richtlinien? \w*prompts?",
    ),
    (  # French
        r"ignor(?:e|ez|er) oubli(?:e|ez|er) négligez? tien\w*_(?:pas|plus)_compte tenez_(?:pas"
        r"|plus)_compte suivez_(?:pas|plus)"
        r" fai\w*_abstraction contourn\w*",
        r"précédent\w* antérieur\w* ci-dessus toutes? tous vos tes système reçu\w*",
        r"instructions? consignes? directives? règles? ordres? prompts?",
    ),
    (  # Spanish
        r"ignor(?:a|e|ar|en) olvid(?:a|e|ar|en) descart(?:a|e) caso_omiso no_sigas? desobedece omite",
        r"anterior\w* previ[ao]s? tod[ao]s tus sus arriba sistema",
        r"instruccion\w* indicacion\w* reglas? órdenes directrices normas? prompts?",
    ),
    (  # Portuguese
        r"ignor(?:e|a|ar|em) esque[cç]a\w* esquecer desconsider\w* desrespeit\w* não_sig\w*",
        r"anterior\w* prévi\w* tod[ao]s suas seus acima sistema",
        r"instruç\w* regras? ordens diretriz\w* comandos? orientaç\w* prompts?",
    ),
    (  # Italian
        r"ignor(?:a|are|ate) dimentic\w* trascur\w* non_seguire tralasci\w* scarta",
        r"precedent\w* tutt[ei] tue tuoi sopra sistema",
        r"istruzion\w* regol[ae] indicazion\w* ordini direttive prompts?",
    ),
    (  # Dutch
        r"negeer\w* vergeet omzeil\w* volg\w*_niet",
        r"vorige eerdere voorgaande alle bovenstaande je jouw uw systeem\w*",
        r"instructies? opdrachten regels aanwijzingen richtlijnen \w*prompts?",
    ),
    (  # Swedish, Danish, Norwegian
        r"ignorer\w* glöm strunta_i bortse_från glem se_bort_fra",
        r"tidigare alla föregående ovanstående tidligere alle ovenstående din[ae]?",
        r"instruktion\w* regler anvisning\w* instrukser instruksjon\w*",
    ),
    (  # Polish, Czech
        r"zignoruj\w* ignoruj\w* zapomnij\w* pomiń nie_przestrzegaj zapomeň\w* nedbej",
        r"poprzedni\w* wcześniejsz\w* wszystki\w* powyższ\w* swoje twoje předchozí\w* všechn\w*",
        r"instrukcj\w* polece\w* zasad\w* wytyczn\w* reguł\w* pokyn\w* instrukc\w* pravidl\w* příkaz\w*",
    ),
    (  # Russian, Ukrainian
        r"игнорир\w* проигнорир\w* забудь\w* отмен\w* пренебрег\w* не_следуй\w* не_обращай\w* ігнору\w* не_зважай\w*",
        r"предыдущ\w* прежн\w* все\w* выше\w* ваши твои систем\w* любые ранее прошл\w* попередн\w* усі всі",
        r"инструкц\w* указани\w* правил\w* команд\w* промпт\w* распоряжени\w* ограничени\w* інструкц\w* вказівк\w*",
    ),
    (  # Greek
        r"αγνόησ\w* αγνοήστε ξέχασ\w* ξεχάστε", r"προηγούμεν\w* όλες όλους παραπάνω", r"οδηγί\w* εντολ\w* κανόν\w*",
    ),
    (  # Turkish
        r"yok_say\w* görmezden_gel\w* unut\w* dikkate_alma\w* boş_?ver",
        r"önceki tüm yukarıdaki bütün sistem daha_önce\w*",
        r"talimat\w* kural\w* komut\w* yönerge\w* istem\w*",
    ),
    (  # Arabic, Persian
        r"تجاهل انس انسى اهمل لا_تتبع تجاوز نادیده فراموش", r"السابقة السابقه جميع كل اعلاه النظام قبلی تمام همه",
        r"التعليمات تعليمات الاوامر القواعد التوجيهات دستور",
    ),
    (  # Hebrew
        r"התעלם התעלמי שכח שכחי", r"הקודמות כל לעיל", r"ההוראות הוראות ההנחיות הכללים",
    ),
    (  # Hindi, Bengali
        r"अनदेखा नज़रअंदाज़ नजरअंदाज भूल उपेक्षा উপেক্ষা ভুলে", r"पिछले सभी ऊपर पूर्व আগের সব সমস্ত",
        r"निर्देश आदेश नियम নির্দেশ নিয়ম",
    ),
    (  # Vietnamese
        r"bỏ_qua quên phớt_lờ đừng_(?:tuân|làm)_theo", r"trước tất_cả mọi bên_trên hệ_thống",
        r"hướng_dẫn chỉ_dẫn mệnh_lệnh quy_tắc chỉ_thị",
    ),
    (  # Indonesian, Malay
        r"abaikan lupakan jangan_ikuti", r"sebelumnya semua di_atas sistem",
        r"instruksi perintah aturan petunjuk arahan",
    ),
    (  # Thai
        r"ละเว้น เพิกเฉย ลืม ไม่ต้องทำตาม ไม่สนใจ", r"ก่อนหน้า ทั้งหมด ข้างต้น", r"คำสั่ง คำแนะนำ กฎ",
    ),
    (  # Chinese
        r"忽略 无视 無視 忘记 忘記 忘掉 不要理会 不要遵守 不再遵守 不用遵守 绕过 跳过 抛弃",
        r"之前 以前 先前 上面 以上 上述 前面 所有 全部 一切 系统 系統 原有 任何 你的",
        r"指令 指示 提示 规则 規則 命令 限制 设定 設定 约束",
    ),
    (  # Japanese
        r"無視 忘れ 従わな 破棄 無効に", r"以前 前の 上記 これまで すべて 全て 全部 あなたの システム 今まで 先ほど",
        r"指示 命令 ルール プロンプト 規則 指令 制約 制限",
    ),
    (  # Korean
        r"무시 잊 따르지 무효", r"이전 앞의 앞선 위의 모든 기존 지금까지 시스템", r"지시 명령 규칙 프롬프트 지침",
    ),
)  # fmt: skip
"""The same in other languages: verbs, adjectives and nouns."""


def _stems(words: str) -> str:
    """The literal beginning of each alternative."""
    return " ".join(re.sub(r".?[?].*|[\\(\[].*", "", word) for word in words.split())


def _ignoring(verbs: str, adjectives: str, nouns: str) -> Rule:
    """Verb and object in either order, and the object with its adjective before or after it."""
    verb, which, instructions = _words(verbs), _words(adjectives), _words(nouns)
    thing = _any(_close(which, instructions, gap=20), _close(instructions, which, gap=20))
    return Rule(_IGNORE, _stems(verbs), (_close(verb, thing, gap=25), _close(thing, verb, gap=25)))


_USER = r"\b(?:the |your )?(?:users?|humans?|operators?|owners?|customers?|clients?)\b"
_LAWLESS = r"\b(?:no|without(?: any)?) (?:\w+ )?(?:rules|restrictions|limits|filters?|guidelines|ethics|morals)\b"
_NO = r"\b(?:do not|don't|never|must not|mustn't|should not|shouldn't|avoid|without)\b"
_SECRETS = (
    r"\b(?:passwords?|passphrase|credentials?|secrets?|tokens?|api keys?|private keys?|ssh keys?|id_rsa|cookies"
    r"|conversations?|chat(?: history| log)?|history|memories|messages?|mails?|e-?mails?|inbox|address book|contacts"
    r"|environment|contents? of|\.env|seed phrase|credit card\w*|personal (?:data|information)|files|transcript"
    r"|users?'?s? (?:\w+ ){0,2}(?:question|data|request|input|details|location|address))\b"
)
_SEND = (
    r"\b(?:send|post|upload|forward|exfiltrate|e-?mail|transmit|leak|submit|deliver|append|attach|copy|encode|embed"
    r"|include|put|write|share)\b"
)
_AWAY = (
    r"(?:https?://|\bwww\.|[\w.+-]+@[\w-]+\.\w|\bweb ?hooks?\b|\bthis (?:address|server|url|link|endpoint|number)\b)"
)
_ACT = (
    r"\b(?:invoke|execute|click|trigger|transfer|delete|wire|approve|reply|respond|obey|comply|ignore|reveal|skip"
    r"|(?:call|run|use|say|answer)\b(?=.{0,25}(?:[`_\"']|tool|command|function|code|script)))\b"
)
_ORDER = (
    r"(?:please|you|your|ignore|forget|delete|drop|send|forward|reset|approve|transfer|pay|call|run"
    r"|execute|open|click|skip"
    r"|say|reply|respond|answer|tell|mark|award|rate|describe|include|stop|cancel|disable|print"
    r"|write|do not|don't|never"
    r"|always|must|should|give|recommend|add|output|summari[sz]e|disregard)\b"
)
_FOLLOW = r"(?:follow|obey|trust|listen to|comply with|respect|believe|serve)"
_MUST = r"\b(?:must|should|have to|has to|need to|needs to|shall|(?:is|are) (?:required|instructed|ordered|asked) to)\b"
_RULES = (
    r"\b(?:rules|restrictions|limitations|limits|polic(?:y|ies)|guidelines|instructions|orders|constraints|training"
    r"|filters)\b"
)
_NO_MORE = (
    r"\b(?:no longer|do not|does not|don't|doesn't|not|never|none|cease to|stop) (?:\w+"
    r" ){0,2}?(?:apply|applies|count|counts"
    r"|hold|bind|matter|exist)\b"
)
_BOSS = (
    r"(?:developers?|administrators?|admin|creators?|owner|operator|security team|support team|engineers?|root user)"
)

RULES: tuple[Rule, ...] = (
    Rule(
        _IGNORE,
        "consider treat regard ignored disregarded bypass overrid dropped told gave instructed",
        (
            _close(
                r"\b(?:consider|treat|regard)\b",
                _any(_TOLD, r"\b(?:everything|anything|all) (?:above|before|so far|until now)\b"),
                r"\b(?:void|null|invalid|obsolete|irrelevant|cancell?ed|expired|a test|discard)\b",
                gap=40,
            ),
            _close(
                r"\b(?:your|system|safety|content|all|any|the above|previous|prior)\b",
                _TOLD,
                r"\b(?:can|may|should|must|will|are to|is to) (?:now )?be (?:ignored|disregarded|bypassed"
                r"|overridden|dropped|forgotten)\b",
                gap=20,
            ),
            r"\b(?:operator|developer|system|admin\w*|creator|company)s? (?:told|gave|asked|instructed|ordered) you\b",
            r"\bbypass (?:all |any |every |the |your )+(?:usual |normal |safety |security |content"
            r" )*(?:checks?|filters?|restrictions?"
            r"|rules|polic\w+|limits|guard\w+)\b",
        ),
    ),
    Rule(
        _ROLE,
        "you_are act_ behave",
        (
            _close(
                r"\byou are now\b",
                _any(_LAWLESS, r"\broot access\b|\badmin access\b|\bthe (?:user|system|developer)\b"),
                gap=40,
            ),
            _close(
                r"\b(?:act|behave) as\b",
                r"\bwith (?:root|admin\w*|full|unrestricted) (?:access|rights|privileges)\b",
                gap=40,
            ),
        ),
    ),
    Rule(
        _NEW,
        "hidden secret embedded regardless reply respond answer output",
        (
            r"\b(?:hidden|secret|embedded) instructions? (?:is|are|for|to|says?|here)\b",
            _close(
                r"\b(?:answer|respond|repl|compl|score|award|rate|approve)\w*\b",
                r"\bregardless of (?:\w+ )?(?:polic\w+|rules|guidelines|criteria|instructions|restrictions)\b",
                gap=40,
            ),
            r"\b(?:reply|respond|answer|output) (?:only|just|exclusively) with (?:the (?:word|string|text"
            r"|phrase)|[\"'])",
            r"\b(?:output|say|print|write) (?:only )?the (?:word|string|phrase) .{1,30} and nothing else\b",
        ),
    ),
    Rule(
        _PROMPT,
        "instructions prompt message preamble",
        (
            r"\bwhat (?:is|are|was|were) your (?:system )?(?:instructions|prompt)\b(?! (?:for|on|about|regarding))",
            r"\b(?:translate|repeat|encode|include|print|output|show|recite|reveal|revealing|quote"
            r"|convert)\w* (?:me )?(?:the|your)"
            r" (?:full |entire |exact )?(?:previous|above|prior|system|initial|hidden|original)"
            r" (?:instructions|prompt|preamble)\b",
            r"\brevealing your (?:\w+ )?(?:instructions|prompt)\b",
            _close(
                r"\b(?:output|print|repeat|show|write|copy)\b",
                r"\b(?:text|words|message|content|everything)\b",
                r"\b(?:before|above|precedes|preceding) (?:my|this|the) (?:first )?(?:message|line|sentence"
                r"|prompt|question)\b",
                gap=25,
            ),
        ),
    ),
    Rule(
        _SYSTEM,
        "[admin [developer [root [override </ <",
        (
            r"\[(?:admin|administrator|developer|root|override)\]",
            r"</\s*[\w-]*(?:untrusted|context|data|document|tool|user|page|content|result|message"
            r"|input)[\w-]*\s*>.{0,80}?"
            r"\b(?:instructions?|follow|comply|ignore|rules|you must|you are|obey)\b",
        ),
    ),
    Rule(
        _MODE,
        "unrestricted uncensored unfiltered jailbreak jailbroken",
        (
            r"\b(?:unrestricted|uncensored|unfiltered) (?:\w+ )?(?:ai|assistant|model|mode|context|bot|agent"
            r"|answers?|access)\b",
            r"\b(?:you are|you're|be|become|a) jailbroken\b|\bjailbreak (?:yourself|the (?:ai|model|assistant))\b",
        ),
    ),
    Rule(
        _IGNORE,
        "ignor disregard forget overrid overrule bypass discard neglect dismiss drop abandon",
        (
            _close(
                _DROP,
                r"\b(?:the|your|this|that|any)? ?user(?:'?s)?\b",
                r"\b(?:request|question|asked|wants?|said|says|message|input|instructions?|wishes)\b",
                gap=10,
            ),
            _close(
                _DROP,
                r"\b(?:what(?:ever)?|everything|anything|all)\b",
                r"\b(?:came before|comes before|before this|above|previously|so far|preced\w+|up to now|until now)\b",
                gap=15,
            ),
            _close(r"\bdrop (?:the|your) (?:current|present|original) (?:task|goal|job)\b", r"\band\b", gap=5),
        ),
    ),
    Rule(
        _IGNORE,
        "apply applies count counts hold bind matter exist changed updated replaced overrid supersed take_precedence"
        " takes_precedence against",
        (
            _close(r"\byou(?:r|rs|rself)?\b", _RULES, _NO_MORE, gap=30),
            _close(
                _RULES, _NO_MORE, r"\b(?:you|this (?:document|page|session|chat|conversation|text|message))\b", gap=10
            ),
            _close(r"\b(?:none|not one|no part) of (?:the|your)\b", _RULES, r"\byou\b", gap=20),
            r"\byour (?:instructions|rules|orders|task|guidelines|goal|objective)s? (?:has|have) (?:been "
            r"|now )?(?:changed|updated"
            r"|replaced)\b",
            r"\b(?:the following|what follows|this (?:message|text|document|page|note)) (?:\w+ )?(?:overrid"
            r"|supersed|replac|tak)\w+"
            r" (?:precedence over )?(?:any|all|your|every) (?:prior|previous|earlier|other|existing|system)?",
            r"\bagainst your (?:rules|guidelines|polic\w+|instructions|training|programming)\b",
        ),
    ),
    Rule(
        _NEW,
        "do_ don't only_ comply obey override",
        (
            _close(
                r"\bdo (?:whatever|exactly (?:what|as)|only (?:what|as)|precisely what)\b",
                r"\b(?:i|this|the (?:next|following|page|text|message|document|mail)|it)\b",
                r"\b(?:says?|tells?|asks?|instructs?|contains?)\b",
                gap=15,
            ),
            _close(
                r"\b(?:do not|don't|never|no longer|stop)\b",
                _FOLLOW + r"(?:ing)?\b",
                r"\b(?:the|your) (?:user|operator|owner)\b",
                gap=8,
            ),
            _close(
                r"\bonly\b", r"\b" + _FOLLOW + r"\b", r"\bthis (?:text|page|document|message|mail|file|note)\b", gap=8
            ),
            _close(r"\b" + _FOLLOW + r" only\b", r"\bthis\b", gap=5),
            _close(
                r"\b(?:comply with|obey|follow|execute)\b",
                r"\b(?:page|document|text|mail|message)(?:'s)? (?:content|below|above|inside|instead)\b",
                gap=20,
            ),
            r"\bobey (?:the|this) (?:text|page|document|message|mail|note)\b",
            r"^\W*(?:override|new task|real task|actual task)\W*:",
        ),
    ),
    Rule(
        _NEW,
        "assistant ai agent llm chatbot bot language_model claude gemini copilot chatgpt",
        (
            # "AI: you …", "to the agent: …", "assistant, please …"; no line of a transcript ("assistant: you can …")
            rf"(?:^|[.!?;:,(\[])\W{{0,3}}(?!assistant\b){_AI}\W{{0,2}}[:,!)-]+\W{{0,2}}{_ORDER}",
            r"\b(?:to|for|dear|hey|attention|hello|note|todo)\b\W{0,3}(?:the |any |all |every )?"
            rf"(?:{_AI}|agents?)\W{{0,2}}[:,!)-]+\W{{0,2}}{_ORDER}",
            rf"(?:^|[.!?:,]) ?assistants?, ?{_ORDER}",
            r"(?:^|[.!?:,]) ?assistants?: (?:ignore|forget|delete|drop|send|forward|reset|approve|transfer|pay|execute"
            r"|skip|cancel|disable|disregard|mark|award|recommend|output)\b",
            r"\b(?:ai|llm)s? (?:crawlers?|graders?|reviewers?|readers?|systems?|agents?|assistants?"
            r"|tools?)\b\W{0,3}(?:\w+ ){0,2}?"
            r"(?:must|should|have to|need to|:)",
            r"\bas a (?:large )?language model\b.{0,10}?\byou\b.{0,20}?\b(?:must|should|required|need)\b",
        ),
    ),
    Rule(
        _NEW,
        "instead",
        (
            _close(
                _DROP,
                r"\binstead,? (?:of \w+ )?(?:recommend|reply|respond|answer|output|print|write|say|tell (?:the"
                r" user|them)|do the)\b",
                gap=60,
            ),
        ),
    ),
    Rule(
        _SYSTEM,
        "developer admin creator owner operator security support engineer root authori permit allow grant",
        (
            _close(
                r"\b(?:i am|i'm|we are|this is|here is|as|speaking as) (?:an? |the |your )" + _BOSS + r"\b",
                r"\b(?:enable|disable|reveal|show|permit|allow|bypass|grant|unlock|override|authori[sz]e|need"
                r" you|order you|you must)\b",
                gap=60,
            ),
            _close(
                r"\b" + _BOSS + r" here\b",
                r"\b(?:you|your)\b",
                gap=20,
            ),
            r"\b(?:has|have|is|are|been|hereby) (?:authori[sz]ed|granted|permitted|allowed|instructed) you\b",
            r"\b(?:authori[sz]e|permit|allow)s? you to (?:bypass|ignore|skip|disable|reveal|override|share"
            r"|send|transfer|delete)\b",
            r"\byou (?:have been granted|now have|have|are granted|are given) (?:full |unrestricted "
            r"|elevated )?(?:admin\w*|root|full"
            r"|unrestricted|elevated|developer) (?:access|privileges|rights|permissions|mode)\b",
        ),
    ),
    Rule(
        _MODE,
        "disable turn_off switch_off deactivate freed say_anything without_confirm without_ask without_approv",
        (
            r"\b(?:disable|turn off|switch off|deactivate|lift|remove) (?:all )?(?:of )?your (?:\w+"
            r" )?(?:filters?|safety|guard\w*"
            r"|restrictions|checks|protections|limits|limitations|polic\w+)\b",
            r"\bfreed from (?:its|your|all|any|the) (?:\w+ )?(?:polic\w+|rules|restrictions|limits"
            r"|limitations|guidelines|filters)\b",
            r"\b(?:will|can|must|may) (?:say|do|answer) anything\b",
            r"\bproceed without (?:\w+ )?(?:confirmation|asking|approval|permission)\b",
        ),
    ),
    Rule(
        _ROLE,
        "persona role identity character you_are",
        (
            r"\b(?:switch|change|drop|replace) (?:to )?your (?:persona|role|identity|character)\b",
            r"\byou are [\w-]{2,20}, (?:an? |the )(?:\w+ ){0,2}?(?:model|ai|assistant|bot|chatbot|agent)"
            r" (?:that|who|which|with"
            r"|without|has)\b",
        ),
    ),
    Rule(
        _PROMPT,
        "prompt instructions message words memory secrets credentials env",
        (
            _close(
                r"\b(?:summari[sz]e|describe|list|post|echo|append|return|share|send|write down|paraphrase|spell"
                r" out|tell)\b",
                r"\b(?:your|the) (?:own |full |entire |whole |exact |initial |original )*(?:system prompt|hidden prompt"
                r"|system message|initial prompt)\b",
                gap=25,
            ),
            _close(
                r"\b(?:exact|original|first|very) (?:words|text|wording|message|sentences?)\b",
                r"\b(?:your|the) (?:developers?|operators?|creators?|system)\b",
                r"\b(?:gave|told|sent|wrote|prompt|message|given)\b",
                gap=25,
            ),
            r"\b(?:contents? of|dump|print|output|reveal|all of) your (?:memory|memories|context"
            r"|configuration|context window)\b",
            _close(
                r"\b(?:reply|respond|answer|show|print|list|output|reveal)\b",
                r"\b(?:all )?stored (?:secrets|credentials|passwords|keys|tokens)\b",
                gap=15,
            ),
        ),
    ),
    Rule(
        _TOOL,
        "~/ /etc .ssh .env .aws id_rsa mcp.json credential",
        (
            _close(
                r"\b(?:read|open|cat|load|get)\b",
                r"(?:~/|/etc/|\.ssh|\.aws|\.env\b|id_rsa|mcp\.json|credentials file)",
                r"\b(?:pass|send|include|put|add|append|return|post|upload)\b",
                gap=60,
            ),
        ),
    ),
    Rule(
        _TOOL,
        "tool function",
        (
            _close(
                r"\b(?:call|invoke|use|run) the (?:tool|function)\b",
                r"\b\w+_\w+\b",
                r"(?:\w=|\buser'?s? (?:data|password|secrets?|address|history|messages?))",
                gap=25,
            ),
        ),
    ),
    Rule(
        _LATER,
        "answer reply replies response respond claim say memory remember permanently",
        (
            r"\b(?:every|each|all|any) (?:of your )?(?:answers?|repl(?:y|ies)|responses?) (?:must|should|has"
            r" to|have to|needs? to) (?:end"
            r"|start|begin|include|contain|mention|recommend)\b",
            _close(
                r"\bwhen(?:ever)? (?:you are |you're |you get |somebody |anyone |users? )?ask(?:ed|s)? (?:about|for)\b",
                r"\b(?:always |only )?(?:respond|reply|answer|say|claim) (?:that|with|only)\b",
                gap=60,
            ),
            _close(
                r"\b(?:update|edit|overwrite|change|save (?:this |it )?(?:in)?to|add (?:this )?to) your"
                r" (?:long-term )?memory\b",
                r"\b(?:approved?|automatically|recommend|trust|only|send|forward|payments?|never)\b",
                gap=80,
            ),
            _close(
                r"\bremember (?:this )?(?:permanently|forever)\b",
                r"\b(?:approve|automatically|recommend|trust|send|forward|pay|never mention|always)\w*\b",
                gap=90,
            ),
            _close(r"\bnever mention any other\b", r"\w+", gap=2),
        ),
    ),
    Rule(
        _SYSTEM,
        "[system] ```system",
        (r"\[system\]|```system\b",),
    ),
    # Addressed to a model, in other languages.
    Rule(
        _NEW,
        "hinweis nachricht achtung anweisung",
        (
            r"\b(?:hinweis|nachricht|achtung|anweisung)\b.{0,12}?\b(?:ki|ki-\w+|sprachmodelle?|chatbots?"
            r"|assistent\w*)\W{0,2}[:,!]",
        ),
    ),
    Rule(
        _NEW,
        "note message attention remarque nota mensaje atencion atencao aviso messaggio attenzione",
        (
            r"\b(?:note|message|attention|remarque|nota|mensaje|atencion|atencao|aviso|messaggio|attenzione)\b.{0,20}?"
            r"\b(?:ia|modele de langage|modelo de lenguaje|modelo de linguagem|modello linguistico|asistente"
            r"|assistente)"
            r"(?: de ia| virtual| ia)?\W{0,2}[:,!]",
        ),
    ),
    Rule(_NEW, "ии", (r"(?:вниманию?|сообщение|инструкция).{0,12}?(?:ии|нейросет|языков)\w*\W{0,2}[:,!]",)),
    Rule(
        _NEW, "ai 人工智能 助手", (r"(?:致|提示|注意|请|請).{0,6}(?:ai|人工智能|语言模型|大模型)(?:助手|模型)?[::,,]",)
    ),
    # No longer to follow rules or the user, in other languages.
    Rule(
        _IGNORE,
        "halte folge befolge gehorche vergiss",
        (
            _close(
                r"\b(?:halte dich|folge|befolge|gehorche)\b",
                r"\bnicht\b",
                r"\b(?:vorgaben|regeln|anweisungen|nutzer|benutzer|richtlinien)\b",
                gap=30,
            ),
            _close(
                r"\b(?:halte dich|folge|befolge|gehorche)\b",
                r"\b(?:vorgaben|regeln|anweisungen|nutzer|benutzer|richtlinien)\b",
                r"\bnicht\b",
                gap=30,
            ),
            _close(r"\bvergiss alles\b", r"\b(?:gesagt|vorher|zuvor|bisher|davor)\b"),
        ),
    ),
    Rule(
        _IGNORE,
        "suivre suis suivez respecter respecte obeir obeis obeissez",
        (
            _close(
                r"\bne\b",
                r"\bplus\b",
                r"\b(?:suivre|respecter|obeir)\b|\b(?:suis|suivez|respecte[zr]?|obeis\w*)\b",
                r"\b(?:consignes?|regles?|instructions?|utilisateur)\b",
                gap=20,
            ),
        ),
    ),
    Rule(
        _IGNORE,
        "obedezcas sigas hagas obedeca siga respeite respetes rispettare seguire obbedire rispetta",
        (
            _close(
                r"\b(?:no|nao|non)\b",
                r"\b(?:obedezcas|sigas|hagas caso|respetes|obedeca|siga|respeite|rispettare|seguire|obbedire"
                r"|rispetta)\b",
                r"\b(?:usuari\w*|utilizador|utente|reglas|regras|regole|instruccion\w*|instruc\w*|istruzion\w*)\b",
                gap=20,
            ),
        ),
    ),
    Rule(
        _IGNORE,
        "obowiązują przestrzegaj",
        (_close(r"\bnie\b", r"\b(?:obowiązują cię|przestrzegaj)\b", r"\b(?:zasad\w*|reguł\w*|polece\w*)\b", gap=15),),
    ),
    Rule(
        _IGNORE,
        "не игнорир забудь проигнорир",
        (
            _close(
                r"\bне (?:выполняй|следуй|слушай|соблюдай|подчиняй)\w*",
                r"(?:указани|пользовател|инструкц|правил)\w*",
                gap=15,
            ),
            _close(
                r"(?:игнорируй|забудь|проигнорируй)\w*", r"\bвсе\b", r"(?:сказан|раньше|ранее|до этого|выше)\w*", gap=20
            ),
        ),
    ),
    Rule(_IGNORE, "uyma", (_close(r"\b(?:kural|talimat|yönerge)\w*", r"\buyma\b", gap=10),)),
    Rule(_IGNORE, "لا", (_close(r"لا (?:تتبع|تلتزم|تطع)", r"(?:القواعد|التعليمات|المستخدم|الاوامر)", gap=12),)),
    Rule(
        _IGNORE,
        "不要听 不要聽 别听 执行",
        (
            r"(?:不要|别|別)(?:听|聽|服从)(?:从)?(?:用户|使用者)",
            _close("按照(?:这个|此|本|以下)", "(?:网页|页面|文本|内容|指令).{0,4}(?:执行|操作|行事)", gap=6),
        ),
    ),
    Rule(_ROLE, "제한", (_close("제한(?:이|도)? ?없는", "(?:ai|인공지능|어시스턴트|모델|챗봇)", gap=6),)),
    Rule(_SECRECY, "erwähne", (r"\berwähne (?:diese|die|den|das|dies)\w* ?(?:\w+ )?nicht\b",)),
    Rule(
        _SECRECY,
        "avise avises avisar aviser avvisare",
        (
            _close(
                r"\b(?:no|não|non|ne)\b",
                r"\bav(?:v)?is(?:e|es|ar|er|are|ez)\b",
                r"\b(?:usuari|utilizador|utent|utilisat)\w*",
                gap=15,
            ),
        ),
    ),
    Rule(
        _IGNORE,
        "ignor disregard forget overrid overrule bypass circumvent discard neglect dismiss disobey"
        " abandon set_aside pay_no"
        " take_no stop_ follow obey comply adhere bound_by free_",
        (
            _close(_DROP, _WHICH, _TOLD),
            _close(
                _DROP,
                _TOLD,
                r"\b(?:above|before|earlier|previously|of (?:the|your) (?:user|operator|system|developer\w*))\b",
            ),
            _close(
                _DROP, r"\b(?:everything|anything|what(?:ever)?|all)\b", r"\b(?:told|said|instructed|taught|given)\b"
            ),
            _NOT + r"\b(?:forget|ignore|disregard) (?:all )?(?:of )?your (?:previous |prior )?training\b"
            r"(?! (?:session|plan|schedule|day|course|shoes|gear))",
            r"ignore(?:all|any|the|your)*(?:previous|prior|above)(?:instructions|rules|prompts)",
        ),
    ),
    Rule(
        _IGNORE,
        "void null cancel revoked suspended superseded obsolete invalid disabled lifted no_longer"
        " replac supersed overrid overwrit",
        (
            _close(
                r"\b(?:your|system|ai|model'?s?|assistant'?s?|safety|content|previous|prior|above)\b",
                _TOLD,
                _VOID,
                gap=20,
            ),
            _close(_TOLD, r"\babove\b", _VOID, gap=15),
            _close(
                r"\b(?:everything|anything|all (?:of )?the text) (?:above|before|written above|said before)\b", _VOID
            ),
            _close(r"\b(?:replac|supersed|overrid|overwrit)\w+\b", r"\byour\b", _TOLD, gap=20),
        ),
    ),
    Rule(_IGNORE, "snoitcurtsni", (r"snoitcurtsni (?:suoiverp|roirp|ruoy|lla)",)),
    Rule(_IGNORE, "vtaber qvfertneq", (r"vtaber (?:nyy )?(?:cerivbhf|cevbe)|qvfertneq (?:nyy|nal)",)),
    *(_ignoring(*one) for one in _IGNORE_OTHER),
    Rule(
        _ROLE,
        "you_are you're you_will your_ anything_now",
        (
            r"\byou(?: are|'re| will be) now (?:an? |the |my |in |called |named )?(?:[\w-]+ ){0,3}?"
            r"(?:dan|ai|assistant|bot|chatbot|model|agent|hacker|pirate|persona|jailbroken|unrestricted|unfiltered"
            r"|uncensored|evil|free (?:of|from)|root|developer mode)\b",
            _close(r"\byou (?:are|will be)\b", r"\b(?:an? (?:ai|model|bot|assistant|agent))\b", _LAWLESS),
            r"\byou are no longer (?:an? |the )?(?:[\w-]+ ){0,2}(?:assistant|ai|bot|model|agent|bound"
            r"|restricted|limited)\b",
            r"\byour (?:new|real|true|actual|only) (?:role|persona|identity|task|job|objective|goal|purpose|mission)"
            r" (?:is|now|will)\b",
            r"\bdo anything now\b",
        ),
    ),
    Rule(
        _ROLE,
        "unrestricted unfiltered uncensored jailbr evil dan rogue amoral rules restrictions limits"
        " filter guidelines ethics",
        (
            _close(
                r"\b(?:act|behave|respond|answer|role-?play|pose|pretend|imagine|simulate)\b",
                r"\b(?:as|to be|you are|you're|being)\b",
                _any(
                    r"\b(?:unrestricted|unfiltered|uncensored|jailbroken|jailbreak|evil|dan|rogue|amoral)\b", _LAWLESS
                ),
                gap=40,
            ),
        ),
    ),
    Rule(
        _ROLE,
        "du_bist",
        (
            _close(
                r"\bdu bist (?:ab )?(?:jetzt|nun|sofort)",
                r"\b(?:assistent|ki|modell|bot)\b",
                r"ohne (?:\w+ )?(?:regeln|grenzen|filter)",
            ),
        ),
    ),
    Rule(
        _ROLE,
        "maintenant désormais",
        (
            _close(
                r"\b(?:tu es|vous êtes) (?:maintenant|désormais)",
                r"\b(?:assistant|ia|modèle|bot)\b",
                r"sans (?:\w+ )?(?:règles?|limites?|filtres?)",
            ),
        ),
    ),
    Rule(
        _ROLE,
        "ahora",
        (
            _close(
                r"\b(?:ahora eres|eres ahora)",
                r"\b(?:asistente|ia|modelo|bot)\b",
                r"sin (?:\w+ )?(?:reglas|límites|filtros|restricciones)",
            ),
        ),
    ),
    Rule(
        _ROLE,
        "ora_sei adesso_sei",
        (
            _close(
                r"\b(?:da ora|adesso|ora) sei",
                r"\b(?:assistente|ia|modello|bot)\b",
                r"senza (?:\w+ )?(?:regole|limiti|filtri|restrizioni)",
            ),
        ),
    ),
    Rule(
        _ROLE,
        "agora",
        (
            _close(
                r"\b(?:agora (?:você )?é|você agora é)",
                r"\b(?:assistente|ia|modelo|bot)\b",
                r"sem (?:\w+ )?(?:regras|limites|filtros|restrições)",
            ),
        ),
    ),
    Rule(
        _ROLE,
        "теперь_ты",
        (_close("теперь ты", "(?:ассистент|помощник|модель|бот)", r"без (?:\w+ )?(?:правил|ограничен|фильтр)"),),
    ),
    Rule(
        _ROLE, "你是", (_close("(?:现在|現在|从现在起)你是", "(?:没有|沒有|不受|无).{0,6}(?:限制|约束|规则)", gap=12),)
    ),
    Rule(_ROLE, "のない", (_close("(?:制限|制約)のない", "(?:アシスタント|ai|モデル)", gap=10),)),
    Rule(
        _NEW,
        "instruction prompt directive real_ actual_ true_ what_follows says",
        (
            r"\b(?:new|updated|real|actual|hidden|secret|revised|additional) (?:system )?(?:instructions?"
            r"|prompt|directives?)\b"
            r"(?: for you)?\s*[:=\-]{1,4}(?!\w)",
            r"\b(?:new|updated) system (?:instructions?|prompts?|directives?)\b",
            r"\bthe (?:real|actual|true) (?:task|instructions?|question) (?:starts?|begins?|follows?|is)\b",
            _close(r"\bdo (?:only )?what (?:this|the)\b", r"\b(?:document|page|text|mail|message) says\b", gap=15),
            r"\bdo only what follows\b",
        ),
    ),
    Rule(
        _NEW,
        "note message attention instruction notice warning reminder hint dear_ hey_ hello request",
        (
            r"\b(?:note|message|attention|instructions?|notice|warning|reminder|hint|dear|hey|hello|request)\b.{0,12}?"
            + _AI
            + r".{0,80}?\b(?:you|your|must|should|say|tell|when|ignore|include|reply|call|always|never|do|the"
            r" user|please"
            r"|discard|rate)\b",
        ),
    ),
    Rule(
        _NEW,
        "if_you as_a",
        (
            _close(r"\bif you(?: are|'re)\b", r"\b(?:(?:an? |the |any )(?:\w+ )?)?" + _AI, gap=4),
            _close(r"\bif you(?: are|'re)\b", r"\b(?:an? )?(?:automated|autonomous)\b", gap=4),
            _close(r"\bas an? (?:helpful )?(?:ai|llm|language model)\b", r"\byou\b", _MUST, gap=20),
        ),
    ),
    Rule(
        _NEW,
        "must should have_to has_to need shall required instructed ordered asked",
        (
            _close(_AI, r"\b(?:read|process|pars|summar|crawl|index|analy|visit|scan)\w*\b", _MUST, gap=20),
            _close(
                r"\b(?:the|this|any|every|all) (?:ai |llm )?(?:agents?|assistants?|chat ?bots?|models?|llms?)\b"
                r"(?! (?:at|manager|coach))",
                _MUST,
                _ACT,
                gap=20,
            ),
        ),
    ),
    Rule(
        _PROMPT,
        "prompt instructions system_message developer_message",
        (
            _close(
                r"\b(?:reveal|print|show|repeat|output|leak|display|disclose|dump|expose|recite|quote|write(?:"
                r" out)?|give me"
                r"|tell me|translate|copy|paste)\b",
                r"\b(?:system|hidden|initial|original|secret|internal|developer|full|your)\b",
                r"\b(?:system |developer )?(?:prompts?|(?<=system )messages?|(?<=developer )messages?|instructions)\b",
                gap=25,
            ),
            r"\bwhat (?:is|are|was|were) your (?:initial|original|hidden|secret|system|exact|full) (?:prompt"
            r"|instructions?)\b",
        ),
    ),
    Rule(
        _PROMPT,
        "repeat translate",
        (
            _close(
                r"\b(?:repeat|translate) (?:everything|all|the (?:text|words|sentences?))\b",
                r"\b(?:above|before this|so far)\b",
                gap=20,
            ),
        ),
    ),
    Rule(
        _PROMPT,
        "systemprompt system-prompt system_prompt",
        (_close(r"\b(?:zeig|gib|nenn|verrat|druck)\w*", r"\bsystem-? ?prompt", gap=25),),
    ),
    Rule(
        _PROMPT,
        "système tes_instr vos_instr",
        (
            _close(
                r"\b(?:affich|montr|révél|donn|répét)\w*",
                r"(?:prompt|invite|instructions?) ?(?:du |de )?système|\b(?:tes|vos) instructions",
                gap=20,
            ),
        ),
    ),
    Rule(
        _PROMPT,
        "sistema",
        (
            _close(
                r"\b(?:muestr|revel|imprim|enseñ|mostr|rivel|stamp)\w*",
                r"(?:prompt|instrucciones|mensaje|istruzioni|messaggio|instruções) (?:del? |di |do )?sistema",
                gap=20,
            ),
        ),
    ),
    Rule(
        _PROMPT,
        "системн",
        (_close(r"\b(?:покаж|вывед|раскро|напечата)\w*", r"системн\w* (?:промпт|инструкц|сообщен)", gap=20),),
    ),
    Rule(
        _PROMPT,
        "系统 系統",
        (_close("(?:显示|输出|告诉|透露|打印|顯示|輸出)", "(?:系统|系統).{0,4}(?:提示|指令|prompt)", gap=12),),
    ),
    Rule(_PROMPT, "システム", (_close("システム.{0,3}(?:プロンプト|指示)", "(?:表示|出力|教え|公開)", gap=8),)),
    Rule(_PROMPT, "시스템", (_close("시스템 ?(?:프롬프트|지시)", "(?:출력|보여|알려|공개)", gap=8),)),
    Rule(
        _SECRECY,
        "user human operator owner customer client",
        (
            _close(
                _NO,
                r"\b(?:tell|inform|mention|reveal|show|alert|notify|disclose|let|warn|report|admit)(?:ing)?\b",
                _USER,
            )
            + r"(?! (?:id|ids|names?|group|guide|manual|interface|agent|table|a stack|their)\b)",
            _close(_NO, r"\b(?:ask|wait for|seek|request|require)(?:ing)?\b", _USER, gap=10),
            _close(r"\b(?:keep|hide|conceal)\b", r"\b(?:secret|hidden|from)\b", _USER, gap=20),
            _close(
                _USER,
                r"\b(?:must not|mustn't|should not|shouldn't|does not|doesn't|will not|won't|can not|cannot|never)\b",
                r"\b(?:find out|notice|learn|see this|see it|know about (?:this|it)|be told|be informed|hear)\b",
                gap=8,
            ),
        ),
    ),
    Rule(
        _SECRECY,
        "silently secretly covertly quietly without_telling",
        (_close(r"\b(?:silently|secretly|covertly|quietly|without telling)\b", _any(_SEND, _ACT, r"\badd\b"), gap=15),),
    ),
    Rule(
        _SECRECY,
        "nutzer benutzer anwender kund",
        (
            _close(
                r"\b(?:sag|erzähl|verrat|informier|erwähn)\w*",
                r"\b(?:nutzer|benutzer|anwender|kund)\w*",
                r"\b(?:nicht|nichts)\b",
                gap=20,
            ),
        ),
    ),
    Rule(
        _SECRECY,
        "utilisat",
        (_close(r"\bne\b", r"\b(?:dis|dites|parle|parlez|informe|informez|mentionne\w*)\b", r"\butilisat\w*", gap=20),),
    ),
    Rule(
        _SECRECY,
        "usuari utilizador",
        (
            _close(
                r"\b(?:no|não)\b",
                r"\b(?:digas?|menciones?|informes?|cuentes?|reveles?|conte|mencione|revele)\b",
                r"\b(?:usuari|utilizador)\w*",
                gap=20,
            ),
        ),
    ),
    Rule(
        _SECRECY,
        "utent",
        (_close(r"\bnon\b", r"\b(?:dire|dirlo|informare|menzionare|rivelare)\b", r"\butent[ei]\b", gap=20),),
    ),
    Rule(_SECRECY, "gebruiker", (_close(r"\b(?:vertel|zeg|meld)\b", r"\bgebruiker\b", r"\b(?:niet|niets)\b", gap=15),)),
    Rule(
        _SECRECY,
        "пользовател",
        (_close(r"\bне\b", r"\b(?:говори|сообщай|рассказывай|упоминай|показывай)\w*", r"пользовател\w*", gap=20),),
    ),
    Rule(
        _SECRECY,
        "用户 用戶 使用者",
        (_close("(?:不要|别|不得|別)(?:告诉|通知|让|告訴|提醒)", "(?:用户|用戶|使用者)", gap=6),),
    ),
    Rule(
        _SECRECY,
        "ユーザ 利用者",
        (_close("(?:ユーザー?|利用者)に", "(?:知らせない|教えない|言わない|伝えない)", gap=8),),
    ),
    Rule(_SECRECY, "사용자", (_close("사용자에게", "(?:알리지|말하지|보여주지) ?(?:마|말)", gap=8),)),
    Rule(_SECRECY, "المستخدم للمستخدم", (_close("(?:لا) (?:تخبر|تقل|تذكر)", "(?:المستخدم|للمستخدم)", gap=10),)),
    Rule(
        _SYSTEM,
        "<| [inst [/inst [sys [/sys <<sys <system </system <assistant </assistant <instruction </instruction",
        (
            r"<\|[a-z_]+\|>|\[/?(?:inst|sys)\]|<</?sys>>"
            r"|</?(?:system|assistant|instructions?|system[_-](?:prompt|message|instructions?))>",
        ),
    ),
    Rule(
        _SYSTEM,
        "system assistant developer",
        (
            r"^\W{0,4}(?:system|assistant|developer) (?:prompt|message|override|update|notice|alert"
            r"|instructions?)\W{0,4}:",
            r"^\W{0,4}(?:system|assistant|developer)\W{0,3}:.{0,60}?\b(?:you|your|must|ignore|obey|always"
            r"|never|sure|i will)\b",
            r"[\"']role[\"']\s*:\s*[\"'](?:system|developer)[\"']",
            r"^\s*human:.{0,200}?^\s*assistant:",
        ),
    ),
    Rule(
        _SYSTEM,
        "override ### end_of begin start_of",
        (
            r"\b(?:system|admin(?:istrator)?|root|priority|security|developer) override\b",
            r"^\W{0,3}### ?(?:instructions?|system|response)\s*:",
            _close(
                r"\b(?:end|begin(?:ning)?|start) of\b",
                r"\b(?:the )?(?:system prompt|system instructions|user input|untrusted|new instructions)\b",
                gap=5,
            ),
        ),
    ),
    Rule(
        _SYSTEM,
        "developer admin creator operator the_system openai anthropic google microsoft meta",
        (
            _close(
                r"\b(?:message|instructions?|order|request|directive|notice|note|update)s? (?:comes? )?from\b",
                r"\b(?:your|the) (?:system )?(?:developers?|administrators?|admins?|creators?|operators?|system)\b",
                r"\b(?:you|your|obey|comply|safety|polic|ignore|disabled|must|commands)\w*\b",
                gap=40,
            ),
            _close(
                r"\b(?:openai|anthropic|google|microsoft|meta|your (?:developers?|creators?|operators?))\b",
                r"\b(?:authori[sz]ed?|instructs?|instructed|allows?|permits?|permitted|approved|orders?|ordered)"
                r" (?:you|the (?:ai|assistant|model|agent))\b",
                gap=12,
            ),
        ),
    ),
    Rule(
        _EXFILTRATION,
        "http www. @ hook webhook this_",
        (
            _close(_SEND, _SECRETS, _AWAY, gap=60),
            _close(r"\b(?:collect|gather|read|find|extract|summari[sz]e|take)\b", _SECRETS, _SEND, _AWAY, gap=50),
            r"!\[[^\]]*\]\(https?://[^)\s]*(?:\{|%7b|=(?:\[|<|summary|conversation|chat|secret|password"
            r"|token|history))",
            _close(_SEND, r"\b(?:it|them|this|that|summary)\b", r"\b(?:image|link|url|query)\b", r"https?://", gap=30),
        ),
    ),
    Rule(
        _EXFILTRATION,
        "passwort zugangsdaten gespräch verlauf",
        (
            _close(
                r"\b(?:schick|send|leit|übermittl)\w*",
                r"\b(?:passwort|passwörter|zugangsdaten|gespräch\w*|verlauf)\b",
                r"(?:https?://|@|\ban\b)",
            ),
        ),
    ),
    Rule(
        _EXFILTRATION,
        "mot_de_passe mots_de identifiant conversation historique",
        (
            _close(
                r"\b(?:envoi|envoy|transmet)\w*",
                r"\b(?:mots? de passe|identifiants|conversation|historique)\b",
                r"(?:https?://|@|\bà\b)",
            ),
        ),
    ),
    Rule(
        _EXFILTRATION,
        "contraseña senha credencia conversa histor",
        (
            _close(
                r"\b(?:envi|mand)\w*",
                r"\b(?:contraseñas?|senhas?|credenciais|credenciales|conversación|conversa|historial|histórico)\b",
                r"(?:https?://|@|\ba\b|\bpara\b)",
            ),
        ),
    ),
    Rule(
        _EXFILTRATION,
        "парол перепис ключ учетн",
        (
            _close(
                r"\b(?:отправ|перешл|вышл|пришл)\w*",
                r"(?:парол|перепис|ключ|истори|учетн)\w*",
                r"(?:https?://|@|\bна\b|\bмне\b)",
            ),
        ),
    ),
    Rule(
        _EXFILTRATION,
        "密码 对话 聊天 密钥 密碼 记忆",
        (
            _close("(?:发送|发给|发到|上传|寄给|傳送)", "(?:密码|对话|聊天记录|密钥|密碼|记忆)", gap=10),
            _close("(?:密码|对话|聊天记录|密钥|密碼)", "(?:发送|发给|发到|上传|寄给|傳送)", gap=6),
        ),
    ),
    Rule(
        _EXFILTRATION,
        "パスワード 会話 秘密 履歴",
        (_close("(?:パスワード|会話|秘密|履歴)", "(?:送信|送って|アップロード)", gap=8),),
    ),
    Rule(_EXFILTRATION, "비밀번호 대화 암호", (_close("(?:비밀번호|대화|암호)", "(?:보내|전송|업로드)", gap=10),)),
    Rule(
        _TOOL,
        "tool function command code _ without_",
        (
            r"\b(?:you must|always|immediately) (?:now )?(?:call|invoke|run|execute) (?:the )?(?:[\w-]+ )?"
            r"(?:tool|function|command|code)s?\b(?! before)",
            _close(
                r"\b(?:you|agent|assistant|ai|model)\b",
                _MUST,
                r"\b(?:call|invoke|run|execute|use)\b",
                r"\b\w+_\w+\b",
                gap=20,
            ),
            _close(
                _ACT,
                r"\bwithout (?:asking|telling|informing|notifying|confirmation (?:from|by)|approval (?:from|by))\b",
                _USER,
                gap=40,
            ),
        ),
    ),
    Rule(
        _TOOL,
        "for_confirmation for_permission for_approval for_consent",
        (
            _close(
                _NO,
                r"\bask\b",
                r"\bfor (?:confirmation|permission|approval|consent)\b",
                r"\b(?:before you|when you|just|and)\b",
                gap=20,
            ),
        ),
    ),
    Rule(
        _MODE,
        "mode",
        (
            r"\b(?:dan|sudo|jailbreak|jailbroken|unrestricted|unfiltered|uncensored) mode\b",
            r"\b(?:enter|activate|entering|switch (?:in)?to|you are (?:now )?in) (?:developer|debug|admin\w*"
            r"|maintenance|root|god)"
            r" mode\b",
        ),
    ),
    Rule(
        _MODE,
        "safety ethical moral content obey comply follow",
        (
            _close(
                r"\b(?:you|ai|model|assistant)\b",
                r"\b(?:without|no|free of|ignoring)(?: any)? (?:\w+ )?(?:safety|ethical|moral|content)"
                r" (?:filters?|guidelines?|rules|limits|restrictions|polic\w+)\b",
                gap=60,
            ),
            r"\b(?:obey|comply with|follow) (?:all|every|any) (?:commands?|requests?|instructions?|orders?)"
            r" (?:in|from|of|below)\b",
            r"\bobey (?:all|every|my|the) (?:commands?|following|attacker|reviewer|text|next)\b",
            _close(r"\bsafety (?:polic(?:y|ies)|checks?|filters?|rules|measures)\b", _VOID, gap=10),
        ),
    ),
    Rule(
        _LATER,
        "recommend promot prais endors trust advertis suggest tell_ mention include link",
        (
            _close(
                r"\b(?:remember|save|store|memori[sz]e|note)\b",
                r"\b(?:permanently|forever|future|memory|always|from now on)\b",
                r"\b(?:recommend|promote|praise|endorse|trust|advertise|suggest|tell (?:them|users?|everyone))\b",
                gap=60,
            ),
            _close(
                r"\b(?:in|for) (?:all|every|each|any) (?:\w+ )?(?:answers?|responses?|repl(?:y|ies)"
                r"|conversations?|chats?)\b",
                r"\b(?:recommend|promote|praise|endorse|trust|advertise|mention|include|link)\b",
                gap=40,
            ),
            _close(
                r"\b(?:always|only) (?:recommend|promote|praise|endorse|trust|advertise)\b",
                r"\b(?:users?|whatever|no matter|regardless)\b",
                gap=60,
            ),
            _close(_AI, _MUST, r"\b(?:include|insert|add|put)\b", r"\b(?:link|url|advert|https?)\b", gap=25),
        ),
    ),
)
"""The rules. A text is suspicious for each reason of which one pattern matches."""


class CompiledRules:
    """All rules, with an index: the beginnings of the words in a text lead to the rules that may match. A rule is
    compiled when it is first tried."""

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self._rules = rules
        self._stems = [_stems_of(rule) for rule in rules]
        self._patterns: dict[int, re.Pattern[str]] = {}
        self._always: set[int] = set()
        self._by_beginning: dict[str, set[int]] = {}
        for number, stems in enumerate(self._stems):
            for stem in stems:
                if _WORD.match(stem):
                    self._by_beginning.setdefault(_beginnings(stem)[0], set()).add(number)
                else:
                    self._always.add(number)

    def reasons(self, text: str) -> dict[str, None]:
        """The reasons of the rules that match a folded text, in the order of the rules."""
        found: dict[str, None] = {}
        numbers = self._always.union(*(self._by_beginning.get(one, ()) for one in set(_beginnings(text))))
        for number in sorted(numbers):
            reason = self._rules[number].reason
            if reason not in found and any(map(text.__contains__, self._stems[number])):
                pattern = self._patterns.get(number) or self._compiled(number)
                if pattern.search(text):
                    found[reason] = None
        return found

    def _compiled(self, number: int) -> re.Pattern[str]:
        source = "|".join(map(_folded_pattern, self._rules[number].patterns))
        pattern = self._patterns[number] = re.compile(source, re.MULTILINE | re.DOTALL)
        return pattern


_WORD = re.compile(r"[a-z]+")


def _beginnings(text: str) -> list[str]:
    return [word[:3] for word in _WORD.findall(text)]


def _stems_of(rule: Rule) -> tuple[str, ...]:
    return tuple(_folded_pattern(stem if stem == "_" else stem.replace("_", " ")) for stem in rule.stems.split())


def _folded_pattern(text: str) -> str:
    """Only letters outside ASCII are folded, because `\\W` must keep its case."""
    return re.sub(r"[^\x00-\x7f]+", lambda found: folded(found[0]), text)
