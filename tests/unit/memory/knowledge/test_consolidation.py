"""Consolidation merges memories with the same meaning, and no others."""

from __future__ import annotations

import pytest
from programs.counting_embedder import CountingEmbedder

import duramen
from duramen.embedders import InstalledModel
from duramen.errors import InvalidInput

SAME = [
    ("Ada prefers aisle seats on long flights", "Ada prefers aisle seats on all long flights"),
    ("The build runs on every push to main", "the build runs on each push to main"),
]
DIFFERENT = [
    ("The meeting is at 9 o'clock on Monday", "The meeting is at 10 o'clock on Monday"),
    ("Bob likes peanuts in his cereal bowl", "Bob never likes peanuts in his cereal bowl"),
    ("Carol pays the invoice for the office rent", "Dave pays the invoice for the office rent"),
    ("Deploys are allowed on Friday afternoon", "Deploys aren't allowed on Friday afternoon"),
    ("The cat sleeps on the warm windowsill", "Interest rates rose by a quarter point"),
]


def contents(dm: duramen.Duramen, **audience: str) -> list[str]:
    return [one.content for one in dm.memory.list(**audience)]  # type: ignore[arg-type]


@pytest.mark.promise("S4", "S12")
def test_memories_with_the_same_meaning_are_merged_and_keep_history(any_address: str) -> None:
    with duramen.open(any_address, embedder=CountingEmbedder(dims=512)) as dm:
        older = dm.memory.remember("Ada prefers aisle seats on long flights")
        newer = dm.memory.remember("Ada prefers aisle seats on the long flights")
        other = dm.memory.remember("The staging server runs Debian")
        dm.memory.catch_up()
        (merged,) = dm.memory.consolidate()
        assert (merged.kept.id, merged.ended.id) == (newer.id, older.id)
        assert contents(dm) == [newer.content, other.content]
        assert dm.memory.get(older.id).ended is not None
        assert [hit.memory.id for hit in dm.memory.recall("seats on flights", limit=5)] == [newer.id, other.id]
        assert [one.content for one in dm.memory.as_of(other.recorded).list()] == [
            older.content,
            newer.content,
            other.content,
        ]
        assert dm.memory.consolidate() == []
        assert dm.verify().ok


@pytest.mark.promise("S4")
def test_another_number_name_or_negation_prevents_a_merge(installed: InstalledModel) -> None:
    with duramen.open("memory:") as dm:
        for one, other in DIFFERENT:
            dm.memory.remember(one)
            dm.memory.remember(other)
        dm.memory.catch_up()
        assert dm.memory.consolidate() == []
        for one, other in SAME:
            dm.memory.remember(one)
            dm.memory.remember(other)
        dm.memory.catch_up()
        assert {(one.ended.content, one.kept.content) for one in dm.memory.consolidate()} == set(SAME)


@pytest.mark.promise("S4", "G4")
def test_different_kinds_keys_speakers_and_subjects_are_not_merged() -> None:
    text = "Deploys need a second pair of eyes"
    with duramen.open("memory:", embedder=CountingEmbedder(dims=512)) as dm:
        dm.memory.remember(text)
        dm.memory.remember(f"{text}.", kind="preference")
        dm.memory.remember(f"{text}!", key="deploys")
        dm.memory.remember(f"{text}?", speaker="Ada")
        dm.memory.remember(f"{text}.", subject="ada")
        for number in range(2):
            dm.session("talk").remember(f"{text}{'.' * number}", kind="episode")
        dm.memory.catch_up()
        assert dm.memory.consolidate(everyone=True) == []
        dm.memory.remember(f"{text}!", subject="ada")
        dm.memory.catch_up()
        assert dm.memory.consolidate() == []
        assert len(dm.memory.consolidate(subject="ada")) == 1
        with pytest.raises(InvalidInput, match="unknown option 'person'"):
            dm.memory.consolidate(person="ada")  # type: ignore[call-arg]


@pytest.mark.promise("S4", "R9")
def test_the_same_words_are_merged_without_vectors() -> None:
    with duramen.open("memory:", embedder="none") as dm:
        dm.memory.remember("The build runs on every push")
        newest = dm.memory.remember("the build runs, on every push.")
        dm.memory.remember("The build runs on every pull")
        (merged,) = dm.memory.consolidate()
        assert merged.kept.id == newest.id


@pytest.mark.promise("S12")
def test_merging_does_not_lower_ranks(installed: InstalledModel) -> None:
    facts = {
        "Which database does the shop use?": "The shop keeps its orders in PostgreSQL 16",
        "When is the office closed?": "The office is closed between Christmas and New Year",
        "Who signs contracts?": "Contracts are signed by Grace from legal",
        "Where are backups kept?": "Backups go to the bucket in Frankfurt every night",
    }
    with duramen.open("memory:") as dm:
        for fact in facts.values():
            for text in (fact, f"{fact}.", f"{fact} ", f"{fact}, too"):
                dm.memory.remember(text)
        dm.memory.catch_up()

        def ranks() -> list[int]:
            return [
                next(
                    rank
                    for rank, hit in enumerate(dm.memory.recall(question, limit=16))
                    if hit.memory.content.startswith(fact)
                )
                for question, fact in facts.items()
            ]

        before = ranks()
        dm.memory.consolidate()
        assert len(contents(dm)) == len(facts)
        assert all(rank_after <= rank_before for rank_after, rank_before in zip(ranks(), before, strict=True))
