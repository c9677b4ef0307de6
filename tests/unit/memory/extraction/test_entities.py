"""Relations in English text: statements are extracted; denials, questions and guesses are not."""

from __future__ import annotations

import datetime as dt
import time

import pytest

from duramen.memory.extraction.entities import entities, links
from duramen.memory.extraction.relations import VERBS

ON = dt.date(2024, 5, 10)

STATED = {
    "Alice lives in Paris.": ["Alice|lives in|Paris"],
    "Alice is currently living in New York": ["Alice|lives in|New York"],
    "Alice used to live in Rome.": ["Alice|lived in|Rome"],
    "Bob's friend Alice moved to Lisbon last May.": ["Alice|moved to|Lisbon", "Alice|friend of|Bob"],
    "Maria Lopez works at Acme Corp.": ["Maria Lopez|works for|Acme Corp"],
    "Alice worked for Initech before 2019.": ["Alice|worked for|Initech"],
    "Alice works as a carpenter.": ["Alice|works as|carpenter"],
    "Alice works with Bob.": ["Alice|works with|Bob"],
    "Alice reports to Carol.": ["Alice|reports to|Carol"],
    "Alice manages Bob and Carol.": ["Alice|manages|Bob", "Alice|manages|Carol"],
    "Alice founded Acme in 1999.": ["Alice|founded|Acme"],
    "Acme was founded by Alice.": ["Alice|founded|Acme"],
    "Yesterday Alice joined Acme.": ["Alice|joined|Acme"],
    "Alice left Acme.": ["Alice|left|Acme"],
    "Alice studies marine biology.": ["Alice|studies|marine biology"],
    "Alice studied at Stanford.": ["Alice|studied at|Stanford"],
    "Alice graduated from Oxford.": ["Alice|graduated from|Oxford"],
    "Alice teaches piano.": ["Alice|teaches|piano"],
    "Emily speaks French and German.": ["Emily|speaks|French", "Emily|speaks|German"],
    "Alice loves hiking in the mountains.": ["Alice|likes|hiking in the mountains"],
    "Alice hates long meetings, sadly.": ["Alice|dislikes|long meetings"],
    "Alice prefers tea to coffee.": ["Alice|prefers|tea"],
    "Ada prefers aisle seats on long flights": ["Ada|prefers|aisle seats on long flights"],
    "Alice owns a red bicycle.": ["Alice|owns|red bicycle"],
    "Alice drives a Volvo.": ["Alice|drives|Volvo"],
    "Alice\u2019s brother Tom plays the guitar.": ["Tom|plays|guitar", "Tom|brother of|Alice"],
    "Alice uses Emacs.": ["Alice|uses|Emacs"],
    "Alice knows Bob.": ["Alice|knows|Bob"],
    "On Monday Alice met Bob.": ["Alice|met|Bob"],
    "Alice visited Kyoto.": ["Alice|visited|Kyoto"],
    "Alice is married to Bob.": ["Alice|married to|Bob"],
    "Alice got engaged to Bob last week.": ["Alice|engaged to|Bob"],
    "Alice is dating Bob.": ["Alice|dates|Bob"],
    "Alice wrote a novel about bees.": ["Alice|wrote|novel about bees"],
    "Alice was born in Vienna.": ["Alice|born in|Vienna"],
    "The Billing Service depends on Postgres.": ["Billing Service|depends on|Postgres"],
    "Billing runs on Kubernetes.": ["Billing|runs on|Kubernetes"],
    "The boat belongs to Carol.": [],
    "Rex belongs to Carol.": ["Rex|belongs to|Carol"],
    "Alice is from Brazil.": ["Alice|from|Brazil"],
    "Acme is based in Berlin.": ["Acme|located in|Berlin"],
    "Alice is a member of Greenpeace.": ["Alice|member of|Greenpeace"],
    "Alice is allergic to peanuts, and Bob is afraid of dogs.": ["Alice|allergic to|peanuts", "Bob|afraid of|dogs"],
    "Alice is interested in chess.": ["Alice|interested in|chess"],
    "Alice is responsible for the payroll.": ["Alice|responsible for|payroll"],
    "Alice is Bob's older sister.": ["Alice|sister of|Bob"],
    "Bob's wife is Carol.": ["Carol|wife of|Bob"],
    "Alice is a friend of Bob.": ["Alice|friend of|Bob"],
    "Alice is the CEO of Acme.": ["Alice|CEO of|Acme"],
    "Alice has a dog named Rex.": ["Rex|dog of|Alice"],
    "Alice is a nurse at the hospital.": ["Alice|is a|nurse at the hospital"],
    "Dr. Smith works at General Hospital.": ["Smith|works for|General Hospital"],
    "Alice, Bob and Carol work for Acme.": ["Alice|works for|Acme", "Bob|works for|Acme", "Carol|works for|Acme"],
    "Alice lives in Paris and works at Acme.": ["Alice|lives in|Paris", "Alice|works for|Acme"],
    "Alice lives in Paris and Bob lives in Rome.": ["Alice|lives in|Paris", "Bob|lives in|Rome"],
    "Alice does not like tea, but Bob likes tea.": ["Bob|likes|tea"],
    "In Paris, Alice works at Acme.": ["Alice|works for|Acme"],
    "In 2020 Alice moved to Berlin.": ["Alice|moved to|Berlin"],
    "I heard that Alice lives in Paris.": ["Alice|lives in|Paris"],
}

