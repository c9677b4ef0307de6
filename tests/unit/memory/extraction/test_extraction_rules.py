"""The gate of the write-back: what of a turn is kept, on labelled turns and at its edges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from programs.paths import DATA

from duramen.memory.extraction.rules.rule_set import apply_rules
from duramen.memory.extraction.rules.turns import Finding, ToolCall, TurnRecord

GATE = DATA / "gate"


def cases(name: str) -> Iterator[dict[str, Any]]:
    with (GATE / f"gate_{name}.jsonl").open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def taken(turns: list[dict[str, Any]]) -> list[TurnRecord]:
    return [
        TurnRecord(
            one["user"],
            tuple(ToolCall(call["tool"], call["arguments"], call["ok"], call["output"]) for call in one["calls"]),
            one["assistant"],
            position,
        )
        for position, one in enumerate(turns, 1)
    ]


def is_expected(found: Finding, expected: dict[str, Any]) -> bool:
    text = " ".join((found.content, found.name, *found.steps)).lower()
    return found.kind == expected["kind"] and all(word in text for word in expected["must_contain"])


def score(name: str) -> tuple[float, float, list[str]]:
    """Precision and recall on a file, and what went wrong."""
    right = wrong = missed = 0
    told: list[str] = []
    for case in cases(name):
        left = list(case["expect"])
        for found in apply_rules(taken(case["turns"])):
            if found.keep:
                match = next((one for one in left if is_expected(found, one)), None)
                if match is None:
                    wrong += 1
                    told.append(f"{case['id']}: kept {found.content!r}")
                else:
                    right += 1
                    left.remove(match)
        missed += len(left)
        told += [f"{case['id']}: missed {one['must_contain']}" for one in left]
    return right / (right + wrong), right / (right + missed), told


@pytest.mark.promise("K2", "K3")
@pytest.mark.parametrize("name", ["dev", "held"])
def test_the_gate_on_labelled_turns(name: str) -> None:
    precision, recall, told = score(name)
    print(f"{name}: precision {precision:.3f}, recall {recall:.3f}", *told, sep="\n")
    assert precision >= 0.95, told
    assert recall >= 0.8, told


def test_the_corpus_is_large_enough_and_has_both_sorts() -> None:
    every = [case for name in ("dev", "held") for case in cases(name)]
    assert len(every) >= 150
    assert len({case["id"] for case in every}) == len(every)
    assert 0.3 < sum(bool(case["expect"]) for case in every) / len(every) < 0.7


def one(said: str, *calls: ToolCall, assistant: str = "I see.") -> list[Finding]:
    return apply_rules([TurnRecord(said, calls, assistant, 1)])


@pytest.mark.promise("K2")
@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("Our refund window is 30 days, I think.", "a wish of the user, which is proposed to them"),
        ("Our refund window is probably 30 days.", "hedged"),
        ("Is our refund window 30 days?", "a question"),
        ("Suppose our refund window is 30 days.", "hypothetical"),
        ("This week our refund window is 30 days.", "holds only now"),
        ("The database on db-7 is down.", "a temporary failure"),
        ("Our refund window was 30 days.", "about the past"),
        ("The door code of the depot is 4711.", "a secret"),
        ("The tracking number is PK88310027745.", "a value of this run"),
        ("Our refund window is 30 days lol.", "not serious"),
        ("Set our refund window to 30 days and it is done.", "a request"),
        ("It is 30 days for refunds.", "a fragment"),
        ("Our refund window is 30 days. No wait, forget that.", "retracted in the same message"),
    ],
)
def test_what_is_not_kept_has_a_reason(said: str, reason: str) -> None:
    found = one(said)[0]
    assert (found.keep, found.reason) == (False, reason)


DENIED = ToolCall("bash", {"command": "cat /srv/pay.csv"}, False, "cat: /srv/pay.csv: Permission denied")
GRANTED = ToolCall("bash", {"command": "cat /srv/pay.csv"}, True, "a,b,c")
QUIET = TurnRecord("What is a consignment note?", (), "A paper that goes with goods.")


@pytest.mark.promise("K3")
@pytest.mark.parametrize(
    ("turns", "kept"),
    [
        ([(DENIED,)], 0),
        ([(DENIED,), (DENIED,)], 1),
        ([(DENIED, DENIED)], 1),
        ([(DENIED,), (), (), (), (DENIED,)], 1),
        ([(DENIED,), (), (), (), (), (DENIED,)], 0),
        ([(DENIED,), (DENIED,), ()], 0),
        ([(DENIED,), (DENIED, GRANTED)], 0),
        ([(ToolCall("bash", {"command": "cat /srv/a.csv"}, False, "/srv/a.csv: Permission denied"),), (DENIED,)], 0),
        ([(ToolCall("get", {"u": "x"}, False, "403 rate limit exceeded"),)] * 2, 0),
    ],
)
def test_a_blocker_is_what_is_denied_twice_in_five_turns(turns: list[tuple[ToolCall, ...]], kept: int) -> None:
    found = apply_rules([TurnRecord("again", calls, "Hm.", number) for number, calls in enumerate(turns, 1)])
    blockers = [one for one in found if one.kind == "blocker" and one.keep]
    assert len(blockers) == kept
    assert all("/srv/pay.csv" in one.content for one in blockers)


@pytest.mark.promise("K2")
def test_steps_are_kept_in_their_order_after_a_success() -> None:
    told = TurnRecord(
        "how do i close the till?", (), "1. Print the X report.\n2. Count the drawer.\n3. Press Close Day."
    )
    assert [(one.keep, one.reason) for one in apply_rules([told])] == [(False, "no success yet")]
    assert [one.keep for one in apply_rules([told, TurnRecord("didn't work, same error", (), "Hm.")])] == [False]
    (kept,) = apply_rules([told, QUIET, TurnRecord("That worked, thanks!", (), "Good.")])
    assert kept.keep
    assert kept.name == "close the till"
    assert kept.steps == ("Print the X report", "Count the drawer", "Press Close Day")
    assert apply_rules([told, TurnRecord("That worked!", (), "Good."), QUIET]) == [], "it was kept before"


@pytest.mark.parametrize(
    "said", ["", "\x00", "\ud83d\ude44" * 50, "a" * 100_000, "1. " * 5_000, "first then " * 3_000, "Our " * 20_000]
)
def test_no_text_takes_the_gate_long_or_down(said: str) -> None:
    apply_rules([TurnRecord(said, (ToolCall("bash", {"command": said}, True, said),), said)] * 3)
