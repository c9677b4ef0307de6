"""Reads the last turns of a session from its journal."""

from __future__ import annotations

from typing import Any, NamedTuple

from ....context.window.content_blocks import are_blocks, text_of
from ....context.window.conversation import ConversationEntry, EntryKind, conversation_entries
from ....context.window.conversation_reader import ConversationReader
from ....journal.journal import Journal
from .rule_set import RECENT
from .turns import ToolCall, TurnRecord

_EVENTS = 200
"""How many events of a conversation are read at most: enough for five turns."""


class RecentTurns(NamedTuple):
    """The last turns of a session, oldest first, and their subject."""

    turns: list[TurnRecord]
    subject: str | None


async def recent_turns(journal: Journal, session: str, upto: int) -> RecentTurns:
    """The last turn of a session that ended at or before a position, and up to `RECENT` turns before it."""
    found = await turns_between(journal, session, 1, upto)
    return RecentTurns([turn for turn, _ in found[-RECENT - 1 :]], found[-1][1] if found else None)


async def turns_between(journal: Journal, session: str, first: int, upto: int) -> list[tuple[TurnRecord, str | None]]:
    """The turns of a session between two positions, oldest first, each with its subject. Only the last `_EVENTS` events
    are read."""
    gathering = ConversationReader(journal)
    places = await gathering.places(session, first, upto, _EVENTS)
    turns: list[tuple[TurnRecord, str | None]] = []
    for entry in conversation_entries(await gathering.readable(session, places)):
        if entry.kind is EntryKind.MESSAGE and entry.data["role"] == "user":
            turns.append((TurnRecord(_text(entry.data["content"]), position=entry.position), entry.subject))
        elif turns:
            turns[-1] = _with(turns[-1][0], entry), turns[-1][1]
    return turns


def _with(turn: TurnRecord, entry: ConversationEntry) -> TurnRecord:
    """The turn, extended by an answer of the assistant or a finished tool call."""
    if entry.kind is EntryKind.MESSAGE and entry.data["role"] == "assistant":
        said = f"{turn.assistant}\n{_text(entry.data['content'])}".strip()
        return TurnRecord(turn.user, turn.calls, said, turn.position)
    if entry.kind is EntryKind.CALL and entry.answer is not None:
        called = ToolCall(
            entry.data["tool"], entry.data["arguments"], not entry.answer.get("error"), _text(entry.answer["output"])
        )
        return TurnRecord(turn.user, (*turn.calls, called), turn.assistant, turn.position)
    return turn


def _text(content: Any) -> str:
    if are_blocks(content):
        return "\n".join(block["text"] for block in content if block.get("type") == "text")
    return text_of(content)