NOTHING_STATED = """
Alice does not live in Paris.
Alice doesn't work at Acme.
Alice never lived in Paris.
Alice no longer lives in Paris.
Alice lives in Paris no more.
Alice does not work for Acme any more.
Alice isn't Bob's sister.
Alice is not a nurse.
Alice is not married to Bob.
Alice hardly knows Bob.
Neither Alice nor Bob lives in Paris.
Nobody lives in Paris.
Everyone likes Alice.
It is not true that Alice lives in Paris.
I don't think Alice lives in Paris.
I doubt that Alice lives in Paris.
I think Alice lives in Paris.
Maybe Alice lives in Paris.
Perhaps Alice works for Acme.
Supposedly Alice works for Acme.
If Alice lives in Paris, she is lucky.
I wonder whether Alice lives in Paris.
Alice would like tea.
Alice might work for Acme.
Alice wants to move to Berlin.
Alice will move to Berlin.
Does Alice live in Paris?
Alice lives in Paris?
Who knows Alice?
The sister of Alice lives in Paris.
The sister of Alice and Bob works at Acme.
The man from Berlin works at Acme.
Everyone who knows Alice lives in Paris.
Alice's boss at Acme lives in Paris.
Alice lives in Bob's house.
Alice lives in Paris or London.
Alice left Bob a message.
Alice likes it.
Alice likes that.
Alice is a bit tired.
Alice is a big part of my life.
Bob's wife is Spanish.
She lives in Paris.
I live in Paris.
People in Berlin like Alice.
Alice lives in May.
lives in Paris
"""


@pytest.mark.promise("S9")
@pytest.mark.parametrize("text", STATED)
def test_a_statement_gives_relations(text: str) -> None:
    assert ["|".join(link) for link in links(text)] == STATED[text]


@pytest.mark.promise("S9")
@pytest.mark.parametrize("text", NOTHING_STATED.strip().splitlines())
def test_denials_questions_and_guesses_give_no_relation(text: str) -> None:
    assert links(text) == ()


@pytest.mark.promise("S9")
def test_most_of_the_many_relations_are_tested_here() -> None:
    tested = {relation.split("|")[1] for relations in STATED.values() for relation in relations}
    known = {verb.relation for verb in VERBS}
    assert len(known) > 40
    assert len(tested & known) > 30


def test_first_person_means_the_speaker() -> None:
    text = "I live in Paris and my sister Carol works at Acme. I'm allergic to nuts."
    relations = ["|".join(link) for link in links(text, "Alice")]
    assert relations == [
        "Alice|lives in|Paris",
        "Carol|works for|Acme",
        "Carol|sister of|Alice",
        "Alice|allergic to|nuts",
    ]
    assert links(text, "user") == links(text) == (), "the speaker is unknown"


def test_names_titles_and_dates_are_extracted_too() -> None:
    result = entities('Alice read "The Waves" in Lisbon on 3 May 2024. Emily lives in Rome.', ON)
    assert {"Alice", "Lisbon", "Emily", "Rome"} <= set(result.names)
    assert result.titles == ("The Waves",)
    assert [(span.start, span.end) for span in result.dates] == [(dt.date(2024, 5, 3), dt.date(2024, 5, 3))]
    assert [tuple(link) for link in result.links] == [("Emily", "lives in", "Rome")]


@pytest.mark.parametrize(
    "text",
    [
        "Ada and " * 2000,
        "Ada, " * 2000 + "and Bob live in Paris",
        "Ada likes " + "very " * 3000 + "long walks",
        "A" * 20_000,
        "In " * 5000 + "Ada lives in Paris",
        "the " * 5000 + "Ada lives in Paris",
        "Ada's " * 3000,
        "my sister " * 2000,
        "\n.?! \u201d" * 3000,
        "Ada lives in " * 1500,
        "Ada " * 5000 + "knows Bob",
    ],
    ids=range(11),
)
def test_no_text_takes_quadratic_time(text: str) -> None:
    start = time.process_time()
    links(text, "Ada")
    assert time.process_time() - start < 2
