"""How far the work has come: the goal, what is done, what is in the way, what is next. Pure: no file, no journal.

Texts are tidied once, when a record is made, so that what is written down comes back as it was:

- line ends are ``\\n``; NUL and halves of surrogate pairs become U+FFFD, because no text file can hold them;
- a goal, step, blocker or next action loses white space around it; an empty blocker or next action is None;
- the context loses the blank lines around it and keeps everything else, its indentation too;
- a step counts once: the same words with other white space between them are the same step.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ...errors import InvalidInput

Change = dict[str, Any]
"""One field that differs, as plain data: {"field": "goal", "value": …}, and for the completed steps
{"field": "completed", "added": […], "removed": […]}, with "order": […] if they do not just follow the others."""

_UNWRITABLE = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Progress:
    """A goal and the way to it. Each method gives a new record, or refuses and leaves everything as it is.

    While there is a goal that is not finished, there is a next action, and it is not a step that is done already.
    What is finished has no next action and no blocker.
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
        """Whether there is a goal that is still to be reached."""
        return bool(self.goal) and not self.finished

    def has_done(self, step: str) -> bool:
        """Whether the step is completed."""
        return same_step(step) in map(same_step, self.completed)

    def begin(self, goal: str, next_action: str, context: str = "") -> Progress:
        """Set out for a goal. For the goal that is there already, finished or not, this changes nothing, so that a
        program can say it each time it starts. A goal that is not finished is not given up for another one."""
        goal = _needed("goal", goal)
        if self.goal == goal:
            return self
        if self.unfinished:
            raise InvalidInput(
                f"the goal {_brief(self.goal)} is not finished yet",
                hint="finish() it first, or aim() to say the same goal in other words",
            )
        return Progress(goal, () if self.goal else self.completed, None, next_action, context or self.context)

    def complete(self, step: str, next_action: str | None = None) -> Progress:
        """A step is done. Without a `next_action` the one that was planned stays, unless it was this very step.
        A step that is completed already changes nothing."""
        step = _needed("step", step)
        if self.has_done(step):
            return self
        self._expect_unfinished("complete a step")
        if next_action is None and same_step(self.next_action or "") != same_step(step):
            next_action = self.next_action
        return replace(self, completed=(*self.completed, step), next_action=next_action)

    def block(self, why: str) -> Progress:
        """Something is in the way."""
        self._expect_unfinished("be blocked")
        return replace(self, blocker=_needed("blocker", why))

    def unblock(self) -> Progress:
        """Nothing is in the way any more."""
        return replace(self, blocker=None)

    def plan(self, next_action: str) -> Progress:
        """Do this next."""
        self._expect_unfinished("plan")
        return replace(self, next_action=next_action)

    def aim(self, goal: str) -> Progress:
        """Say the goal in other words; what was done for it stays done."""
        self._expect_unfinished("change the goal")
        return replace(self, goal=_needed("goal", goal))

    def describe(self, context: str) -> Progress:
        """Put this in place of the context."""
        return replace(self, context=context)

    def finish(self, step: str | None = None) -> Progress:
        """The goal is reached, with this as its last step if one is given. Nothing is next, nothing is in the way."""
        if self.finished and (step is None or self.has_done(step)):
            return self
        self._expect_unfinished("finish")
        done = self.completed if step is None else (*self.completed, _needed("step", step))
        return replace(self, completed=done, blocker=None, next_action=None, finished=True)

    def reopen(self, next_action: str) -> Progress:
        """Go on with a goal that was finished; what was done stays done."""
        if not self.finished:
            raise InvalidInput("what is not finished cannot be reopened", hint="plan() says what to do next")
        return replace(self, next_action=next_action, finished=False)

    def _expect_unfinished(self, what: str) -> None:
        if not self.unfinished:
            state, way = ("the goal is finished", "reopen()") if self.finished else ("there is no goal yet", "begin()")
            raise InvalidInput(f"cannot {what}: {state}", hint=f"{way} comes first")


def changes(before: Progress, after: Progress) -> list[Change]:
    """What to journal so that `apply` makes `after` of `before`; nothing if they are equal."""
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
    """The record after these changes. Takes the changes of many events at once, in time linear in them: only what they
    come to has to be a record that may be."""
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
                f"a change of {name!r} is not known here", hint="a newer duramen wrote it: upgrade this one"
            )
    return Progress(**fields | {"completed": tuple(steps)})


def _changed_steps(steps: dict[str, None], change: Change) -> dict[str, None]:
    for step in change.get("removed", ()):
        steps.pop(step, None)
    steps.update(dict.fromkeys(change.get("added", ())))
    if "order" not in change:
        return steps
    ordered = dict.fromkeys(one for one in change["order"] if one in steps)
    return ordered | steps  # steps that another writer added meanwhile stay, at the end


def same_step(step: str) -> str:
    """What makes two steps the same: their words."""
    return " ".join(step.split())


def _check(progress: Progress) -> None:
    following = progress.next_action
    if progress.finished and (following or progress.blocker):
        raise InvalidInput(
            "what is finished has no next action and no blocker", hint="finish() clears them, reopen() goes on"
        )
    if progress.unfinished and following is None:
        raise InvalidInput(
            f"there is no next action, and the goal {_brief(progress.goal)} is not finished",
            hint="say what comes next (next_action=…), or finish()",
        )
    if following is not None and progress.has_done(following):
        raise InvalidInput(
            f"the next action {_brief(following)} is already completed",
            hint="say what comes next, or say how it differs this time: a step counts once",
        )


def _text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"a {what} is text, not {type(value).__name__}", hint="give a str")
    return _UNWRITABLE.sub("\ufffd", value.replace("\r\n", "\n").replace("\r", "\n"))


def _line(what: str, value: object) -> str:
    return _text(what, value).strip()


def _optional(what: str, value: object) -> str | None:
    return None if value is None else _line(what, value) or None


def _needed(what: str, value: object) -> str:
    text = _line(what, value)
    if not text:
        raise InvalidInput(f"the {what} is empty", hint="say it in a few words")
    return text


def _steps(steps: Iterable[str]) -> tuple[str, ...]:
    if isinstance(steps, str):
        raise InvalidInput("completed steps are a list, not one text", hint="give a tuple of steps")
    by_words: dict[str, str] = {}
    for step in steps:
        text = _needed("step", step)
        by_words.setdefault(same_step(text), text)
    return tuple(by_words.values())


def without_blank_lines_around(text: str) -> str:
    """The text from its first line that is not blank to its last."""
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    if first >= last:
        return ""
    end = text.find("\n", last)
    return text[text.rfind("\n", 0, first) + 1 : end if end >= 0 else len(text)]


def _brief(text: str) -> str:
    words = same_step(text)
    return repr(words if len(words) <= 60 else words[:59] + "…")
