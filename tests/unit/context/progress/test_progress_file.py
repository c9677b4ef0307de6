"""Progress records and their file: rules, changes, the text format, hand edits and safe writing."""

from __future__ import annotations

import fcntl
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from programs.seeds import examples

from duramen.context.progress import progress_file
from duramen.context.progress.progress_file import MAX_BYTES, create_file, parse, read_file, render, write_file
from duramen.context.progress.record import Progress, apply, changes
from duramen.errors import DuramenError, InvalidInput

STARTED = Progress("Ship the invoice export", ("Read the API docs",), None, "Write the client", "- Repository: billing")

# -- records by hypothesis, with ordinary and hostile text

PIECES = (
    "None|Finished|done|n/a|-|---|# |## |### |#|##|Current Goal|Next Action|Completed Steps|Context|goal|## Context|"
    "# next action|```|````|~~~|```sh|\\|\\\\|<<<<<<< HEAD|>>>>>>> theirs|=======|1. [x] a|- [ ] b|* c|2) d|[x] e|"
    "x|yz|:|**|(|)|é|𝄞|\x00|\ud800|\ufeff|\x85|\xa0|\u2028|\x0c|\x1e| |  |    |\t|\n|\n\n|\r\n|\r|\n   "
)
texts = st.lists(st.sampled_from(PIECES.split("|")) | st.text(max_size=4), max_size=10).map("".join)
non_empty = texts.filter(lambda text: text.strip() != "")


def record_or_none(fields: tuple[str, list[str], str | None, str, str, bool]) -> Progress | None:
    goal, steps, blocker, next_action, context, finished = fields
    try:
        return Progress(
            goal, tuple(steps), None if finished else blocker, None if finished else next_action, context, finished
        )
    except InvalidInput:
        return None  # the next action is one of the steps


records = (
    st.tuples(texts, st.lists(non_empty, max_size=12), st.none() | texts, non_empty, texts, st.booleans())
    .map(record_or_none)
    .filter(lambda record: record is not None)
)


# -- the rules


@pytest.mark.promise("H3")
def test_the_next_action_is_never_empty_while_unfinished() -> None:
    attempts: list[Callable[[], Progress]] = [
        lambda: Progress("a goal"),
        lambda: Progress("a goal", next_action=" \n"),
        lambda: Progress().begin("a goal", ""),
        lambda: STARTED.plan("\t"),
        lambda: STARTED.complete("Write the client"),  # the next action is done, and no other is given
        lambda: STARTED.complete("Write  the\nclient "),
        lambda: STARTED.finish().reopen(""),
        lambda: apply(STARTED, [{"field": "next_action", "value": None}]),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidInput, match="no next action") as refusal:
            attempt()
        assert "next" in refusal.value.hint
    assert STARTED.complete("Write the client", "Test it").next_action == "Test it"
    assert STARTED.complete("Something else").next_action == "Write the client"
    assert STARTED.finish("Write the client").next_action is None


@pytest.mark.promise("H3", "H4")
def test_a_completed_step_cannot_be_the_next_action() -> None:
    attempts: list[Callable[[], Progress]] = [
        lambda: STARTED.plan("Read  the API docs"),
        lambda: STARTED.complete("More", "Read the API docs"),
        lambda: Progress("a", ("b",), next_action="b"),
    ]
    for attempt in attempts:
        with pytest.raises(InvalidInput, match="already completed") as refusal:
            attempt()
        assert refusal.value.hint


@pytest.mark.promise("H2")
def test_repeated_changes_have_no_effect() -> None:
    assert Progress().begin("Ship", "Start").begin("Ship", "Start again") == Progress("Ship", next_action="Start")
    done = STARTED.complete("Write the client", "Test it")
    assert done.complete("Write the  client", "An older plan") == done
    finished = done.finish("Test it")
    assert finished.finish() == finished.finish("Test it") == finished.complete("Test it") == finished
    assert finished.begin(STARTED.goal, "Do it all again") == finished
    assert finished.unblock() == finished


