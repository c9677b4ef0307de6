"""The settings of a context window."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...errors import InvalidInput
from ...ports import Model, TokenCounter


@dataclass(frozen=True, slots=True)
class Window:
    """How a session's context is built. The same journal and the same settings give the same bytes.

    budget          tokens that the context may take, all included
    threshold       part of the budget from which older entries are summarised
    max_items       entries from which they are, too
    keep_last       the newest entries, which are kept as they were said
    mask_above      tokens from which a tool's output is masked even among those (a quarter of the budget)
    mask_to         tokens that a masked output may take
    summaries       part of the budget that all summaries together may take
    counter         how tokens are counted: a `TokenCounter`, a name ("tiktoken:o200k_base"), or None for the estimate
    model           the cheap model that summarises, or its name ("anthropic:claude-haiku-4-5"); without one, or where
                    it fails, sentences are extracted
    """

    budget: int = 8_000
    threshold: float = 0.8
    max_items: int = 20
    keep_last: int = 5
    mask_above: int | None = None
    mask_to: int = 100
    summaries: float = 0.25
    counter: TokenCounter | str | None = None
    model: Model | str | None = None

    def __post_init__(self) -> None:
        for name, least in (("budget", 100), ("max_items", 1), ("keep_last", 0), ("mask_to", 20)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise InvalidInput(f"{value!r} cannot be `{name}`", hint=f"give a whole number from {least}")
        for name in ("threshold", "summaries"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1:
                raise InvalidInput(
                    f"{value!r} cannot be `{name}`", hint="give a part of the budget: above 0, at most 1"
                )
        if self.mask_above is not None and (not isinstance(self.mask_above, int) or self.mask_above < 1):
            raise InvalidInput(f"{self.mask_above!r} cannot be `mask_above`", hint="give a whole number from 1")

    @property
    def masked_from(self) -> int:
        """Tokens from which even a recent output is masked."""
        return self.mask_above if self.mask_above is not None else max(self.mask_to, self.budget // 4)

    def but(self, changes: dict[str, Any]) -> Window:
        """The same settings with some of them changed."""
        unknown = sorted(changes.keys() - Window.__dataclass_fields__.keys())
        if unknown:
            known = ", ".join(Window.__dataclass_fields__)
            raise InvalidInput(f"{unknown[0]!r} is no setting of a context", hint=f"known are: {known}")
        return replace(self, **changes) if changes else self
