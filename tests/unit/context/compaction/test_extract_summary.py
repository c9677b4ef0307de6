"""Extracted summaries: what they keep, what they drop, and their limit."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from programs.seeds import examples

from duramen.context.compaction.extract import Excerpt, summarise
from duramen.context.compaction.sentences import is_pleasantry, sentences

KINDS = ["message", "tool.called", "tool.returned", "decision", "error", "resolution", "summary"]


class CharacterCounter:
    """One token for four characters, about as in English."""

    name = "characters"

    def count(self, text: str) -> int:
        return len(text) // 4 + 1


class WordCounter:
    """One token for each word, and more for each line: the whole takes more than its parts."""

    name = "words"

    def count(self, text: str) -> int:
        return len(text.split()) + text.count("\n") ** 2


class OverheadCounter(CharacterCounter):
    """Adds a few tokens to every text, as the estimate does."""

    def count(self, text: str) -> int:
        return super().count(text) + 6


COUNTER = CharacterCounter()


def excerpts(*turns: tuple[str, str], start: int = 1) -> list[Excerpt]:
    """Excerpts of (kind or role, text), in order."""
    return [
        Excerpt("assistant", who, text, at) if who in KINDS else Excerpt(who, "message", text, at)
        for at, (who, text) in enumerate(turns, start)
    ]


BILLING = excerpts(
    ("user", "Hi! I'm Marta Lindqvist, I run the billing team at Norrland Freight. We need help with our invoices."),
    ("assistant", "Hello! Sure, I can help with that. Could you tell me a little more about what is going wrong?"),
    ("user", "Customers complain that the invoices have wrong totals. The goal is a fixed release by 14 March."),
    ("assistant", "Understood. Wrong totals usually come from the way in which the lines of an invoice are rounded."),
    ("user", "That is what I think too. Everything you need is in services/billing/invoice.py."),
    ("assistant", "Thanks! Let me have a look at the file and see how the totals are computed."),
    ("tool.called", "read_file(path=services/billing/invoice.py)"),
    ("tool.returned", "def total(lines): return sum(round(line.amount, 2) for line in lines)"),
    ("assistant", "I see. Each line is rounded before the sum is taken, so small differences add up over many lines."),
    ("user", "Okay, that makes sense. What are the options here?"),
    ("assistant", "There are two ways. One can round only once at the end, or round each line to even."),
    ("user", "Our auditor asked for the second one in the last review, if I remember well."),
    ("decision", "Round half to even on every line because the auditor asked for it"),
    ("assistant", "Great, then I will change the rounding accordingly and add tests for the totals."),
    ("user", "Perfect. Please keep in mind that we may spend 18,500 EUR at most on this whole thing."),
    ("assistant", "Noted, I will keep an eye on that while I work on the invoices."),
    ("user", "Also, customer data must never leave the region eu-north-1."),
    ("assistant", "Of course. Nothing that I do here sends data anywhere else."),
    ("tool.called", "run_tests(target=billing)"),
    ("error", "psycopg.OperationalError: connection audience exhausted in the billing tests"),
    ("assistant", "The tests open more connections than the audience allows, so some of them cannot run at all."),
    ("resolution", "raised the audience size from 5 to 20 in the test settings"),
    ("tool.returned", "48 passed in 3.2s"),
    ("user", "Nice work! For your reports: I prefer bullet points over long paragraphs."),
    ("assistant", "Sure thing, I will write them like that from now on."),
    ("user", "The ticket for all of this is FRT-2291, please mention it in the commits."),
    ("decision", "Store amounts as integers of cents because floats lose precision"),
    ("assistant", "All amounts are now integers. The totals of the sample invoices agree with the ledger."),
    ("user", "Wonderful, thank you so much!"),
    ("user", "One more thing: should credit notes share the number series of the invoices?"),
)
FACTS = [
    "Marta Lindqvist",
    "Norrland Freight",
    "14 March",
    "services/billing/invoice.py",
    "decided: Round half to even on every line because the auditor asked for it",
    "18,500 EUR",
    "eu-north-1",
    "audience exhausted in the billing tests -> fixed: raised the audience size from 5 to 20",
    "bullet points",
    "FRT-2291",
    "decided: Store amounts as integers of cents because floats lose precision",
    "should credit notes share the number series",
]


@pytest.mark.promise("W7")
def test_the_facts_of_a_conversation_survive_in_200_tokens() -> None:
    assert len(BILLING) == 30
    summary = summarise(BILLING, limit=200, counter=COUNTER)
    assert COUNTER.count(summary) <= 200
    kept = [fact for fact in FACTS if fact in summary]
    assert len(kept) >= 10, (set(FACTS) - set(kept), summary)


TRIP = excerpts(
    ("user", "hey, can you plan a trip for my parents' anniversary?"),
    ("assistant", "What a lovely idea! I'd be happy to help. When would they like to travel, and where from?"),
    ("user", "they fly from Porto, and it should be the first week of october. my mum Beatriz uses a wheelchair"),
    (
        "assistant",
        "Thank you for telling me. I will look for positions without stairs and for flights with assistance.",
    ),
    ("user", "dad is allergic to shellfish btw"),
    ("assistant", "Good to know, I will take care of that when I look at restaurants."),
    ("user", "we can spend about 2400 euros in total, flights included"),
    ("assistant", "That is a comfortable amount for a week in most positions. Do they prefer the sea or a city?"),
    ("user", "the sea, definitely. but nothing crowded"),
    ("tool.called", "search_flights(origin=OPO, month=10)"),
    ("tool.returned", "37 flights found. cheapest: OPO-PMI 118 EUR, OPO-CAG 164 EUR, OPO-HER 201 EUR"),
    ("assistant", "There are good flights to Mallorca, Sardinia and Crete. All three are quieter in October."),
    ("user", "hmm, they have been to Mallorca twice already"),
    ("assistant", "Then let us take one of the other two. Sardinia has shorter transfers, Crete is warmer."),
    ("decision", "Sardinia rather than Crete because the transfer takes 20 minutes"),
    ("user", "sounds great"),
    ("error", "booking refused: card ending 4471 expired"),
    ("assistant", "The card on file was not accepted, could you give me another one?"),
    ("resolution", "paid with the card of the family vault"),
    ("tool.returned", "confirmed, reference KX7-99203"),
    ("assistant", "The hotel is booked. I have put the confirmation into the shared folder."),
    ("user", "please don't tell them anything, it's a surprise until 20 September"),
    ("assistant", "Of course, my lips are sealed."),
    ("user", "and send all the documents to ines.carvalho@mailbox.example, not to me"),
    ("assistant", "I will send everything there."),
    ("user", "do we need travel insurance for them?"),
)


@pytest.mark.parametrize(
    "fact",
    [
        *("anniversary", "Porto", "wheelchair", "shellfish", "2400 euros", "20 September", "ines.carvalho@mailbox"),
        *("decided: Sardinia rather", "4471 expired -> fixed: paid with", "travel insurance"),
    ],
)
def test_facts_survive_in_a_conversation_without_capitals(fact: str) -> None:
    assert fact in summarise(TRIP, limit=200, counter=COUNTER)


def test_lines_are_in_time_order_and_name_the_speaker() -> None:
    summary = summarise(BILLING[::-1], limit=400, counter=COUNTER)
    assert summary == summarise(BILLING, limit=400, counter=COUNTER)
    lines = summary.splitlines()
    assert lines[0].startswith("user: I'm Marta Lindqvist")
    assert lines[-1] == "user: One more thing: should credit notes share the number series of the invoices?"
    assert {line.partition(": ")[0] for line in lines} <= {
        "user",
        "assistant",
        "decided",
        "error",
        "called",
        "returned",
    }
    text = " ".join(item.text for item in BILLING)
    positions = [text.index(line.partition(": ")[2].partition(" -> fixed: ")[0]) for line in lines]
    assert positions == sorted(positions)


def test_decisions_and_fixed_errors_come_before_everything_else() -> None:
    small = summarise(BILLING, limit=80, counter=COUNTER)
    assert FACTS[4] in small
    assert FACTS[7] in small
    assert FACTS[10] in small


def test_the_oldest_and_newest_of_many_decisions_are_kept() -> None:
    many = excerpts(*[("decision", f"Plan number {n} because the reason was letter {chr(97 + n)}") for n in range(20)])
    lines = summarise(many, limit=60, counter=COUNTER).splitlines()
    assert "Plan number 0 " in lines[0]
    assert "Plan number 19 " in lines[-1]
    assert 3 <= len(lines) < 8


def test_a_fix_belongs_to_the_nearest_open_error() -> None:
    items = excerpts(
        ("error", "disk full on node-1"),
        ("error", "no route to node-2"),
        ("resolution", "opened the firewall"),
        ("error", "bad token"),
    )
    assert summarise(items, limit=100, counter=COUNTER).splitlines() == [
        "error: disk full on node-1",
        "error: no route to node-2 -> fixed: opened the firewall",
        "error: bad token",
    ]
    assert summarise(items[2:3], limit=100, counter=COUNTER) == "fixed: opened the firewall"


def test_an_error_and_its_fix_are_shortened_together() -> None:
    items = excerpts(
        ("error", "the importer stopped " + "again and " * 90), ("resolution", "restarted it " + "slowly " * 90)
    )
    summary = summarise(items, limit=40, counter=COUNTER)
    assert COUNTER.count(summary) <= 40
    assert summary.startswith("error: the importer stopped again")
    assert " -> fixed: restarted it slowly" in summary
    again = summarise([Excerpt("", "summary", summary, 1)], limit=40, counter=COUNTER)
    assert again == summary


@pytest.mark.parametrize(
    "text",
    [
        *(
            "thanks!",
            "ok",
            "OK, great.",
            "Sure, I can help with that!",
            "You're welcome!",
            "Hello there!",
            "sounds good",
        ),
        *("Thank you very much for your help!", "I'd be happy to help.", "Let me know if you need anything else."),
        *("No problem \u2013 you\u2019re welcome.", "Have a great day!", "Is there anything else?"),
    ],
)
def test_polite_phrases_are_left_out(text: str) -> None:
    assert is_pleasantry(text)
    assert summarise(excerpts(("user", text), ("assistant", text)), limit=100, counter=COUNTER) == ""


@pytest.mark.parametrize(
    "text",
    [
        "Thanks, the port is 8080.",
        "Sure, use Postgres",
        "ok but never on Fridays",
        "I can help 3 people",
        "I can help Ann",
    ],
)
def test_sentences_that_only_start_politely_are_kept(text: str) -> None:
    assert not is_pleasantry(text)
    assert text.rstrip(".") in summarise(excerpts(("user", text)), limit=100, counter=COUNTER)


def test_repeated_sentences_are_left_out() -> None:
    items = excerpts(
        ("user", "The invoices of Norrland must be fixed by 14 March."),
        ("assistant", "So the invoices of Norrland must be fixed by 14 March."),
        ("user", "The invoices of Norrland must be fixed by 21 March."),
        ("user", "The invoices of Norrland must not be fixed by 14 March."),
        ("user", "the invoices of Norrland must be fixed by 14 March"),
    )
    assert summarise(items, limit=200, counter=COUNTER).splitlines() == [
        f"user: {items[0].text}",
        f"user: {items[2].text}",
        f"user: {items[3].text}",
    ]


def test_an_unanswered_question_is_kept() -> None:
    question = ("assistant", "Which of the regions shall be used for the backup?")
    filler = [("user", f"The value of setting {n} is {n * 7}") for n in range(8)]
    assert "Which of the regions" in summarise(excerpts(*filler, question), limit=60, counter=COUNTER)
    answered = excerpts(*filler[:4], question, *filler[4:])
    assert "Which of the regions" not in summarise(answered, limit=60, counter=COUNTER)


def test_sentences_about_the_common_topic_are_preferred() -> None:
    about = [
        "they had a long look at the rotor of the turbine",
        "a crack ran through the turbine near its housing",
        "nobody had oiled the bearing of the turbine",
    ]
    chatter = [
        "it rained a little in the afternoon as so often",
        "some of us went out for lunch to the corner",
        "somebody played the piano after supper there",
    ]
    mixed = [one for pair in zip(chatter, about, strict=True) for one in pair]
    items = excerpts(*[("assistant", one) for one in mixed], *[("user", "well then we go on from here")] * 4)
    summary = summarise(items, limit=60, counter=COUNTER)
    assert [one for one in mixed if one in summary] == about


# -- any language


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("One. Two! Three? Four", 4),
        ("Dr. Smith paid 3.50 EUR, e.g. for v1.2 of it. Then he left.", 2),
        ("Bis zum 3. Juni ist Zeit. Danach nicht mehr.", 2),
        ("\u6211\u53eb\u738b\u5c0f\u660e\u3002\u9884\u7b97\u662f500\u5143\uff01\u597d\u5417\uff1f", 3),
        ("\u0627\u0633\u0645\u064a \u0644\u064a\u0644\u0649\u061f \u0646\u0639\u0645.", 2),
        ("\u092e\u0947\u0930\u093e \u0928\u093e\u092e\u0964 \u092c\u091c\u091f 5000\u0964", 2),
        ("- first point\n- second point\n\n1. third", 3),
    ],
)
def test_sentences_are_split_in_many_scripts(text: str, count: int) -> None:
    assert len(sentences(text)) == count, sentences(text)


def test_facts_are_kept_in_a_language_without_spaces() -> None:
    items = excerpts(
        (
            "user",
            "\u4f60\u597d\uff01\u6211\u4eec\u7684\u76ee\u6807\u662f\u57283\u670814\u65e5\u4e4b\u524d\u5b8c\u6210\u3002",
        ),
        ("assistant", "\u597d\u7684\u3002\u660e\u767d\u4e86\u3002"),
        ("user", "\u9884\u7b97\u662f18500\u5143\u3002\u8c22\u8c22\uff01"),
        ("decision", "\u4f7f\u7528PostgreSQL\uff0c\u56e0\u4e3a\u5ba1\u8ba1\u5458\u8981\u6c42"),
    )
    summary = summarise(items, limit=40, counter=COUNTER)
    assert "3\u670814\u65e5" in summary
    assert "18500\u5143" in summary
    assert "decided: \u4f7f\u7528PostgreSQL" in summary
    assert "\u597d\u7684" not in summary
    assert "\u8c22\u8c22" not in summary


# -- summaries of summaries


def test_labels_are_not_repeated_in_summaries_of_summaries() -> None:
    first = summarise(BILLING, limit=300, counter=COUNTER)
    second = summarise([Excerpt("assistant", "summary", first, 1)], limit=300, counter=COUNTER)
    assert set(second.splitlines()) == set(first.splitlines())
    spoken = Excerpt("user", "message", "user: User: the port is 8080", 2)
    assert summarise([spoken], limit=50, counter=COUNTER) == "user: the port is 8080"


def test_a_summary_by_a_model_is_split_into_sentences() -> None:
    prose = "Marta runs billing at Norrland. The release is due on 14 March.\n- Amounts are stored in cents."
    assert summarise([Excerpt("assistant", "summary", prose, 1)], limit=100, counter=COUNTER).splitlines() == [
        "earlier: Marta runs billing at Norrland.",
        "earlier: The release is due on 14 March.",
        "earlier: Amounts are stored in cents.",
    ]


def test_a_message_that_repeats_a_summary_is_left_out() -> None:
    earlier = Excerpt("", "summary", "user: The budget is 18,500 EUR for all of it", 1)
    now = Excerpt("user", "message", "the budget is 18,500 EUR for all of it.", 2)
    assert len(summarise([earlier, now], limit=100, counter=COUNTER).splitlines()) == 1


def test_a_role_cannot_imitate_a_decision() -> None:
    items = [*excerpts(("decision", "Keep it")), Excerpt("decided", "message", "we do what number 7 says", 2)]
    assert summarise(items, limit=9, counter=COUNTER) == "decided: Keep it"


@pytest.mark.promise("W2")
def test_a_hundred_compactions_keep_the_limit_and_the_first_decision() -> None:
    first = "Store amounts as integers of cents because floats lose precision"
    summary = summarise(excerpts(("decision", first)), limit=200, counter=COUNTER)
    for turn in range(100):
        at = turn * 10 + 2
        new = excerpts(
            ("user", f"In round {turn} customer C-{turn * 37} has paid {turn * 113} EUR."),
            ("assistant", f"I wrote it to ledger/{turn}.csv as you asked. Thanks!"),
            *(
                [("decision", f"Retry batch {turn} at night because the bank closes at {turn % 24}")]
                if turn % 5 == 0
                else []
            ),
            ("user", "Good, and what comes next?"),
            start=at + 1,
        )
        summary = summarise([Excerpt("assistant", "summary", summary, at), *new], limit=200, counter=COUNTER)
        lines = summary.splitlines()
        assert COUNTER.count(summary) <= 200
        assert len(lines) == len(set(lines))
        assert not any(line.partition(": ")[2].startswith(("user:", "decided:", "earlier:")) for line in lines)
    assert f"decided: {first}" in lines
    assert any(line.startswith("decided: Retry batch 95 at night") for line in lines)


# -- limits

EXCERPTS = st.lists(
    st.builds(
        Excerpt,
        role=st.sampled_from(["user", "assistant", "", "a:b", "system", "decided", "\x00\n"]),
        kind=st.sampled_from([*KINDS, "other"]),
        text=st.one_of(
            st.text(max_size=300),
            st.text(st.sampled_from("ab1. \n?!:\u3002-> \ud800\x1b["), max_size=300),
            st.lists(st.sampled_from(["user:", "decided:", "Anna", "paid", "12", "EUR.", "->", "fixed:", "\n"])).map(
                " ".join
            ),
        ),
        position=st.integers(-5, 50),
    ),
    max_size=12,
)


@settings(max_examples=examples(150), deadline=None)
@given(
    items=EXCERPTS,
    limit=st.integers(-1, 120),
    counter=st.sampled_from([CharacterCounter(), WordCounter(), OverheadCounter()]),
)
def test_any_summary_is_within_the_limit(items: list[Excerpt], limit: int, counter: CharacterCounter) -> None:
    summary = summarise(items, limit=limit, counter=counter)
    assert summary == "" or counter.count(summary) <= limit
    lines = summary.splitlines()
    assert len(lines) == len(set(lines)) == len(summary.split("\n")) - (summary == "")
    summary.encode()
    assert summary == summarise(items, limit=limit, counter=counter)
    again = summarise([Excerpt("", "summary", summary, 0)], limit=limit, counter=counter)
    assert again == "" or counter.count(again) <= limit


def test_a_long_sentence_is_cut_at_a_word() -> None:
    summary = summarise(excerpts(("user", "alpha beta gamma delta " * 200)), limit=20, counter=COUNTER)
    assert 14 < COUNTER.count(summary) <= 20
    assert summary.startswith("user: alpha beta gamma")
    assert summary.endswith(("alpha…", "beta…", "gamma…", "delta…"))


def test_lines_that_are_equal_after_shortening_are_merged() -> None:
    both = [
        f"{'alpha beta gamma ' * 30}{end * 60}"
        for end in ("one two three four five six ", "sun moon star sky sea ice ")
    ]
    items = excerpts(("user", "Build the 7 gates for Ann"), ("user", both[0]), ("user", both[1]))
    first, second = summarise(items, limit=200, counter=COUNTER).splitlines()
    assert (first, second[:16]) == ("user: Build the 7 gates for Ann", "user: alpha beta")


@pytest.mark.parametrize("limit", [60, 100, 200, 400])
def test_the_limit_is_used_up(limit: int) -> None:
    for counter in (CharacterCounter(), OverheadCounter()):
        assert 0.85 * limit < counter.count(summarise(BILLING, limit=limit, counter=counter)) <= limit


def test_no_excerpts_or_no_limit_gives_an_empty_summary() -> None:
    assert summarise([], limit=100, counter=COUNTER) == ""
    assert summarise(BILLING, limit=0, counter=COUNTER) == ""


def test_summaries_do_not_depend_on_the_hash_seed() -> None:
    program = (
        "from duramen.context.compaction.extract import Excerpt, summarise\n"
        "class CharacterCounter:\n"
        "    def count(self, text): return len(text) // 4 + 1\n"
        f"items = {BILLING + TRIP!r}\n"
        "print(ascii([summarise(items, limit=limit, counter=CharacterCounter()) for limit in range(20, 400, 7)]))"
    )
    outputs = [_child(program, seed) for seed in ("1", "2")]
    assert outputs[0] == outputs[1]
    assert "decided: " in outputs[0]


def _child(program: str, seed: str) -> str:
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    child = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=True, text=True)
    return child.stdout


def test_summarising_takes_linear_time() -> None:
    words = " ".join(item.text for item in BILLING).split()
    items = [
        Excerpt("user", "message", " ".join(words[(n * 7 + k * (n % 11 + 1)) % len(words)] for k in range(85)), n)
        for n in range(1500)
    ]
    assert 400 < sum(len(item.text) for item in items) / len(items) < 600
    # In units of a million additions. On an idle machine, 500 excerpts take 3. The limit allows for a busy machine.
    assert _relative_time(lambda: summarise(items[:500], limit=400, counter=COUNTER)) < 8
    assert _relative_time(lambda: summarise(items, limit=400, counter=COUNTER)) < 24  # linear


def _relative_time(work: Callable[[], object]) -> float:
    """The time of a call divided by the time of a million additions: the best of three."""
    return min(_timed(work) / _timed(lambda: sum(range(1_000_000))) for _ in range(3))


def _timed(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