def test_a_goal_can_be_blocked_changed_finished_and_reopened() -> None:
    blocked = STARTED.block("No credentials")
    assert blocked.blocker == "No credentials"
    assert blocked.complete("x").blocker == "No credentials"
    assert blocked.unblock() == STARTED
    assert STARTED.describe("\n  here\n\n").context == "  here"
    assert STARTED.reword("Ship it all") == Progress("Ship it all", *_fields_without_goal(STARTED))
    finished = blocked.finish("Write the client")
    assert (finished.finished, finished.blocker) == (True, None)
    assert finished.completed == ("Read the API docs", "Write the client")
    assert finished.reopen("Fix it") == Progress(STARTED.goal, finished.completed, None, "Fix it", STARTED.context)
    second = finished.begin("Another goal", "Its first step")
    assert second == Progress("Another goal", (), None, "Its first step", STARTED.context)
    imported = Progress(completed=("by hand",), context="notes")
    assert imported.begin("a", "b") == Progress("a", ("by hand",), None, "b", "notes")


def _fields_without_goal(progress: Progress) -> tuple[tuple[str, ...], str | None, str | None, str]:
    return progress.completed, progress.blocker, progress.next_action, progress.context


@pytest.mark.parametrize(
    ("attempt", "match"),
    [
        (lambda: STARTED.begin("Something else", "now"), "not finished yet"),
        (lambda: Progress().complete("a step"), "no goal yet"),
        (lambda: Progress().plan("a step"), "no goal yet"),
        (lambda: Progress().block("why"), "no goal yet"),
        (lambda: Progress().finish(), "no goal yet"),
        (lambda: Progress().reword("high"), "no goal yet"),
        (lambda: STARTED.finish().complete("one more"), "is finished"),
        (lambda: STARTED.finish().block("why"), "is finished"),
        (lambda: STARTED.reopen("what"), "cannot reopen"),
        (lambda: STARTED.complete(" "), "step is empty"),
        (lambda: STARTED.block(""), "blocker is empty"),
        (lambda: STARTED.reword(""), "goal is empty"),
        (lambda: Progress("a", (), "b", None, "", True), "or a blocker"),
        (lambda: Progress("a", (), None, "b", "", True), "cannot have a next action"),
        (lambda: Progress(completed="abc"), "list"),  # type: ignore[arg-type]
        (lambda: Progress(completed=("a", "")), "step is empty"),
        (lambda: Progress(3), "text, not int"),  # type: ignore[arg-type]
        (lambda: Progress(blocker=b""), "text, not bytes"),  # type: ignore[arg-type]
        (lambda: apply(STARTED, [{"field": "mood", "value": "good"}]), "mood"),
        (lambda: apply(STARTED, [{"field": "goal"}]), "goal"),
    ],
)
def test_invalid_changes_are_rejected_with_a_hint(attempt: Callable[[], Progress], match: str) -> None:
    with pytest.raises(InvalidInput, match=match) as refusal:
        attempt()
    assert refusal.value.hint


def test_texts_are_normalised() -> None:
    normalised = Progress(
        " a\r\nb ", (" one ", "one", "o\rne", "o  ne"), " ", "\tc\x00\ud800", "\n \n  d \r\n\n", False
    )
    assert normalised == Progress("a\nb", ("one", "o\nne"), None, "c\ufffd\ufffd", "  d ")
    assert (normalised.goal, normalised.completed, normalised.blocker) == ("a\nb", ("one", "o\nne"), None)
    assert (normalised.next_action, normalised.context) == ("c\ufffd\ufffd", "  d ")


# -- changes


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])  # the machine may be busy
@given(before=records, after=records)
def test_applying_changes_gives_the_other_record(before: Progress, after: Progress) -> None:
    difference = changes(before, after)
    assert apply(before, difference) == after
    assert bool(difference) == (before != after)


steps = st.lists(st.sampled_from("abcdef"), unique=True).map(tuple)


@given(steps, steps, steps)
def test_changes_of_steps_keep_concurrently_added_steps(
    old: tuple[str, ...], new: tuple[str, ...], others: tuple[str, ...]
) -> None:
    difference = changes(Progress(completed=old), Progress(completed=new))
    assert apply(Progress(completed=old), difference).completed == new
    current = tuple(dict.fromkeys((*old, *others)))
    merged = apply(Progress(completed=current), difference).completed
    assert set(merged) == (set(current) - (set(old) - set(new))) | set(new)


