"""Prepares the texts that duramen adds to a conversation: escapes them, and marks what looks like instructions."""

from __future__ import annotations

from collections.abc import Iterable

from ..memory.delimiters import marked
from ..memory.injection import labelled_suspicions
from .compaction.compaction import Summary
from .window.context import ContextTrace, Shown
from .window.fit import SUMMARY, Section, suspicion_of

_CACHED = 2048


class SectionMarker:
    """Makes sections by a policy: "keep", "flag" or "quarantine". It caches what it found in each text."""

    def __init__(self, policy: str) -> None:
        self._policy = policy
        self._known: dict[str, tuple[str, ...]] = {}

    def forget(self) -> None:
        """Drop cached texts from memory, after an erasure."""
        self._known.clear()

    def section(self, kind: str, heading: str, text: str, first: int = 0, last: int = 0) -> Section:
        """A section whose lines are escaped. Unless the policy is "keep", lines that look like instructions to the
        model are marked."""
        lines = text.splitlines()
        why = [self._suspicions(line) for line in lines]
        reasons = dict.fromkeys(reason for found in why for reason in found)
        if lines and not reasons:
            reasons = dict.fromkeys(self._suspicions(text))  # it may take several lines to see it
            why[0] = tuple(reasons)
        return Section(kind, heading, "\n".join(map(marked, lines, why)), first, last, tuple(reasons))

    def summaries(self, found: Iterable[Summary]) -> tuple[list[Section], list[ContextTrace]]:
        """The summaries as sections. With the policy "quarantine", lines that look like instructions are left out, and
        so is a summary that still looks like instructions as a whole. The traces report both."""
        sections, traces = [], []
        for one in found:
            text = self._safe(one.text) if self._policy == "quarantine" else one.text
            if text != one.text:
                reason = f"quarantined{suspicion_of(self._suspicions(one.text))}"
                traces.append(ContextTrace(one.first, one.last, SUMMARY, Shown.LEFT_OUT, reason, 0))
            if text:
                sections.append(self.section(SUMMARY, "", text, one.first, one.last))
        return sections, traces

    def _safe(self, text: str) -> str:
        lines = text.splitlines()
        safe = [line for line in lines if not self._suspicions(line)]
        if self._suspicions("\n".join(safe)):
            return ""
        return text if len(safe) == len(lines) else "\n".join(safe)

    def _suspicions(self, text: str) -> tuple[str, ...]:
        if self._policy == "keep":
            return ()
        found = self._known.get(text)
        if found is None:
            if len(self._known) >= _CACHED:
                self._known.clear()
            found = self._known[text] = labelled_suspicions(text)
        return found
