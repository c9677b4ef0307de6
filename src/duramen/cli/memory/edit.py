"""`duramen memory add`, `edit`, `forget` and `confirm`. The actor of their events is the user of the command."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import tempfile

import typer

from ...api._sync.duramen import Duramen
from ...errors import DuramenError, FileMalformed, InvalidInput
from ..actor import cli_actor
from ..console import PlainConsole, print_json, use_utf8_stdout
from ..terminal_text import visible
from .list_memories import SHORT_ID, memory_fields, memory_line
from .show_memory import find_memory

_PROPOSED_KINDS = ("preference", "identity")


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
    """Add a memory. A memory about a person is proposed, and accepted by the user of the command."""
    text = sys.stdin.read() if text == "-" else text
    metadata = {"tags": tags} if tags else None
    known = None
    if kind in _PROPOSED_KINDS:
        done = dm.memory.proposals.make(
            *(text,),
            kind=kind,
            subject=subject,
            actor=cli_actor(),
            accepted=True,
            title=title,
            key=key,
            metadata=metadata,
        )
        known = None if done is None or done.memory is None else dm.memory.get(done.memory)
    memory = known or dm.memory.remember(
        text, kind=kind, subject=subject, actor=cli_actor(), title=title, key=key, metadata=metadata
    )
    if as_json:
        use_utf8_stdout()
        print_json(memory_fields(memory))
    else:
        PlainConsole().print_line("Remembered as ", (visible(memory.id), "cyan"), ".")


def edit_memory(dm: Duramen, id: str) -> None:
    """Edit a memory in the user's editor. If the text cannot be parsed, the edited file is kept."""
    memory = find_memory(dm, id)
    before = dm.memory.file_text(memory.id)
    handle, path = tempfile.mkstemp(prefix="duramen-", suffix=".md")
    with open(handle, "w", encoding="utf-8", newline="\n") as file:
        file.write(before)
    _run_editor(path)
    with open(path, encoding="utf-8", newline="") as file:
        after = file.read()
    try:
        changed = None if after == before else dm.memory.edit(memory.id, after, actor=cli_actor())
    except FileMalformed as error:
        raise InvalidInput(f"line {error.line}: {error.reason}", hint=f"your text is saved in {path}") from None
    except DuramenError as error:
        saved = f"your text is saved in {path}"
        error.hint = f"{error.hint}; {saved}" if error.hint else saved
        raise
    os.unlink(path)
    if changed is None or changed == memory:
        PlainConsole().print_line("Nothing changed.")
    else:
        PlainConsole().print_line("Changed: ", (visible(changed.id), "cyan"), f"  {visible(memory_line(changed))}")


def _run_editor(path: str) -> None:
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    try:
        code = subprocess.run([*shlex.split(editor), path]).returncode
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise InvalidInput(
            f"{editor} cannot be started: {why}", hint="set EDITOR in the environment to your editor"
        ) from None
    if code:
        raise InvalidInput(
            f"{editor} exited with code {code}, so nothing was changed", hint=f"your text is saved in {path}"
        )


def forget_memory(dm: Duramen, id: str, yes: bool) -> None:
    """Remove a memory after the user has confirmed it."""
    memory = find_memory(dm, id)
    if not yes:
        if not sys.stdin.isatty():
            raise InvalidInput(
                "forgetting cannot be undone and needs a confirmation", hint="give --yes to run this without a terminal"
            )
        PlainConsole(stderr=True).print_line(visible(memory_line(memory))[:300])
        typer.confirm("Forget this memory? This cannot be undone.", abort=True, err=True)
    done = dm.memory.forget(memory.id, actor=cli_actor())
    removed = f"{done.rows} versions, {done.payloads} texts, {done.words} word entries, {done.vectors} vectors"
    PlainConsole().print_line("Forgotten: ", (visible(memory.id[:SHORT_ID]), "cyan"), f" (removed {removed}).")


def confirm_memory(dm: Duramen, id: str) -> None:
    """Record that a memory is still true."""
    memory = dm.memory.confirm(find_memory(dm, id).id, actor=cli_actor())
    PlainConsole().print_line(
        "Confirmed: ", (visible(memory.id[:SHORT_ID]), "cyan"), f"  {visible(memory_line(memory))}"
    )
