"""The context of a session: it stays within its budget, keeps the newest entries, and reports every omission."""

from __future__ import annotations

import json
from typing import Any

import pytest
from programs.conversations import CharacterCounter, RecordingModel, WordCounter, count_tokens, digest_of, take_turn
from programs.side_effects import Open

import duramen
from duramen import Draft, Duramen, Session
from duramen.context.window.context import Shown
from duramen.context.window.conversation import EntryKind
from duramen.errors import InvalidInput

LONG = "the quick brown fox jumps over the lazy dog while the river runs on\n"


def contents(session: Session, **changes: Any) -> list[Any]:
    return [message.content for message in session.context(**changes).messages]


def chat(session: Session, count: int, begin: int = 0) -> list[str]:
    """Append short messages. Returns their texts."""
    texts = [f"Message {number} about flight LH{number}." for number in range(begin, begin + count)]
    session.append_all([Draft("talk.message", {"role": "user", "content": text}) for text in texts])
    return texts


# -- W1: a context can be rebuilt exactly


@pytest.mark.promise("W1")
def test_another_handle_builds_the_same_bytes(open_one: Open) -> None:
    session = open_one().session("s")
    seen = []
    for number in range(25):
        take_turn(session, number)
        seen.append(session.context(budget=1500, system="Be brief."))
    for context in (seen[0], seen[9], seen[-1]):
        for dm in (open_one(), open_one()):
            rebuilt = dm.session("s").context(at=context.position, budget=1500, system="Be brief.")
            assert rebuilt.json() == context.json()
            assert rebuilt == context
    assert open_one().session("s").context(budget=1500, system="Be brief.") == seen[-1]


@pytest.mark.promise("W1")
def test_every_past_context_can_be_rebuilt(dm: Duramen) -> None:
    session = dm.session("s")
    seen: dict[int, bytes] = {}
    session.progress.begin("Book a flight", next_action="look")
    for number in range(14):
        take_turn(session, number)
        if number % 3 == 0:
            session.progress.complete(f"looked at LH{number}", next_action="look again")
        context = session.context(budget=900, max_items=9, keep_last=4)
        seen[context.position] = context.json()
    last = session.head().position
    for position in range(last + 3):
        context = session.context(at=position, budget=900, max_items=9, keep_last=4)
        assert context.position == min(position, last)
        assert context.tokens <= 900
        assert context.json() == seen.get(position, context.json())
        assert session.at(position).context(budget=900, max_items=9, keep_last=4) == context
    assert len(seen) == 14
    assert session.head().position == last


def test_building_a_past_context_writes_nothing(dm: Duramen) -> None:
    session = dm.session("s")
    chat(session, 60)
    assert session.context(at=60).tokens <= 8000
    assert session.head().position == 60
    assert dm.session("unknown").context().messages == ()
    assert dm.session("unknown").head().position == 0


@pytest.mark.promise("J15")
def test_a_returning_client_reads_missed_events_once_and_in_order(open_one: Open) -> None:
    session = open_one().session("s")
    texts = chat(session, 30)
    before = session.context(budget=700)
    assert before.messages[-1].content == texts[-1]
    others = open_one().session("s")  # while the client is away, others append and compact
    missed = chat(others, 30, begin=30)
    others.context(budget=700)
    returned = open_one().session("s")
    seen = [event.data["content"] for event in returned.events(start=before.position + 1, types="talk.message")]
    assert seen == missed
    followed = [event.position for event in returned.follow(after=before.position, timeout=0.01)]
    assert followed == list(range(before.position + 1, returned.head().position + 1))
    assert returned.context(at=before.position, budget=700) == before


# -- W2, W4: the budget


