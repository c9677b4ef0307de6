"""The last turns of a session, read from its journal."""

from __future__ import annotations

from typing import Any, NamedTuple

from ....context.window.content_blocks import are_blocks, text_of
from ....context.window.conversation import ConversationEntry, EntryKind, conversation_entries
from ....context.window.conversation_reader import ConversationReader
from ....journal.journal import Journal
from .gate import RECENT
from .turns import Called, TurnTaken

_EVENTS = 200
"""So many events of a conversation are looked at: enough for five turns of any use."""


class Taken(NamedTuple):
    """The last turns of a session, oldest first, and whose they are."""

    turns: list[TurnTaken]
    subject: str | None


async def last_turns(journal: Journal, session: str, upto: int) -> Taken:
    """The turns of a session that ended at or before a position: the last one, and some before it."""
    told = await turns_between(journal, session, 1, upto)
    return Taken([turn for turn, _ in told[-RECENT - 1 :]], told[-1][1] if told else None)


async def turns_between(journal: Journal, session: str, first: int, upto: int) -> list[tuple[TurnTaken, str | None]]:
    """The turns of a session that began at or after a position and ended at or before another, oldest first, each with
    whose it is; the newest ones, if there are very many."""
    gathering = ConversationReader(journal)
    places = await gathering.places(session, first, upto, _EVENTS)
    turns: list[tuple[TurnTaken, str | None]] = []
    for entry in conversation_entries(await gathering.readable(session, places)):
        if entry.kind is EntryKind.MESSAGE and entry.data["role"] == "user":
            turns.append((TurnTaken(_text(entry.data["content"]), position=entry.position), entry.subject))
        elif turns:
            turns[-1] = _with(turns[-1][0], entry), turns[-1][1]
    return turns


def _with(turn: TurnTaken, entry: ConversationEntry) -> TurnTaken:
    """A turn with one more thing that happened in it."""
    if entry.kind is EntryKind.MESSAGE and entry.data["role"] == "assistant":
        said = f"{turn.assistant}\n{_text(entry.data['content'])}".strip()
        return TurnTaken(turn.user, turn.calls, said, turn.position)
    if entry.kind is EntryKind.CALL and entry.answer is not None:
        called = Called(
            entry.data["tool"], entry.data["arguments"], not entry.answer.get("error"), _text(entry.answer["output"])
        )
        return TurnTaken(turn.user, (*turn.calls, called), turn.assistant, turn.position)
    return turn


def _text(content: Any) -> str:
    if are_blocks(content):
        return "\n".join(block["text"] for block in content if block.get("type") == "text")
    return text_of(content)
