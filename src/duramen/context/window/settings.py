"""The settings of a context window."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...errors import InvalidInput, shown
from ...journal.events import check_whole
from ...ports import Model, TokenCounter

_MOST_TOKENS = 2**31


@dataclass(frozen=True, slots=True)
class Window:
    """How a session's context is built. The same journal and the same settings give the same bytes.

    Attributes:
        budget: tokens that the whole context may take.
        threshold: older entries are summarised above this share of the budget.
        max_items: older entries are also summarised above this number of entries.
        keep_last: the number of newest entries that are not summarised.
        mask_above: outputs above this many tokens are masked even in the newest entries (a quarter of the budget).
        mask_to: tokens that a masked output may take.
        summaries: share of the budget that all summaries together may take.
        counter: how tokens are counted: a `TokenCounter`, a name ("tiktoken:o200k_base"), or None for the estimate.
        model: a cheap model that summarises, or its name ("anthropic:claude-haiku-4-5"); without a model, or if it
            fails, summaries are extracted sentences.
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
            check_whole(name, getattr(self, name), least, _MOST_TOKENS)
        for name in ("threshold", "summaries"):
            value = getattr(self, name)
            if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 < value <= 1:
                raise InvalidInput(
                    f"`{name}` cannot be {shown(value)}", hint="give a share of the budget: above 0, at most 1"
                )
        if self.mask_above is not None:
            check_whole("mask_above", self.mask_above, 1, _MOST_TOKENS)

    @property
    def masked_from(self) -> int:
        """Outputs above this many tokens are masked even in the newest entries."""
        return self.mask_above if self.mask_above is not None else max(self.mask_to, self.budget // 4)

    def but(self, changes: dict[str, Any]) -> Window:
        """A copy with some settings changed. Raises `InvalidInput` for an unknown setting."""
        unknown = sorted(changes.keys() - Window.__dataclass_fields__.keys())
        if unknown:
            known = ", ".join(Window.__dataclass_fields__)
            raise InvalidInput(f"context() got an unknown setting {shown(unknown[0])}", hint=f"valid settings: {known}")
        return replace(self, **changes) if changes else self