@pytest.mark.promise("W2")
@pytest.mark.parametrize("counter", [None, CharacterCounter()], ids=["estimate", "characters"])
def test_many_turns_with_huge_items_stay_within_the_budget(dm: Duramen, counter: Any, everything: bool) -> None:
    session = dm.session("s")
    budget = 3_000 if isinstance(counter, CharacterCounter) else 1_000
    session.say("system", "You are a travel agent.")
    huge = (LONG * 150, "x" * 4_000, "漢字" * 2_000, {"rows": [[number, LONG] for number in range(90)]})
    for batch in range(25 if everything else 6):
        drafts = []
        for number in range(batch * 40, batch * 40 + 40):
            text = LONG * 120 if number % 97 == 0 else f"Turn {number}: what does LH{number} cost?"
            drafts.append(Draft("talk.message", {"role": "user", "content": text}))
            drafts.append(Draft("talk.called", {"id": f"c{number}", "tool": "search", "arguments": {"n": number}}))
            output = huge[number % 4] if number % 13 == 0 else f"{number * 9} euro"
            drafts.append(Draft("talk.returned", {"id": f"c{number}", "output": output, "error": False}))
        session.append_all(drafts)
        context = session.context(budget=budget, counter=counter)
        assert context.tokens <= budget
        if counter is not None:
            assert count_tokens(context, counter.count) <= context.tokens
        assert sum(one.tokens for one in context.trace) <= context.tokens
        assert context.memory or batch == 0
        assert context.messages[-1].plain()["id"] == f"c{batch * 40 + 39}"


@pytest.mark.promise("W4")
@pytest.mark.parametrize("kind", ["output", "message", "mixed"])
def test_a_few_huge_items_are_masked_to_fit(dm: Duramen, kind: str) -> None:
    session = dm.session("s")
    for number in range(5):
        if kind == "message" or (kind == "mixed" and number % 2):
            session.say("user", f"{number} is the number. " + LONG * 900)
        else:
            call = session.tool_call("read", {"file": number})
            session.tool_result(call, f"{number} is the number.\n" + LONG * 900)
    context = session.context()
    assert context.tokens <= 8000
    assert [one.shown for one in context.trace] == [Shown.MASKED] * 5
    assert all(f"{number} is the number" in context.json().decode() for number in range(5))


@pytest.mark.promise("W2", "W4")
def test_entries_that_cannot_be_masked_are_left_out(dm: Duramen) -> None:
    session = dm.session("s")
    session.decide("Write it all down", reason=LONG * 900)
    session.log_error(LONG * 900)
    session.tool_call("write", {"text": LONG * 900})
    session.say("user", "Well?")
    context = session.context()
    assert [message.content for message in context.messages] == ["Well?"]
    assert [one.shown for one in context.trace] == [Shown.LEFT_OUT] * 3 + [Shown.WHOLE]
    assert context.tokens < 20


def test_a_system_prompt_over_the_budget_is_rejected(dm: Duramen) -> None:
    session = dm.session("s")
    session.say("user", "Hello")
    with pytest.raises(InvalidInput, match="system prompt takes") as refused:
        session.context(system=LONG * 100, budget=500)
    assert "raise the budget" in refused.value.hint


# -- W3: compaction thresholds


@pytest.mark.promise("W3")
def test_compaction_starts_with_the_twenty_first_item(dm: Duramen) -> None:
    session = dm.session("s")
    texts = chat(session, 20)
    assert contents(session) == texts
    assert session.head().position == 20
    texts += chat(session, 1, begin=20)
    context = session.context()
    assert [one.content for one in context.messages] == texts[-5:]
    assert "Message 0 about flight LH0." in context.memory
    types = [event.type for event in session.events(start=22)]
    assert types == ["context.summary", "context.compacted"]


@pytest.mark.promise("W3")
def test_compaction_starts_above_eighty_percent_of_the_budget(dm: Duramen) -> None:
    for name, words, summarised in (("under", 1_040, False), ("over", 1_080, True)):
        session = dm.session(name)
        texts = [f"{number} {'w ' * (words - 1)}" for number in range(6)]
        for text in texts:
            session.say("user", text)
        context = session.context(counter=WordCounter(), mask_above=8_000, keep_last=2)
        assert bool(context.memory) is summarised
        assert [one.content for one in context.messages] == (texts[-2:] if summarised else texts)


