"""`duramen memory add`, `edit` and `forget`. Each leaves an event that says who gave the command."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile

import typer

from ...api._sync.duramen import Duramen
from ...errors import DuramenError, FileMalformed, InvalidInput
from ..runs.actions import actor
from ..screen import Screen, expect_json, print_json
from ..terminal_text import visible
from .list_memories import SHORT, fields, says
from .show_memory import found

_DECIDED_BY_PEOPLE = ("preference", "identity")


def add_memory(
    dm: Duramen,
    text: str,
    kind: str,
    subject: str | None,
    title: str | None,
    key: str | None,
    tags: list[str],
    as_json: bool,
) -> None:
    """Remember something; what is said about people is proposed and accepted by whoever says it here."""
    text = sys.stdin.read() if text == "-" else text
    metadata = {"tags": tags} if tags else None
    known = None
    if kind in _DECIDED_BY_PEOPLE:
        done = dm.memory.proposals.make(
            *(text,), kind=kind, subject=subject, actor=actor(), accepted=True, title=title, key=key, metadata=metadata
        )
        known = None if done is None or done.memory is None else dm.memory.get(done.memory)
    memory = known or dm.memory.remember(
        text, kind=kind, subject=subject, actor=actor(), title=title, key=key, metadata=metadata
    )
    if as_json:
        expect_json()
        print_json(fields(memory))
    else:
        Screen().say("Remembered as ", (visible(memory.id), "cyan"), ".")


def edit_memory(dm: Duramen, id: str) -> None:
    """Let somebody change a memory in their editor. What cannot be read stays in the file that they edited."""
    memory = found(dm, id)
    before = dm.memory.file_text(memory.id)
    handle, path = tempfile.mkstemp(prefix="duramen-", suffix=".md")
    with open(handle, "w", encoding="utf-8", newline="\n") as file:
        file.write(before)
    _edit(path)
    with open(path, encoding="utf-8", newline="") as file:
        after = file.read()
    try:
        changed = None if after == before else dm.memory.edit(memory.id, after, actor=actor())
    except FileMalformed as error:
        raise InvalidInput(f"line {error.line}: {error.reason}", hint=f"nothing is lost: it is in {path}") from None
    except DuramenError as error:
        error.hint = f"{error.hint}; what you wrote is in {path}" if error.hint else f"what you wrote is in {path}"
        raise
    os.unlink(path)
    if changed is None or changed == memory:
        Screen().say("Nothing changed.")
    else:
        Screen().say("Changed: ", (visible(changed.id), "cyan"), f"  {visible(says(changed))}")


def _edit(path: str) -> None:
    chosen = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.run([*shlex.split(chosen), path]).returncode
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InvalidInput(f"{chosen} cannot be started: {why}", hint="set EDITOR to your editor") from None
    if code:
        raise InvalidInput(f"{chosen} ended with {code}: nothing is changed", hint=f"what you wrote is in {path}")


def forget_memory(dm: Duramen, id: str, yes: bool) -> None:
    """Remove a memory, after a question."""
    memory = found(dm, id)
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidInput("forgetting cannot be undone", hint="say --yes if nobody is there to be asked")
        Screen(stderr=True).say(visible(says(memory))[:300])
        typer.confirm("Forget this for good?", abort=True, err=True)
    done = dm.memory.forget(memory.id, actor=actor())
    gone = f"{done.rows} versions, {done.payloads} texts, {done.words} entries of words, {done.vectors} vectors"
    Screen().say("Forgotten: ", (visible(memory.id[:SHORT]), "cyan"), f" ({gone}).")


def verify_memory(dm: Duramen, id: str) -> None:
    """Somebody has checked a memory, and it holds."""
    memory = dm.memory.confirm(found(dm, id).id, actor=actor())
    Screen().say("Confirmed: ", (visible(memory.id[:SHORT]), "cyan"), f"  {visible(says(memory))}")