def test_changes_contain_only_the_difference() -> None:
    assert changes(STARTED, STARTED) == []
    assert changes(STARTED, STARTED.complete("Write the client", "Test it")) == [
        {"field": "completed", "added": ["Write the client"], "removed": []},
        {"field": "next_action", "value": "Test it"},
    ]
    swapped = changes(Progress(completed=("a", "b")), Progress(completed=("b", "a")))
    assert swapped == [{"field": "completed", "added": [], "removed": [], "order": ["b", "a"]}]
    many = [change for number in range(5000) for change in changes(Progress(), Progress(completed=(f"s{number}",)))]
    assert len(apply(Progress(), many).completed) == 5000


# -- the text format


@pytest.mark.promise("H1")
def test_the_text_has_the_documented_layout() -> None:
    progress = STARTED.complete("Write the client", "Write the tests").complete("Wrote it down\n\n  in two places")
    assert render(progress) == (
        "# Progress\n\n"
        "## Current Goal\nShip the invoice export\n\n"
        "## Completed Steps\n1. [x] Read the API docs\n2. [x] Write the client\n"
        "3. [x] Wrote it down\n\n     in two places\n\n"
        "## Current Blocker\nNone\n\n"
        "## Next Action\nWrite the tests\n\n"
        "## Context\n- Repository: billing\n"
    )
    assert parse(render(progress)) == (progress, ())
    assert "## Next Action\nFinished\n" in render(progress.finish())
    assert render(Progress()).endswith("## Context\n")


@pytest.mark.promise("H1")
@settings(max_examples=examples(200))
@given(records)
@example(Progress("## Current Goal", ("None", "[ ] x"), "None", "Finished", "## Next Action\n\\## Context\n# Context"))
@example(Progress("```\n# a\n```\n# b", ("1. [x] a\n- [x] b",), "```", "~~~\n## Context\n~~~", "```\n# goal\n```"))
@example(Progress("\\None", ("a",) * 3, "\\\\", "# a\n### b", "<<<<<<< HEAD\n    indented  \n\\>>>>>>> b"))
def test_every_record_is_parsed_back_exactly(progress: Progress) -> None:
    text = render(progress)
    assert parse(text).progress == progress
    assert parse("\ufeff" + text.replace("\n", "\r\n")).progress == progress
    if progress.goal:
        assert parse(text).notes == ()


def test_ordinary_text_is_not_escaped() -> None:
    context = "# Notes\n\n## More\n1. [x] a\n\n```sh\n# context\nmake\n```\nNone\n\\o/"
    next_action = "Run\n```sh\n# build first\nmake\n```\n### then\n- [ ] look"
    text = render(STARTED.plan(next_action).describe(context))
    assert f"## Next Action\n{next_action}\n\n" in text
    assert text.endswith(f"## Context\n{context}\n")


# -- hand edits

EDITED = """\
A note of mine

### NEXT ACTION:
Write the tests

# **Context**
- Repository: billing

##Completed Steps ##
- [x] Read the API docs
* [X] Wrote the client
  - with retries
2) [x] Deployed
to staging
+ Told them
- [ ] Ask for review

Not a step.

## Links
- https://example.org

## goal
Ship it
"""


@pytest.mark.promise("H1")
def test_hand_edits_are_read_leniently() -> None:
    progress, notes = parse(EDITED)
    assert progress == Progress(
        "Ship it",
        ("Read the API docs", "Wrote the client\n- with retries", "Deployed\nto staging", "Told them"),
        None,
        "Write the tests",
        "A note of mine\n\n- Repository: billing\n\n"
        "## Links\n- https://example.org\n\nNot a step.\n\n- [ ] Ask for review",
    )
    assert notes == (
        "line 1: text before the first section: moved to the context",
        "line 16: unticked step: moved to the context",
        "line 18: not a step: moved to the context",
        "line 20: a section that is not one of the five: moved to the context",
    )
    assert parse(render(progress)) == (progress, ())
    assert parse("\ufeff" + EDITED.replace("\n", "\r\n")) == (progress, notes)


@pytest.mark.parametrize("text", ["", "None", "none.", "N/A", "-", "- None", "(none)", "\u2014", "_Nothing_", "* none"])
def test_many_words_mean_none(text: str) -> None:
    file = f"## Current Goal\nShip\n## Completed Steps\n{text}\n## Current Blocker\n{text}\n## Next Action\nGo\n"
    assert parse(file).progress == Progress("Ship", next_action="Go")


@pytest.mark.parametrize("word", ["Finished", "done.", "None (finished)", "All done!", "**Completed**"])
def test_some_words_as_next_action_finish_the_goal(word: str) -> None:
    assert parse(f"## Current Goal\nShip\n## Next Action\n{word}\n").progress == Progress("Ship", finished=True)