@pytest.mark.promise("W3")
@pytest.mark.parametrize(
    ("changes", "remaining"),
    [
        ({"max_items": 40}, 40),
        ({"max_items": 39}, 5),
        ({"max_items": 39, "keep_last": 12}, 12),
        ({"max_items": 39, "keep_last": 0}, 1),
        ({"max_items": 39, "keep_last": 80}, 40),
        ({"max_items": 1}, 5),
        ({"max_items": 400, "threshold": 0.02}, 5),
        ({"max_items": 400, "budget": 600}, 5),
        ({"max_items": 400, "budget": 600, "threshold": 1.0, "counter": WordCounter()}, 40),
    ],
)
def test_the_thresholds_can_be_set(dm: Duramen, changes: dict[str, Any], remaining: int) -> None:
    texts = chat(dm.session("s"), 40)
    assert contents(dm.session("s"), **changes) == texts[-remaining:]


@pytest.mark.promise("W3")
def test_a_call_can_override_the_window_of_the_handle(any_address: str) -> None:
    with duramen.open(any_address, window=duramen.Window(max_items=6, keep_last=2)) as dm:
        texts = chat(dm.session("s"), 7)
        assert contents(dm.session("s"), max_items=7) == texts
        assert contents(dm.session("s")) == texts[-2:]
    with pytest.raises(InvalidInput, match="window"):
        duramen.open(any_address, window={"budget": 5})  # type: ignore[arg-type]


@pytest.mark.promise("W3", "W5")
def test_the_newest_entries_are_shown_unchanged(dm: Duramen) -> None:
    session = dm.session("s")
    chat(session, 30)
    odd = "Bücher\u2028 kosten\x00 5\u20ac \ud83d\ude00 \ud800 end \n\n  "
    arguments = {"path": odd, "n": 1.5, "deep": [None, True, {"k": odd}]}
    session.say("user", odd, name="Ann")
    session.decide(odd, reason=odd + "!")
    session.log_fix(session.log_error(odd), odd)
    call = session.tool_call("read", arguments)
    session.tool_result(call, odd, error=True)
    session.say("assistant", [{"type": "text", "text": odd}])
    context = session.context()
    assert [message.plain() for message in context.messages] == [
        {"role": "user", "content": odd, "name": "Ann"},
        {"role": "assistant", "content": f"Decision: {odd}\nReason: {odd}!"},
        {"role": "assistant", "content": f"Error: {odd}\nResolution: {odd}"},
        {"role": "assistant", "tool_call": {"id": call.data["id"], "tool": "read", "arguments": arguments}},
        {"role": "tool", "id": call.data["id"], "content": odd, "error": True},
        {"role": "assistant", "content": [{"type": "text", "text": odd}]},
    ]


# -- W5, W6: masking and fetch


@pytest.mark.promise("W5", "W6")
@pytest.mark.parametrize("counter", [None, WordCounter()], ids=["estimate", "words"])
def test_a_long_output_becomes_a_short_digest_with_a_reference(dm: Duramen, counter: Any) -> None:
    session = dm.session("s")
    output = "begun\n" + "".join(f"line {number}: ok\n" for number in range(15_000)) + "error: disk full\n"
    call = session.tool_call("make", {"target": "all " * 50})
    result = session.tool_result(call, output, error=True)
    session.decide("Free the disk", reason="it is full " * 30)
    context = session.context(counter=counter)
    count = (counter or WordCounter()).count
    call_message, result_message, decision = context.messages
    assert call_message.call == {"id": call.data["id"], "tool": "make", "arguments": {"target": "all " * 50}}
    assert decision.content == "Decision: Free the disk\nReason: " + "it is full " * 30
    assert result_message.result is not None
    assert result_message.result["error"] is True
    text = result_message.result["content"]
    assert count(output) > 15_000
    assert count(text) <= 100
    assert "error: disk full" in text
    assert f'fetch("#{result.position}")' in text
    assert session.fetch(f"#{result.position}") == output


@pytest.mark.promise("W5")
def test_older_outputs_are_masked_before_newer_ones(dm: Duramen) -> None:
    session = dm.session("s")
    output = "".join(f"row {number} of the answer\n" for number in range(60))
    for number in range(8):
        session.tool_result(session.tool_call("rows", {"n": number}), output)
    trace = session.context().trace
    assert [one.shown for one in trace] == [Shown.MASKED] * 3 + [Shown.WHOLE] * 5
    again = session.context(mask_above=50).trace
    assert [one.shown for one in again] == [Shown.MASKED] * 8


