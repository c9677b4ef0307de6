"""Conversations for the tests of working memory: counters and models of the tests' own, turns that any session can
take, and what children do with them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from collections.abc import Callable
from typing import Any

import duramen
from duramen import Context, Session, Window
from duramen.testing.crash import die_at, disarm

from .child_processes import pass_gate

Say = Callable[[str], None]


class Characters:
    """Every character is a token: nothing that is not counted stays hidden."""

    name = "characters"

    def count(self, text: str) -> int:
        return len(text)


class Words:
    """Every word is a token."""

    name = "words"

    def count(self, text: str) -> int:
        return len(text.split())


def texts_of(context: Context) -> list[str]:
    """Every text that a model would read of a context; pictures are not text."""
    found = [context.system, context.memory, context.recalled]
    for said in context.messages:
        if said.call is not None:
            found += [said.call["id"], said.call["tool"], _compact(said.call["arguments"])]
        elif said.result is not None:
            found += [said.result["id"], *_content(said.result["content"])]
        else:
            found += [said.name or "", *_content(said.content)]
    return found


def recount(context: Context, count: Callable[[str], int]) -> int:
    """What a context takes, counted without any of the code that built it."""
    return sum(map(count, texts_of(context)))


def _content(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [block["text"] if block["type"] == "text" else "" for block in content]


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def digest_of(context: Context) -> str:
    """A short stand-in for all that a context is."""
    whole = repr((context.position, context.tokens, context.trace)).encode("utf-8", "backslashreplace")
    return hashlib.sha256(context.json() + whole).hexdigest()


class Recorder:
    """A model that notes the beginnings of the record's lines, and remembers every prompt; in a file too, if one is
    given, where processes that were killed cannot take it along."""

    name = "recorder"

    def __init__(self, file: str | None = None) -> None:
        self.prompts: list[str] = []
        self.systems: list[str] = []
        self._file = file

    def complete(self, prompt: str, *, system: str = "", max_tokens: int = 512) -> str:
        self.prompts.append(prompt)
        self.systems.append(system)
        if self._file is not None:
            self._write(hashlib.sha256(prompt.encode()).hexdigest())
        record = re.search(r"<record-(\w+)>\n(.*)\n</record-\1>", prompt, re.DOTALL)
        return "\n".join(line[:60] for line in (record[2] if record else "").splitlines()[:6])

    def _write(self, line: str) -> None:
        assert self._file is not None
        file = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(file, f"{line}\n".encode())
        os.close(file)


def take_turn(session: Session, number: int) -> None:
    """Everything that a turn can have. Taken again after a kill, it stores only what is missing."""
    call = f"call-{number}"
    session.say("user", f"Question {number}: what does flight LH{number} to Berlin cost?", key=f"{number}.asked")
    session.tool_call("search", {"flight": f"LH{number}"}, id=call, key=f"{number}.called")
    output = f"LH{number} costs {number * 99} euro\n" * (300 if number % 5 == 0 else 2)
    session.tool_result(call, output, key=f"{number}.returned")
    if number % 4 == 0:
        session.decide(f"Book LH{number}", reason=f"{number * 99} euro is cheap", key=f"{number}.decided")
    if number % 6 == 0:
        erred = session.log_error(f"TimeoutError: LH{number}", key=f"{number}.erred")
        session.log_fix(erred, "asked again later", key=f"{number}.resolved")
    session.say("assistant", f"LH{number} costs {number * 99} euro.", key=f"{number}.answered")


SMALL: dict[str, Any] = {"budget": 700, "max_items": 8, "keep_last": 3}
"""A window that is compacted every few turns."""


def converse(
    say: Say, address: str, calls: str, first: int, turns: int, die: tuple[int, str, str, int] | None = None
) -> None:
    """Take turns, each with a context; say the position and the digest of each context. To die: in which turn, in the
    "turn" itself or in its "context", at which crash point, at which visit."""
    with duramen.open(address, window=Window(**SMALL, model=Recorder(calls))) as dm:
        session = dm.session("s")
        for number in range(first, turns):
            _arm(die, number, "turn")
            take_turn(session, number)
            _arm(die, number, "context")
            context = session.context()
            disarm()
            say(json.dumps([context.position, digest_of(context)]))


def _arm(die: tuple[int, str, str, int] | None, number: int, doing: str) -> None:
    disarm()
    if die is not None and tuple(die[:2]) == (number, doing):
        die_at(*die[2:])


def compact_together(say: Say, address: str, gate: str, session: str, calls: str) -> None:
    """Build the context of a session that nobody compacted yet, at the same moment as others."""
    with duramen.open(address, window=Window(**SMALL, model=Recorder(calls))) as dm:
        dm.session("other").head()
        say("ready")
        pass_gate(gate)
        say(digest_of(dm.session(session).context()))


def rebuild(address: str, wanted: list[list[Any]]) -> list[str]:
    """The digests of contexts: each a workspace, a session, a position and changes of the window."""
    found = []
    for workspace, session, position, changes in wanted:
        with duramen.open(address, workspace=workspace) as dm:
            found.append(digest_of(dm.session(session).context(at=position, **changes)))
    return found


if __name__ == "__main__":
    order = json.loads(sys.stdin.read())
    print(json.dumps(rebuild(order["address"], order["wanted"])))