@pytest.mark.parametrize(
    ("steps", "next_action", "expected", "context"),
    [
        ("- [x] a\n- [ ] b\n- [ ] c", "", "b", "- [ ] c"),  # the first open step is the next action
        ("- [x] a\n- [ ] b\n- [ ] c", "None", "b", "- [ ] c"),
        ("- [x] a\n- [ ] b", "a", "b", ""),  # the next action was ticked
        ("- [x] a\n- [ ] b", "b", "b", ""),
        ("- [x] a\n- [ ] b\n- [ ] d\n  e", "c", "c", "- [ ] b\n- [ ] d\n  e"),
        ("- [x] a\n- [ ] a", "c", "c", ""),
        ("- [x] a\n- []  b", "", "b", ""),
        ("- [x] a\n- [ ]\n-", "c", "c", ""),  # an empty item of a template
    ],
)
def test_a_step_without_a_tick_is_not_completed(steps: str, next_action: str, expected: str, context: str) -> None:
    text = f"## Current Goal\nShip\n## Completed Steps\n{steps}\n## Next Action\n{next_action}\n"
    assert parse(text).progress == Progress("Ship", ("a",), None, expected, context)


def test_steps_can_have_details_and_headings_between_them() -> None:
    steps = "\nFirst of all:\n\n- [x] a\n\t- tabbed\n### Phase 2\n- [x] b"
    progress, notes = parse(f"## Current Goal\nShip\n## Completed Steps\n{steps}\n## Next Action\nc\n")
    assert progress == Progress("Ship", ("a\n- tabbed", "b"), None, "c", "First of all:\n\n### Phase 2")
    assert notes == ("line 5: not a step: moved to the context", "line 9: not a step: moved to the context")


def test_a_finished_goal_stays_finished_with_an_open_step() -> None:
    text = "## Current Goal\nShip\n## Completed Steps\n- [x] a\n- [ ] b\n## Next Action\nDone\n"
    assert parse(text).progress == Progress("Ship", ("a",), None, None, "- [ ] b", finished=True)


def test_sections_may_be_missing() -> None:
    assert parse("") == parse("# Progress\n") == (Progress(), ())
    assert parse("## Completed Steps\n1. a\n") == (Progress(completed=("a",)), ("line 1: there is no goal",))
    assert parse("## Goal\na\n## Next Action\nb") == (Progress("a", next_action="b"), ())


def test_headings_in_code_blocks_are_text() -> None:
    next_action = "```sh\n# make first\n``` not its end\n## goal\n```"
    text = f"## Current Goal\na\n\n```one``` line\n#goal\n\n## Next Action\n{next_action}\n# Mine\n```\nb\n"
    assert parse(text).progress == Progress("a\n\n```one``` line\n#goal", (), None, next_action, "# Mine\n```\nb")
    assert "\n```one`` `\n\\# b\n```\n" in render(Progress("```one`` `\n# b\n```", (), None, "x"))


def test_an_unclosed_code_block_does_not_hide_sections() -> None:
    text = "## Current Goal\n```\na\n\n## Next Action\nb\n\n## Context\n```\n# context\n```\n"
    assert parse(text).progress == Progress("```\na", (), None, "b", "```\n# context\n```")


def test_repeated_sections_are_merged() -> None:
    same = "## Goal\na\n## Next Action\nb\n## Context\nc\n## Current Goal\na\n## Completed\n- x\n# Context\nd\n"
    assert parse(same + "## Completed Steps\n- y\n").progress == Progress("a", ("x", "y"), None, "b", "c\n\nd")


@pytest.mark.promise("H1", "H3")
@pytest.mark.parametrize(
    ("text", "line", "match"),
    [
        ("## Current Goal\nShip\n", 1, "no next action"),
        ("\n## Current Goal\nShip\n\n## Next Action\n\n", 5, "no next action"),
        ("## Goal\na\n## Completed Steps\n- [x] b\n## Next Action\nb\n", 5, "already completed"),
        ("## Goal\na\n## Next Action\nb\n## Goal\nc\n", 5, "differs from the one in line 1"),
        ("## Goal\na\n## Current Blocker\nwhy\n## Next Action\nDone\n", 3, "blocked"),
        ("## Goal\n<<<<<<< HEAD\na\n=======\nb\n>>>>>>> theirs\n## Next Action\nx\n", 2, "conflict"),
        ("Some other file\n\n# Title\n", 1, "no section"),
    ],
)
def test_an_invalid_file_is_rejected_with_the_line_number(text: str, line: int, match: str) -> None:
    with pytest.raises(InvalidInput, match=f"notes.md, line {line}: .*{match}") as refusal:
        parse(text, where="notes.md")
    assert refusal.value.hint