ORIGINALS = [
    LONG * 900,
    "\ud800 lone \x00 \u2028" * 3_000,
    b"\x00\xff" * 50_000,
    [{"name": f"row {number}", "n": number} for number in range(1_500)],
    {"rows": [[number, LONG] for number in range(300)], "total": 300},
    [{"type": "text", "text": LONG * 900}],
    {"set": {*range(900)}, "odd keys": {(number, 1): number for number in range(900)}},
]


@pytest.mark.promise("W6")
@pytest.mark.parametrize("original", ORIGINALS, ids=["text", "odd", "bytes", "rows", "tree", "blocks", "exotic"])
def test_fetch_returns_masked_originals_unchanged(dm: Duramen, original: Any) -> None:
    session = dm.session("s")
    session.tool_result(session.tool_call("get"), original)
    shown = session.context().messages[-1].plain()["content"]
    reference = shown.rpartition('fetch("')[2].partition('"')[0]
    assert reference == "#2"
    for asked in (reference, " #2\n", "2", 2):
        assert session.fetch(asked) == original
    pieces = [session.fetch(reference, start=start, length=40_000) for start in range(0, 120_000, 40_000)]
    whole = type(pieces[0])().join(pieces)
    if isinstance(original, (str, bytes)):
        assert whole == original
    elif "set" not in original:
        assert json.loads(whole) == original
    assert session.fork("f").fetch("#2") == original


@pytest.mark.promise("W6")
def test_fetch_returns_masked_messages(dm: Duramen) -> None:
    session = dm.session("s")
    session.say("user", LONG * 900)
    assert session.context().messages[0].content.endswith('fetch("#1")')
    assert session.fetch("#1") == LONG * 900
    assert session.fetch("#1", start=4, length=5) == "quick"
    assert session.fetch("#1", start=10**9) == ""
    assert session.fetch("#1", length=0) == ""


@pytest.mark.parametrize(
    "reference", ["", "#", "#0", "#2", "#-1", "##1", "1.0", "one", None, 1.0, True, -1, 10**30, "#" + "9" * 5_000, b"1"]
)
def test_an_unknown_reference_is_rejected(dm: Duramen, reference: Any) -> None:
    session = dm.session("s")
    session.say("user", "hello")
    with pytest.raises(InvalidInput) as refused:
        session.fetch(reference)
    assert refused.value.hint


@pytest.mark.parametrize("piece", [{"start": -1}, {"length": -1}, {"start": "1"}, {"start": True}, {"length": 1.5}])
def test_an_invalid_range_of_fetch_is_rejected(dm: Duramen, piece: Any) -> None:
    session = dm.session("s")
    session.say("user", "hello")
    with pytest.raises(InvalidInput, match="cannot be"):
        session.fetch("#1", **piece)


# -- W8: summaries are journaled


@pytest.mark.promise("W8")
def test_a_stored_summary_is_used_by_every_later_handle(open_one: Open) -> None:
    model = RecordingModel()
    session = open_one().session("s")
    chat(session, 30)
    before = session.context(model=model)
    assert len(model.prompts) == 1
    for _ in range(2):
        assert open_one().session("s").context(model=model) == before
    assert digest_of(open_one().session("s").context()) == digest_of(before)  # also without a model
    assert len(model.prompts) == 1
    (written,) = open_one().session("s").events(types="context.summary")
    assert (written.data["by"], written.data["note"], written.actor) == ("recorder", None, "duramen")


@pytest.mark.promise("W8")
def test_summaries_of_summaries_stay_within_their_share_of_the_budget(dm: Duramen) -> None:
    session = dm.session("s")
    session.decide("Fly on May 4", reason="the fair begins on May 5")
    for number in range(24):
        chat(session, 20, begin=number * 20)
        context = session.context(budget=1_200, counter=WordCounter())
        assert sum(one.tokens for one in context.trace if one.kind == "summary") <= 1_200 * 0.25 + 6 * 20
    levels = [event.data["level"] for event in session.events(types="context.summary")]
    assert max(levels) >= 2
    assert len(levels) <= 2 * 24
    assert "Fly on May 4 because the fair begins on May 5" in context.memory


# -- W9: what is left out, and the trace


