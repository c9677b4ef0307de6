"""`duramen memory …` and `duramen proposals …`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..options import Json, Limit, Store, Workspace

memory = typer.Typer(no_args_is_help=True, help="List, show, search, add, change or forget memories.")
proposals = typer.Typer(no_args_is_help=True, help="List and decide proposals: what may be saved about people.")

MemoryArgument = Annotated[str, typer.Argument(metavar="MEMORY", help="Its id, or enough of its beginning.")]
ProposalArgument = Annotated[str, typer.Argument(metavar="PROPOSAL", help="Its id, or enough of its beginning.")]
Kinds = Annotated[list[str] | None, typer.Option("--kind", "-k", help="Only such memories. Repeatable.")]
Subject = Annotated[
    str | None, typer.Option(help="Only memories about this person, and about no person. Default: all.")
]
NewSubject = Annotated[str | None, typer.Option("--subject", help="The person whom it is about.")]


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
    from ..open_store import open_readonly
    from .list_memories import list_memories

    with open_readonly(store, workspace) as dm:
        list_memories(dm, kind, subject, limit, json)


@memory.command()
def show(
    memory: MemoryArgument, store: Store = "duramen.db", workspace: Workspace = "default", json: Json = False
) -> None:
    """Show a memory: what it says, where it came from, how fresh it is."""
    from ..open_store import open_readonly
    from .show_memory import show_memory

    with open_readonly(store, workspace) as dm:
        show_memory(dm, memory, json)


@memory.command()
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for, in plain words.")],
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    kind: Kinds = None,
    subject: Subject = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="Show at most this many.")] = 10,
    explain: Annotated[bool, typer.Option("--explain", "-e", help="What each score is made of.")] = False,
    json: Json = False,
) -> None:
    """Search what is remembered, best first, by words and, with the model installed, by meaning."""
    from ..open_store import open_readonly
    from .list_memories import search_memories

    with open_readonly(store, workspace) as dm:
        search_memories(dm, query, kind, subject, limit, explain=explain, as_json=json)


@memory.command()
def add(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to remember; - reads it from standard input.")],
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    kind: Annotated[
        str, typer.Option("--kind", "-k", help="fact, preference, identity, blocker, reference, …")
    ] = "fact",
    subject: NewSubject = None,
    title: Annotated[str | None, typer.Option(help="A short heading.")] = None,
    key: Annotated[
        str | None, typer.Option(help="What it is about: a newer one with the same key replaces it.")
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(help="A tag. Repeatable.")] = None,
    json: Json = False,
) -> None:
    """Remember something. Writes."""
    from ..open_store import open_writable
    from .edit import add_memory

    with open_writable(store, workspace) as dm:
        add_memory(dm, text, kind, subject, title, key, tag or [], json)


@memory.command()
def edit(memory: MemoryArgument, store: Store = "duramen.db", workspace: Workspace = "default") -> None:
    """Change a memory in your editor (VISUAL or EDITOR), in the form of its file. Writes.

    What is said about people (preference, identity) counts as proposed and accepted by you.
    """
    from ..open_store import open_writable
    from .edit import edit_memory

    with open_writable(store, workspace) as dm:
        edit_memory(dm, memory)


@memory.command()
def forget(
    memory: MemoryArgument,
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove a memory with every text that said it; it cannot be brought back. Writes."""
    from ..open_store import open_writable
    from .edit import forget_memory

    with open_writable(store, workspace) as dm:
        forget_memory(dm, memory, yes)


@memory.command()
def history(
    memory: MemoryArgument, store: Store = "duramen.db", workspace: Workspace = "default", json: Json = False
) -> None:
    """Show every version of a memory: when it was said, by whom, and what replaced it."""
    from ..open_store import open_readonly
    from .show_memory import show_history

    with open_readonly(store, workspace) as dm:
        show_history(dm, memory, json)


@memory.command()
def confirm(memory: MemoryArgument, store: Store = "duramen.db", workspace: Workspace = "default") -> None:
    """Confirm that a memory is still true: it counts as fresh again. Writes."""
    from ..open_store import open_writable
    from .edit import confirm_memory

    with open_writable(store, workspace) as dm:
        confirm_memory(dm, memory)


@proposals.command("list")
def list_proposals(
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    state: Annotated[str, typer.Option(help="pending, accepted or dismissed.")] = "pending",
    subject: Subject = None,
    json: Json = False,
) -> None:
    """List proposals, newest first: what may be saved, why, and what it rests on."""
    from ..open_store import open_readonly
    from .proposals import list_proposals as print_proposals

    with open_readonly(store, workspace) as dm:
        print_proposals(dm, state, subject, json)


@proposals.command()
def accept(
    proposal: ProposalArgument,
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    content: Annotated[str | None, typer.Option(help="Save it in these words instead.")] = None,
    title: Annotated[str | None, typer.Option(help="A short heading.")] = None,
) -> None:
    """Save what was proposed. Writes."""
    from ..open_store import open_writable
    from .proposals import accept_proposal

    with open_writable(store, workspace) as dm:
        accept_proposal(dm, proposal, content, title)


@proposals.command()
def dismiss(
    proposal: ProposalArgument,
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    note: Annotated[str | None, typer.Option(help="Why; it is journaled.")] = None,
) -> None:
    """Do not save what was proposed; it does not come back. Writes."""
    from ..open_store import open_writable
    from .proposals import dismiss_proposal

    with open_writable(store, workspace) as dm:
        dismiss_proposal(dm, proposal, note)