HEADINGS = (
    "## Current Goal|# goal|## Completed Steps|### completed|## Current Blocker|## Next Action|##Next Action|"
    "## Context|# Context|## Notes|# Mine|### Sub|```|~~~|"
)
MARKS = "|- |* |- [x] |1. [ ] |  - |    |\t|\\|> |3) [x] "
marks = st.sampled_from(MARKS.split("|"))
lines = st.one_of(
    st.sampled_from(HEADINGS.split("|")),
    st.tuples(marks, st.integers(0, 999)).map(lambda pair: f"{pair[0]}w{pair[1]}w"),
)


@pytest.mark.promise("H1")
@settings(max_examples=examples(200))
@given(st.lists(lines, max_size=25), st.sampled_from(["\n", "\r\n"]))
def test_no_word_of_a_hand_edit_is_lost(written: list[str], end: str) -> None:
    text = end.join(written)
    try:
        progress = parse(text).progress
    except InvalidInput as refusal:
        assert re.search(r"PROGRESS\.md, line \d+: ", refusal.message)  # noqa: PT017 - an error is acceptable too
        return
    fields = (progress.goal, *progress.completed, progress.blocker, progress.next_action, progress.context)
    text_of_fields = "\n".join(field or "" for field in fields)
    assert set(re.findall(r"w\d+w|Notes|Mine|Sub", text)) <= set(re.findall(r"w\d+w|Notes|Mine|Sub", text_of_fields))
    assert parse(render(progress)).progress == progress


def test_long_files_are_parsed_quickly() -> None:
    fences = "\n".join("`" * (3 + number % 50) + "x" for number in range(4_000))
    spaces = "\n".join(["## Context" + " " * 200_000 + "x", "#" * 200_000, "\n" * 200_000, "- [x]" + " " * 200_000])
    text = f"## Current Goal\na\n## Completed Steps\n{spaces}\n## Next Action\nb\n## Context\n{fences}\n"
    progress = parse(text).progress
    assert parse(render(progress)).progress == progress


# -- the file on disk


@pytest.mark.promise("H1")
def test_a_file_is_written_only_if_it_changed(tmp_path: Path) -> None:
    path = tmp_path / "PROGRESS.md"
    assert write_file(path, render(STARTED))
    assert read_file(path) == render(STARTED)
    os.utime(path, ns=(1, 1))
    assert not write_file(str(path), render(STARTED))
    assert path.stat().st_mtime_ns == 1
    assert write_file(path, "é\n")
    assert path.read_bytes() == "é\n".encode()
    assert os.listdir(tmp_path) == ["PROGRESS.md"]


def test_the_mode_and_symbolic_links_are_kept(tmp_path: Path) -> None:
    real, link = tmp_path / "elsewhere" / "notes.md", tmp_path / "PROGRESS.md"
    real.parent.mkdir()
    link.symlink_to(real)
    old = os.umask(0o027)
    try:
        assert write_file(link, "a")
    finally:
        os.umask(old)
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    real.chmod(0o604)
    assert write_file(link, "b")
    assert (stat.S_IMODE(real.stat().st_mode), real.read_text()) == (0o604, "b")
    assert link.is_symlink()
    assert os.listdir(real.parent) == ["notes.md"]


def test_the_owner_is_kept_if_permitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "PROGRESS.md"
    path.write_text("a")
    owners: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fchown", lambda handle, user, group: owners.append((user, group)))
    assert write_file(path, "b")
    assert owners == [(path.stat().st_uid, path.stat().st_gid)]

    def not_allowed(*_: int) -> None:
        raise PermissionError(1, "not yours")

    monkeypatch.setattr(os, "fchown", not_allowed)
    assert write_file(path, "c")


PROGRAM = """
import os, signal, sys
from duramen.context.progress import progress_file
def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)
setattr(os, sys.argv[1], die)
progress_file.write_file(sys.argv[2], "new")
"""


