"""`duramen memory …` and `duramen proposals …`."""

from __future__ import annotations

from typing import Annotated

import typer

from ..options import Json, Limit, Store, Workspace

memory = typer.Typer(no_args_is_help=True, help="List, show, search, add, edit, confirm or forget memories.")
proposals = typer.Typer(
    no_args_is_help=True, help="List, accept or dismiss proposals: what an agent wants to save about people."
)

MemoryArgument = Annotated[
    str, typer.Argument(metavar="MEMORY", help="The id of a memory, or at least its first 4 characters.")
]
ProposalArgument = Annotated[
    str, typer.Argument(metavar="PROPOSAL", help="The id of a proposal, or at least its first 4 characters.")
]
Kinds = Annotated[
    list[str] | None, typer.Option("--kind", "-k", metavar="KIND", help="Only memories of this kind. Repeatable.")
]
Subject = Annotated[
    str | None,
    typer.Option(metavar="PERSON", help="Only those about this person and those about no person. Default: all."),
]
NewSubject = Annotated[
    str | None, typer.Option("--subject", metavar="PERSON", help="The person that the memory is about.")
]


@memory.command("list")
def list_(
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    kind: Kinds = None,
    subject: Subject = None,
    limit: Limit = None,
    json: Json = False,
) -> None:
    """List memories, oldest first."""
    from ..open_store import open_readonly
    from .list_memories import list_memories

    with open_readonly(store, workspace) as dm:
        list_memories(dm, kind, subject, limit, json)


@memory.command()
def show(
    memory: MemoryArgument, store: Store = "duramen.db", workspace: Workspace = "default", json: Json = False
) -> None:
    """Show a memory: its text, its source, and whether it is stale."""
    from ..open_store import open_readonly
    from .show_memory import show_memory

    with open_readonly(store, workspace) as dm:
        show_memory(dm, memory, json)


@memory.command()
def search(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to search for, in plain words.")],
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    kind: Kinds = None,
    subject: Subject = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, metavar="N", help="Show at most N memories.")] = 10,
    explain: Annotated[bool, typer.Option("--explain", "-e", help="Show the parts of each score.")] = False,
    json: Json = False,
) -> None:
    """Search memories by words and, if the embedding model is installed, by meaning. The best match comes first."""
    from ..open_store import open_readonly
    from .list_memories import search_memories

    with open_readonly(store, workspace) as dm:
        search_memories(dm, query, kind, subject, limit, explain=explain, as_json=json)


@memory.command()
def add(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The text, or - to read it from standard input.")],
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    kind: Annotated[
        str,
        typer.Option(
            "--kind", "-k", metavar="KIND", help="fact, preference, identity, blocker, reference, or your own."
        ),
    ] = "fact",
    subject: NewSubject = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="A short heading.")] = None,
    key: Annotated[
        str | None,
        typer.Option(metavar="KEY", help="The topic. A newer memory with the same key replaces this one."),
    ] = None,
    tag: Annotated[list[str] | None, typer.Option(metavar="TAG", help="A tag. Repeatable.")] = None,
    json: Json = False,
) -> None:
    """Add a memory. Writes to the store."""
    from ..open_store import open_writable
    from .edit import add_memory

    with open_writable(store, workspace) as dm:
        add_memory(dm, text, kind, subject, title, key, tag or [], json)


@memory.command()
def edit(memory: MemoryArgument, store: Store = "duramen.db", workspace: Workspace = "default") -> None:
    """Edit a memory as a file in your editor (VISUAL or EDITOR). Writes to the store.

    Statements about people (preference, identity) count as accepted by you.
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
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
) -> None:
    """Remove a memory and every stored text that states it. This cannot be undone. Writes to the store."""
    from ..open_store import open_writable
    from .edit import forget_memory

    with open_writable(store, workspace) as dm:
        forget_memory(dm, memory, yes)


@memory.command()
def history(
    memory: MemoryArgument, store: Store = "duramen.db", workspace: Workspace = "default", json: Json = False
) -> None:
    """Show every version of a memory: when it was recorded, by whom, and when it ended."""
    from ..open_store import open_readonly
    from .show_memory import show_history

    with open_readonly(store, workspace) as dm:
        show_history(dm, memory, json)


@memory.command()
def confirm(memory: MemoryArgument, store: Store = "duramen.db", workspace: Workspace = "default") -> None:
    """Confirm that a memory is still true, so that it counts as fresh again. Writes to the store."""
    from ..open_store import open_writable
    from .edit import confirm_memory

    with open_writable(store, workspace) as dm:
        confirm_memory(dm, memory)


@proposals.command("list")
def list_proposals(
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    state: Annotated[str, typer.Option(metavar="STATE", help="pending, accepted or dismissed.")] = "pending",
    subject: Subject = None,
    json: Json = False,
) -> None:
    """List proposals, newest first, with the words that they are based on."""
    from ..open_store import open_readonly
    from .proposals import list_proposals as print_proposals

    with open_readonly(store, workspace) as dm:
        print_proposals(dm, state, subject, json)


@proposals.command()
def accept(
    proposal: ProposalArgument,
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    content: Annotated[str | None, typer.Option(metavar="TEXT", help="Save this text instead.")] = None,
    title: Annotated[str | None, typer.Option(metavar="TEXT", help="A short heading.")] = None,
) -> None:
    """Accept a proposal and save it. Writes to the store."""
    from ..open_store import open_writable
    from .proposals import accept_proposal

    with open_writable(store, workspace) as dm:
        accept_proposal(dm, proposal, content, title)


@proposals.command()
def dismiss(
    proposal: ProposalArgument,
    store: Store = "duramen.db",
    workspace: Workspace = "default",
    note: Annotated[str | None, typer.Option(metavar="TEXT", help="The reason. It is journaled.")] = None,
) -> None:
    """Dismiss a proposal. The same content is not proposed again. Writes to the store."""
    from ..open_store import open_writable
    from .proposals import dismiss_proposal

    with open_writable(store, workspace) as dm:
        dismiss_proposal(dm, proposal, note)
