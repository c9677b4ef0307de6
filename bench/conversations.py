"""LoCoMo's JSON read for measuring: conversations of dated sessions, and questions with their evidence."""

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
    """One thing said; `text` carries the caption of a shared picture."""

    speaker: str
    text: str
    session: str
    on: date

    @property
    def said(self) -> str:
        """The text with its speaker: what is given to an embedder."""
        return f"{self.speaker}: {self.text}"

    @property
    def memory(self) -> str:
        """The text with speaker and date: what a system without fields for them is given."""
        return f"{self.on:%-d %B %Y} {self.said}"


@dataclass(frozen=True, slots=True)
class BenchQuestion:
    """A question, its category and the positions of the turns that answer it."""

    text: str
    category: int
    evidence: frozenset[int]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns in the order in which they were said, and the questions about them."""

    name: str
    turns: tuple[Turn, ...]
    questions: tuple[BenchQuestion, ...]

    @property
    def asked_on(self) -> date:
        """Questions carry no date: they are taken to be asked on the day of the last session."""
        return max(turn.on for turn in self.turns)


def read(file: Path) -> list[Conversation]:
    """Every conversation of the file; evidence that names no turn is left out, and questions left with none."""
    return [_conversation(entry) for entry in json.loads(file.read_text(encoding="utf-8"))]


def _conversation(entry: dict[str, Any]) -> Conversation:
    told = entry["conversation"]
    numbers = sorted(int(key[8:]) for key, value in told.items() if re.fullmatch(r"session_\d+", key) and value)
    turns: dict[str, Turn] = {}
    for number in numbers:
        on = datetime.strptime(told[f"session_{number}_date_time"], "%I:%M %p on %d %B, %Y").date()
        for said in told[f"session_{number}"]:
            caption = f" [{said['blip_caption']}]" if said.get("blip_caption") else ""
            turns[said["dia_id"]] = Turn(said["speaker"], said["text"] + caption, str(number), on)
    positions = {name: position for position, name in enumerate(turns)}
    asked = (_question(question, positions) for question in entry["qa"])
    return Conversation(entry["sample_id"], tuple(turns.values()), tuple(one for one in asked if one.evidence))


def _question(question: dict[str, Any], positions: dict[str, int]) -> BenchQuestion:
    # Some entries hold several ids in one string ("D8:6; D9:17").
    named = [name for entry in question.get("evidence", ()) for name in re.findall(r"D\d+:\d+", entry)]
    evidence = frozenset(positions[name] for name in named if name in positions)
    return BenchQuestion(question["question"], question["category"], evidence)