@pytest.mark.parametrize("where", ["fsync", "replace"])
def test_a_kill_leaves_the_old_file_and_a_later_write_cleans_up(tmp_path: Path, where: str) -> None:
    path = tmp_path / "PROGRESS [1].md"
    path.write_text("old")
    other = tmp_path / ".other.md.00000000.duramen-part"
    other.touch()
    assert subprocess.run([sys.executable, "-c", PROGRAM, where, path]).returncode == -9
    assert path.read_text() == "old"
    assert len(os.listdir(tmp_path)) == 3
    assert not write_file(path, "old"), "unchanged, but it cleans up"
    assert sorted(os.listdir(tmp_path)) == [other.name, path.name]


def test_the_temporary_file_of_a_running_writer_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "PROGRESS.md"
    replace = os.replace

    def interrupted(temporary: str, target: Path) -> None:
        monkeypatch.setattr(os, "replace", replace)
        assert write_file(path, "theirs")  # which cleans up first
        replace(temporary, target)

    monkeypatch.setattr(os, "replace", interrupted)
    assert write_file(path, "mine")
    assert path.read_text() == "mine"
    assert os.listdir(tmp_path) == ["PROGRESS.md"]


def test_a_temporary_file_that_another_process_removed_is_recreated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "PROGRESS.md"
    lock = progress_file.lock_descriptor

    def too_late(handle: int, *, blocking: bool) -> bool:
        monkeypatch.setattr(progress_file, "lock_descriptor", lock)
        progress_file._remove_leftovers(path)  # by another process, between creation and locking
        return lock(handle, blocking=blocking)

    monkeypatch.setattr(progress_file, "lock_descriptor", too_late)
    assert write_file(path, "text")
    assert path.read_text() == "text"


def test_files_are_created_and_written_without_locks_or_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no(*_: object) -> None:
        raise OSError(95, "not supported")

    monkeypatch.setattr(fcntl, "flock", no)
    monkeypatch.setattr(os, "link", no)
    path = tmp_path / "PROGRESS.md"
    assert create_file(path, "a")
    assert not create_file(path, "b")
    assert not _created_late(path, monkeypatch)
    assert path.read_text() == "a"
    assert write_file(path, "c")
    assert os.listdir(tmp_path) == ["PROGRESS.md"]


def _created_late(path: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the file is created if it appears just after the check."""
    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", lambda _: False)
        return create_file(path, "late")


@pytest.mark.promise("H2")
def test_a_file_is_created_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "PROGRESS.md"
    assert create_file(path, "first")
    assert not create_file(path, "second")
    assert not _created_late(path, monkeypatch)
    assert path.read_text() == "first"
    assert os.listdir(tmp_path) == ["PROGRESS.md"]


def test_a_failed_write_leaves_the_old_file_and_reports_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "PROGRESS.md"
    path.write_text("old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DuramenError, match=r"cannot write .*PROGRESS\.md: No space left") as failure:
        write_file(path, "new")
    assert failure.value.hint
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["PROGRESS.md"]


def test_unsuitable_files_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "PROGRESS.md"
    attempts: list[tuple[Callable[[], object], str]] = [
        (lambda: read_file(path), "does not exist"),
        (lambda: write_file(tmp_path / "nowhere" / "PROGRESS.md", ""), "nowhere does not exist\n"),
        (lambda: read_file(tmp_path), "not a file"),
        (lambda: write_file(tmp_path, "x"), "not a file"),
        (lambda: create_file(tmp_path, "x"), "not a file"),
        (lambda: read_file("/dev/zero"), "not a file"),
        (lambda: write_file(path, "x" * (MAX_BYTES + 1)), "at most 1,048,576 bytes"),
        (lambda: write_file(path, "\ud800"), "surrogate"),
    ]
    for attempt, match in attempts:
        with pytest.raises(InvalidInput, match=match) as refusal:
            attempt()
        assert refusal.value.hint
    assert not path.exists()
    path.write_bytes(b"ok\nh\xe9\n")
    with pytest.raises(InvalidInput, match="line 2: not UTF-8"):
        read_file(path)
    path.write_bytes(b"x" * (MAX_BYTES + 1))
    with pytest.raises(InvalidInput, match="at most 1,048,576 bytes"):
        read_file(path)
    path.write_bytes(b"x" * MAX_BYTES)
    assert len(read_file(path)) == MAX_BYTES