@pytest.mark.promise("W9")
def test_the_least_important_entries_are_left_out_first_and_traced(dm: Duramen) -> None:
    session = dm.session("s")
    text = "w " * 40
    for priority in ("normal", "high", "low", "always", "low", "normal", "high"):
        session.say("user", f"{priority} {text}", priority=priority)
    session.say("user", "And now?")
    options: dict[str, Any] = {
        "counter": WordCounter(),
        "threshold": 1.0,
        "max_items": 40,
        "keep_last": 0,
        "mask_to": 60,
    }
    left_out = {}
    for budget in (360, 310, 265, 220, 175, 130):
        context = session.context(at=8, budget=budget, **options)
        left_out[budget] = [one.first for one in context.trace if one.shown is Shown.LEFT_OUT]
        assert context.tokens <= budget
        assert sorted(one.first for one in context.trace) == list(range(1, 9))
        assert all("no room for its 45 tokens" in one.reason for one in context.trace if one.shown is Shown.LEFT_OUT)
    assert list(left_out.values()) == [[], [3], [3, 5], [1, 3, 5], [1, 3, 5, 6], [1, 2, 3, 5, 6]]


@pytest.mark.promise("W9")
def test_every_entry_is_in_the_trace(dm: Duramen) -> None:
    session = dm.session("s")
    session.say("system", "You are a travel agent.")
    for number in range(12):
        take_turn(session, number)
        if number % 3 == 0:
            session.append("note", "not part of the conversation")
            session.say("user", "ok")
    session.tool_result("call-3", "a second result for the third call")
    windows: list[dict[str, Any]] = [{}, {"budget": 300}, {"budget": 120, "keep_last": 1}]
    for changes in windows:
        context = session.context(**changes)
        traced = {position for one in context.trace for position in range(one.first, one.last + 1)}
        entries = {event.position for event in session.events() if event.type.startswith("talk.")}
        assert entries <= traced
        for one in context.trace:
            assert (one.tokens == 0) >= (one.shown is Shown.LEFT_OUT)
            assert one.reason
            assert one.kind in {*EntryKind, "summary"}


# -- W10, W11: long conversations and hand-off


@pytest.mark.promise("W10")
def test_tokens_stay_flat_over_five_hundred_turns(dm: Duramen) -> None:
    session = dm.session("s")
    tokens = []
    for number in range(0, 500, 4):
        chat(session, 4, begin=number)
        tokens.append(session.context(budget=1_000, counter=WordCounter()).tokens)
    assert 0 < max(tokens[-25:]) <= max(tokens[50:75])
    assert max(tokens) <= 500


@pytest.mark.promise("W11", "H4")
def test_a_continued_session_begins_with_the_handoff_not_the_transcript(open_one: Open) -> None:
    old = open_one().session("old")
    old.progress.begin("Book a flight", next_action="compare prices")
    texts = chat(old, 40)
    old.decide("Fly with Lufthansa", reason="it is direct")
    old.progress.complete("asked for dates", next_action="compare prices")
    old.context()
    new = open_one().session("new", continues="old")
    context = new.context()
    assert context.messages == ()
    assert not any(text in context.memory for text in texts)
    for expected in ("Fly with Lufthansa", "it is direct", "compare prices", "asked for dates"):
        assert expected in context.memory
    new.say("user", "Continue.")
    again = open_one().session("new").context()
    assert (again.memory, [one.content for one in again.messages]) == (context.memory, ["Continue."])
    assert old.context() == open_one().session("old").context()


# -- forks


@pytest.mark.promise("W1", "X22")
def test_a_fork_has_the_context_of_its_parent_and_then_diverges(dm: Duramen) -> None:
    session = dm.session("0")
    window: dict[str, Any] = {"budget": 700, "max_items": 8, "keep_last": 3}
    for depth in range(1, 5):
        for number in range(4):
            take_turn(session, depth * 10 + number)
            session.context(**window)
        fork = session.fork(str(depth))
        assert fork.context(**window).json() == session.context(**window).json()
        before = session.context(**window)
        chat(fork, 3)
        assert session.context(**window) == before
        session = fork
    for position in range(1, session.head().position, 9):
        fork = session.fork(f"at {position}", at=position)
        assert fork.context(at=position, **window).json() == session.context(at=position, **window).json()
        assert fork.context(**window).tokens <= 700
