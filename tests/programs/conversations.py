"""Conversations for tests of the context: token counters, a recording model, turns, and child processes."""

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

PrintLine = Callable[[str], None]


class CharacterCounter:
    """Every character is a token, so that text which is not counted is noticed."""

    name = "characters"

    def count(self, text: str) -> int:
        return len(text)


class WordCounter:
    """Every word is a token."""

    name = "words"

    def count(self, text: str) -> int:
        return len(text.split())


def texts_of(context: Context) -> list[str]:
    """All texts of a context that a model reads. Images are not text."""
    texts = [context.system, context.memory, context.recalled]
    for message in context.messages:
        if message.call is not None:
            texts += [message.call["id"], message.call["tool"], _compact(message.call["arguments"])]
        elif message.result is not None:
            texts += [message.result["id"], *_content(message.result["content"])]
        else:
            texts += [message.name or "", *_content(message.content)]
    return texts


def count_tokens(context: Context, count: Callable[[str], int]) -> int:
    """The tokens of a context, counted without the code that built it."""
    return sum(map(count, texts_of(context)))


def _content(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [block["text"] if block["type"] == "text" else "" for block in content]


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def digest_of(context: Context) -> str:
    """A hash of everything in a context."""
    whole = repr((context.position, context.tokens, context.trace)).encode("utf-8", "backslashreplace")
    return hashlib.sha256(context.json() + whole).hexdigest()


class RecordingModel:
    """A model that answers with the start of each line of the record, and records every prompt: in memory, and with a
    path also in a file, which survives a kill."""

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
    """A turn with messages, a tool call, and sometimes a decision and an error. Repeated after a kill, it stores only
    the missing events."""
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


SMALL_WINDOW: dict[str, Any] = {"budget": 700, "max_items": 8, "keep_last": 3}
"""A window that is compacted every few turns."""


def converse(
    print_line: PrintLine,
    address: str,
    calls: str,
    first: int,
    turns: int,
    die: tuple[int, str, str, int] | None = None,
) -> None:
    """Take turns and build a context after each. Prints the position and the digest of each context.

    `die` is a turn, "turn" or "context" (where in the turn), a crash point and the number of the visit."""
    with duramen.open(address, window=Window(**SMALL_WINDOW, model=RecordingModel(calls))) as dm:
        session = dm.session("s")
        for number in range(first, turns):
            _arm(die, number, "turn")
            take_turn(session, number)
            _arm(die, number, "context")
            context = session.context()
            disarm()
            print_line(json.dumps([context.position, digest_of(context)]))


def _arm(die: tuple[int, str, str, int] | None, number: int, doing: str) -> None:
    disarm()
    if die is not None and tuple(die[:2]) == (number, doing):
        die_at(*die[2:])


def compact_concurrently(print_line: PrintLine, address: str, gate: str, session: str, calls: str) -> None:
    """Build the context of an uncompacted session at the same time as other processes. Prints its digest."""
    with duramen.open(address, window=Window(**SMALL_WINDOW, model=RecordingModel(calls))) as dm:
        dm.session("other").head()
        print_line("ready")
        pass_gate(gate)
        print_line(digest_of(dm.session(session).context()))


def rebuild(address: str, wanted: list[list[Any]]) -> list[str]:
    """The digests of contexts. Each is given as a workspace, a session, a position and changes of the window."""
    digests = []
    for workspace, session, position, changes in wanted:
        with duramen.open(address, workspace=workspace) as dm:
            digests.append(digest_of(dm.session(session).context(at=position, **changes)))
    return digests


if __name__ == "__main__":
    request = json.loads(sys.stdin.read())
    print(json.dumps(rebuild(request["address"], request["wanted"])))
