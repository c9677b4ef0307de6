"""The progress record: goal, completed steps, blocker, next action, context. Pure: no file, no journal.

Texts are normalised when a record is created, so that a record is equal after it was written and read:

- Line ends become ``\\n``. NUL and lone surrogates become U+FFFD, because a text file cannot contain them.
- Goal, steps, blocker and next action are stripped. An empty blocker or next action becomes None.
- The context loses blank lines at its start and end. Everything else stays, including indentation.
- A step is listed once. Steps that differ only in white space are the same step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ...errors import InvalidInput, shown

Change = dict[str, Any]
"""The change of one field as plain data: {"field": "goal", "value": …}. For completed steps: {"field": "completed",
"added": […], "removed": […]}, with "order": […] if the new steps are not all at the end."""

_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Progress:
    """A goal and the progress towards it. Each method returns a new record or raises `InvalidInput`.

    A goal that is not finished has a next action, which is not one of the completed steps. A finished goal has no next
    action and no blocker.
    """

    goal: str = ""
    completed: tuple[str, ...] = ()
    blocker: str | None = None
    next_action: str | None = None
    context: str = ""
    finished: bool = False

    def __post_init__(self) -> None:
        tidied = {
            "goal": _line("goal", self.goal),
            "completed": _steps(self.completed),
            "blocker": _optional("blocker", self.blocker),
            "next_action": _optional("next action", self.next_action),
            "context": without_blank_lines_around(_text("context", self.context)),
            "finished": bool(self.finished),
        }
        for name, value in tidied.items():
            object.__setattr__(self, name, value)
        _check(self)

    @property
    def unfinished(self) -> bool:
        """Whether there is a goal that is not finished."""
        return bool(self.goal) and not self.finished

    def has_done(self, step: str) -> bool:
        """Whether the step is completed."""
        return same_step(_text("step", step)) in map(same_step, self.completed)

    def begin(self, goal: str, next_action: str, context: str = "") -> Progress:
        """Set the goal. If it is already the goal, finished or not, nothing changes, so that a program can call this
        each time it starts. Raises `InvalidInput` if another goal is not finished."""
        goal = _needed("goal", goal)
        if self.goal == goal:
            return self
        if self.unfinished:
            raise InvalidInput(
                f"the goal {_brief(self.goal)} is not finished yet",
                hint="call finish() first, or reword() to say the same goal in other words",
            )
        return Progress(goal, () if self.goal else self.completed, None, next_action, context or self.context)

    def complete(self, step: str, next_action: str | None = None) -> Progress:
        """Add a completed step. Without `next_action` the current one stays, unless it is this step. A step that is
        already completed changes nothing."""
        step = _needed("step", step)
        if self.has_done(step):
            return self
        self._expect_unfinished("complete a step")
        if next_action is None and same_step(self.next_action or "") != same_step(step):
            next_action = self.next_action
        return replace(self, completed=(*self.completed, step), next_action=next_action)

    def block(self, why: str) -> Progress:
        """Set the blocker."""
        self._expect_unfinished("be blocked")
        return replace(self, blocker=_needed("blocker", why))

    def unblock(self) -> Progress:
        """Remove the blocker."""
        return replace(self, blocker=None)

    def plan(self, next_action: str) -> Progress:
        """Set the next action."""
        self._expect_unfinished("plan")
        return replace(self, next_action=next_action)

    def reword(self, goal: str) -> Progress:
        """Reword the goal. Completed steps stay."""
        self._expect_unfinished("change the goal")
        return replace(self, goal=_needed("goal", goal))

    def describe(self, context: str) -> Progress:
        """Replace the context."""
        return replace(self, context=context)

    def finish(self, step: str | None = None) -> Progress:
        """Mark the goal as finished, and `step` as its last step. Clears the next action and the blocker."""
        if self.finished and (step is None or self.has_done(step)):
            return self
        self._expect_unfinished("finish")
        done = self.completed if step is None else (*self.completed, _needed("step", step))
        return replace(self, completed=done, blocker=None, next_action=None, finished=True)

    def reopen(self, next_action: str) -> Progress:
        """Continue a finished goal. Completed steps stay."""
        if not self.finished:
            raise InvalidInput("cannot reopen: the goal is not finished", hint="call plan() to change the next action")
        return replace(self, next_action=next_action, finished=False)

    def _expect_unfinished(self, what: str) -> None:
        if not self.unfinished:
            state, way = ("the goal is finished", "reopen()") if self.finished else ("there is no goal yet", "begin()")
            raise InvalidInput(f"cannot {what}: {state}", hint=f"call {way} first")


def changes(before: Progress, after: Progress) -> list[Change]:
    """The changes from which `apply` makes `after` out of `before`. Empty if they are equal."""
    found: list[Change] = []
    for name in ("goal", "completed", "blocker", "next_action", "context", "finished"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            found.append(_steps_change(old, new) if name == "completed" else {"field": name, "value": new})
    return found


def _steps_change(old: tuple[str, ...], new: tuple[str, ...]) -> Change:
    had, has = set(old), set(new)
    added, removed = [one for one in new if one not in had], [one for one in old if one not in has]
    change: Change = {"field": "completed", "added": added, "removed": removed}
    if [one for one in old if one in has] + added != list(new):
        change["order"] = list(new)
    return change


def apply(before: Progress, changes: Iterable[Change]) -> Progress:
    """The record after these changes, which may come from many events. Takes linear time. Only the result must be a
    valid record: raises `InvalidInput` if it is not, or for an unknown field."""
    fields = {name: getattr(before, name) for name in Progress.__dataclass_fields__}
    steps = dict.fromkeys(before.completed)
    for change in changes:
        name = change.get("field")
        if name == "completed":
            steps = _changed_steps(steps, change)
        elif name in fields and "value" in change:
            fields[name] = change["value"]
        else:
            raise InvalidInput(
                f"unknown progress field {shown(name)}", hint="a newer version of duramen wrote it; upgrade duramen"
            )
    return Progress(**fields | {"completed": tuple(steps)})


def _changed_steps(steps: dict[str, None], change: Change) -> dict[str, None]:
    for step in change.get("removed", ()):
        steps.pop(step, None)
    steps.update(dict.fromkeys(change.get("added", ())))
    if "order" not in change:
        return steps
    ordered = dict.fromkeys(one for one in change["order"] if one in steps)
    return ordered | steps  # steps that another writer added in the meantime stay, at the end


def same_step(step: str) -> str:
    """The step with normalised white space. Steps are the same if this is equal."""
    return " ".join(step.split())


def _check(progress: Progress) -> None:
    following = progress.next_action
    if progress.finished and (following or progress.blocker):
        raise InvalidInput(
            "a finished goal cannot have a next action or a blocker",
            hint="call finish(), which clears them, or reopen() to continue",
        )
    if progress.unfinished and following is None:
        raise InvalidInput(
            f"there is no next action, and the goal {_brief(progress.goal)} is not finished",
            hint="pass next_action=…, or call finish()",
        )
    if following is not None and progress.has_done(following):
        raise InvalidInput(
            f"the next action {_brief(following)} is already completed",
            hint="give another next action, or word it differently if it must be done again",
        )


def _text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"the {what} must be text, not {type(value).__name__}", hint="give a str")
    return _UNWRITABLE.sub("\ufffd", value.replace("\r\n", "\n").replace("\r", "\n"))


def _line(what: str, value: object) -> str:
    return _text(what, value).strip()


def _optional(what: str, value: object) -> str | None:
    return None if value is None else _line(what, value) or None


def _needed(what: str, value: object) -> str:
    text = _line(what, value)
    if not text:
        raise InvalidInput(f"the {what} is empty", hint="describe it in a few words")
    return text


def _steps(steps: Iterable[str]) -> tuple[str, ...]:
    if isinstance(steps, str):
        raise InvalidInput("the completed steps must be a list, not text", hint="give a tuple of steps")
    by_words: dict[str, str] = {}
    for step in steps:
        text = _needed("step", step)
        by_words.setdefault(same_step(text), text)
    return tuple(by_words.values())


def without_blank_lines_around(text: str) -> str:
    """The text without blank lines at its start and end."""
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    if first >= last:
        return ""
    end = text.find("\n", last)
    return text[text.rfind("\n", 0, first) + 1 : end if end >= 0 else len(text)]


def _brief(text: str) -> str:
    words = same_step(text)
    return repr(words if len(words) <= 60 else words[:59] + "…")
