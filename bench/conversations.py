"""Reads LoCoMo's JSON: conversations of dated sessions, and questions with their evidence."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

CATEGORIES = {1: "multi_hop", 2: "temporal", 3: "open_domain", 4: "single_hop", 5: "adversarial"}


@dataclass(frozen=True, slots=True)
class Turn:
    """One message; `text` includes the caption of a shared picture."""

    speaker: str
    text: str
    session: str
    on: date

    @property
    def said(self) -> str:
        """The text with its speaker, for an embedder."""
        return f"{self.speaker}: {self.text}"

    @property
    def memory(self) -> str:
        """The text with speaker and date, for a system without fields for them."""
        return f"{self.on:%-d %B %Y} {self.said}"


@dataclass(frozen=True, slots=True)
class Question:
    """A question, its category and the positions of the turns that answer it."""

    text: str
    category: int
    evidence: frozenset[int]


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation: its turns in order, and the questions about them."""

    name: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...]

    @property
    def asked_on(self) -> date:
        """The date of the last session. Questions have no date, so the benchmark asks them on that day."""
        return max(turn.on for turn in self.turns)


def read_conversations(file: Path) -> list[Conversation]:
    """All conversations of the file. Evidence that refers to no turn is dropped, then questions without evidence."""
    return [_conversation(entry) for entry in json.loads(file.read_text(encoding="utf-8"))]


def _conversation(entry: dict[str, Any]) -> Conversation:
    sessions = entry["conversation"]
    numbers = sorted(int(key[8:]) for key, value in sessions.items() if re.fullmatch(r"session_\d+", key) and value)
    turns: dict[str, Turn] = {}
    for number in numbers:
        on = datetime.strptime(sessions[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").date()
        for said in sessions[f"session_{number}"]:
            caption = f" [{said['blip_caption']}]" if said.get("blip_caption") else ""
            turns[said["dia_id"]] = Turn(said["speaker"], said["text"] + caption, str(number), on)
    positions = {name: position for position, name in enumerate(turns)}
    questions = (_question(question, positions) for question in entry["qa"])
    return Conversation(entry["sample_id"], tuple(turns.values()), tuple(one for one in questions if one.evidence))


def _question(question: dict[str, Any], positions: dict[str, int]) -> Question:
    # Some entries hold several ids in one string ("D8:6; D9:17").
    named = [name for entry in question.get("evidence", ()) for name in re.findall(r"D\d+:\d+", entry)]
    evidence = frozenset(positions[name] for name in named if name in positions)
    return Question(question["question"], question["category"], evidence)
