"""`duramen memory …` and `duramen proposals …`: what is remembered, and what waits for a person to decide."""

from __future__ import annotations

from typing import Annotated

import typer

from ..options import Json, Limit, Store, Workspace

memory = typer.Typer(
    no_args_is_help=True, help="Look at what is remembered, search it, add to it, change it, forget it."
)
proposals = typer.Typer(no_args_is_help=True, help="Look at what may be saved about people, and decide.")

OneMemory = Annotated[str, typer.Argument(metavar="MEMORY", help="Its id, or enough of its beginning.")]
OneProposal = Annotated[str, typer.Argument(metavar="PROPOSAL", help="Its id, or enough of its beginning.")]
Kinds = Annotated[list[str] | None, typer.Option("--kind", "-k", help="Only such memories. Repeatable.")]
Subject = Annotated[str | None, typer.Option(help="What is about this person, and about nobody; else everybody.")]
About = Annotated[str | None, typer.Option("--subject", help="The person whom it is about.")]


@memory.command("list")
def list_(
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    kind: Kinds = None,
    subject: Subject = None,
    limit: Limit = None,
    json: Json = False,
) -> None:
    """List what is remembered, in the order in which it was."""
    from ..open_store import opened
    from .list_memories import list_memories

    with opened(store, workspace) as dm:
        list_memories(dm, kind, subject, limit, json)


@memory.command()
def show(memory: OneMemory, store: Store = "duramen.db", workspace: Workspace = "default", json: Json = False) -> None:
    """Show a memory: what it says, where it came from, how fresh it is."""
    from ..open_store import opened
    from .show_memory import show_memory

    with opened(store, workspace) as dm:
        show_memory(dm, memory, json)


@memory.command()
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for, in plain words.")],
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    kind: Kinds = None,
    subject: Subject = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 10,
    explain: Annotated[bool, typer.Option("--explain", "-e", help="What each score is made of.")] = False,
    json: Json = False,
) -> None:
    """Search what is remembered, best first, by words and, with the model installed, by meaning."""
    from ..open_store import opened
    from .list_memories import search_memories

    with opened(store, workspace) as dm:
        search_memories(dm, query, kind, subject, limit, explain=explain, as_json=json)


@memory.command()
def add(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to remember; - reads it from standard input.")],
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    kind: Annotated[
        str, typer.Option("--kind", "-k", help="fact, preference, identity, blocker, reference, …")
    ] = "fact",
    subject: About = None,
    title: Annotated[str | None, typer.Option(help="A short heading.")] = None,
    key: Annotated[
        str | None, typer.Option(help="What it is about: a newer one with the same key replaces it.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag. Repeatable.")] = None,
    json: Json = False,
) -> None:
    """Remember something. Writes."""
    from ..runs.actions import writable
    from .edit import add_memory

    with writable(store, workspace) as dm:
        add_memory(dm, text, kind, subject, title, key, tag or [], json)


@memory.command()
def edit(memory: OneMemory, store: Store = "duramen.db", workspace: Workspace = "default") -> None:
    """Change a memory in your editor (VISUAL or EDITOR), in the form of its file. Writes.

    What is said about people (preference, identity) counts as proposed and accepted by you.
    """
    from ..runs.actions import writable
    from .edit import edit_memory

    with writable(store, workspace) as dm:
        edit_memory(dm, memory)


@memory.command()
def forget(
    memory: OneMemory,
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a memory with every text that said it; it cannot be brought back. Writes."""
    from ..runs.actions import writable
    from .edit import forget_memory

    with writable(store, workspace) as dm:
        forget_memory(dm, memory, yes)


@memory.command()
def history(
    memory: OneMemory, store: Store = "duramen.db", workspace: Workspace = "default", json: Json = False
) -> None:
    """Show every version of a memory: when it was said, by whom, and what replaced it."""
    from ..open_store import opened
    from .show_memory import show_history

    with opened(store, workspace) as dm:
        show_history(dm, memory, json)


@memory.command()
def verify(memory: OneMemory, store: Store = "duramen.db", workspace: Workspace = "default") -> None:
    """Say that you checked a memory and that it holds: it is as fresh as on its first day. Writes."""
    from ..runs.actions import writable
    from .edit import verify_memory

    with writable(store, workspace) as dm:
        verify_memory(dm, memory)


@proposals.command("list")
def list_proposals(
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    state: Annotated[str, typer.Option(help="pending, accepted or dismissed.")] = "pending",
    subject: Subject = None,
    json: Json = False,
) -> None:
    """List proposals, newest first: what may be saved, why, and what it rests on."""
    from ..open_store import opened
    from .proposals import list_all

    with opened(store, workspace) as dm:
        list_all(dm, state, subject, json)


@proposals.command()
def accept(
    proposal: OneProposal,
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    content: Annotated[str | None, typer.Option(help="Save it in these words instead.")] = None,
    title: Annotated[str | None, typer.Option(help="A short heading.")] = None,
) -> None:
    """Save what was proposed. Writes."""
    from ..runs.actions import writable
    from .proposals import accept as save

    with writable(store, workspace) as dm:
        save(dm, proposal, content, title)


@proposals.command()
def dismiss(
    proposal: OneProposal,
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    note: Annotated[str | None, typer.Option(help="Why; it is journaled.")] = None,
) -> None:
    """Do not save what was proposed; it does not come back. Writes."""
    from ..runs.actions import writable
    from .proposals import dismiss as drop

    with writable(store, workspace) as dm:
        drop(dm, proposal, note)
