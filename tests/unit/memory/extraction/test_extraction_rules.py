"""The rules of the write-back: what they keep of a turn, on labelled turns and in edge cases."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from programs.paths import DATA

from duramen.memory.extraction.rules.rule_set import apply_rules
from duramen.memory.extraction.rules.turns import Finding, ToolCall, TurnRecord

LABELLED = DATA / "gate"


def cases(name: str) -> Iterator[dict[str, Any]]:
    with (LABELLED / f"gate_{name}.jsonl").open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def turn_records(turns: list[dict[str, Any]]) -> list[TurnRecord]:
    return [
        TurnRecord(
            turn["user"],
            tuple(ToolCall(call["tool"], call["arguments"], call["ok"], call["output"]) for call in turn["calls"]),
            turn["assistant"],
            position,
        )
        for position, turn in enumerate(turns, 1)
    ]


def is_expected(finding: Finding, expected: dict[str, Any]) -> bool:
    text = " ".join((finding.content, finding.name, *finding.steps)).lower()
    return finding.kind == expected["kind"] and all(word in text for word in expected["must_contain"])


def score(name: str) -> tuple[float, float, list[str]]:
    """Precision and recall on a file, and its mistakes."""
    right = wrong = missed = 0
    mistakes: list[str] = []
    for case in cases(name):
        expected = list(case["expect"])
        for finding in apply_rules(turn_records(case["turns"])):
            if finding.keep:
                match = next((one for one in expected if is_expected(finding, one)), None)
                if match is None:
                    wrong += 1
                    mistakes.append(f"{case['id']}: kept {finding.content!r}")
                else:
                    right += 1
                    expected.remove(match)
        missed += len(expected)
        mistakes += [f"{case['id']}: missed {one['must_contain']}" for one in expected]
    return right / (right + wrong), right / (right + missed), mistakes


@pytest.mark.promise("K2", "K3")
@pytest.mark.parametrize("name", ["dev", "held"])
def test_precision_and_recall_on_labelled_turns(name: str) -> None:
    precision, recall, mistakes = score(name)
    print(f"{name}: precision {precision:.3f}, recall {recall:.3f}", *mistakes, sep="\n")
    assert precision >= 0.95, mistakes
    assert recall >= 0.8, mistakes


def test_the_labelled_turns_are_many_and_balanced() -> None:
    labelled = [case for name in ("dev", "held") for case in cases(name)]
    assert len(labelled) >= 150
    assert len({case["id"] for case in labelled}) == len(labelled)
    assert 0.3 < sum(bool(case["expect"]) for case in labelled) / len(labelled) < 0.7


def findings_of(text: str, *calls: ToolCall, assistant: str = "I see.") -> list[Finding]:
    return apply_rules([TurnRecord(text, calls, assistant, 1)])


@pytest.mark.promise("K2")
@pytest.mark.parametrize(
    ("text", "reason"),
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
def test_a_rejected_finding_has_a_reason(text: str, reason: str) -> None:
    finding = findings_of(text)[0]
    assert (finding.keep, finding.reason) == (False, reason)


DENIED = ToolCall("bash", {"command": "cat /srv/pay.csv"}, False, "cat: /srv/pay.csv: Permission denied")
GRANTED = ToolCall("bash", {"command": "cat /srv/pay.csv"}, True, "a,b,c")
OTHER_TURN = TurnRecord("What is a consignment note?", (), "A paper that goes with goods.")


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
def test_a_blocker_is_denied_twice_in_five_turns(turns: list[tuple[ToolCall, ...]], kept: int) -> None:
    findings = apply_rules([TurnRecord("again", calls, "Hm.", number) for number, calls in enumerate(turns, 1)])
    blockers = [one for one in findings if one.kind == "blocker" and one.keep]
    assert len(blockers) == kept
    assert all("/srv/pay.csv" in one.content for one in blockers)


@pytest.mark.promise("K2")
def test_steps_are_kept_in_order_after_a_success() -> None:
    advice = TurnRecord(
        "how do i close the till?", (), "1. Print the X report.\n2. Count the drawer.\n3. Press Close Day."
    )
    assert [(one.keep, one.reason) for one in apply_rules([advice])] == [(False, "no success yet")]
    assert [one.keep for one in apply_rules([advice, TurnRecord("didn't work, same error", (), "Hm.")])] == [False]
    (kept,) = apply_rules([advice, OTHER_TURN, TurnRecord("That worked, thanks!", (), "Good.")])
    assert kept.keep
    assert kept.name == "close the till"
    assert kept.steps == ("Print the X report", "Count the drawer", "Press Close Day")
    assert apply_rules([advice, TurnRecord("That worked!", (), "Good."), OTHER_TURN]) == [], "it was kept already"


@pytest.mark.parametrize(
    "text", ["", "\x00", "\ud83d\ude44" * 50, "a" * 100_000, "1. " * 5_000, "first then " * 3_000, "Our " * 20_000]
)
def test_any_text_is_accepted(text: str) -> None:
    apply_rules([TurnRecord(text, (ToolCall("bash", {"command": text}, True, text),), text)] * 3)
