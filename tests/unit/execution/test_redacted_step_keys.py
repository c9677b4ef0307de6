"""Steps whose keys hold a credential, or look as if they did, are recognized after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest
from programs.side_effects import SideEffects, run_until_killed

import duramen

SECRET = "q7Zt" * 9
KEYS = [f"https://example.com/?token=ghp_{SECRET}", f"https://example.com/?token=ghp_{SECRET[::-1]}"]
CALLS = ["toolu_01A09q90qw90lq917835lq9", "toolu_01A09q90qw90lq917835lq8"]


@pytest.mark.promise("G11")
@pytest.mark.parametrize("keys", [KEYS, CALLS], ids=["credentials", "tool calls"])
def test_a_step_is_not_repeated_because_its_key_was_redacted(
    tmp_path: Path, effects: SideEffects, keys: list[str]
) -> None:
    @duramen.step
    def refresh_token(number: int) -> str:
        return effects.do(str(number))

    @duramen.task
    def job() -> list[str]:
        return [refresh_token.keyed(key)(number) for number, key in enumerate(keys)]

    effects.die = "before 1"
    with duramen.open(tmp_path / "agent.db") as dm:
        run_until_killed(dm, job, id="r")
    with duramen.open(tmp_path / "agent.db") as dm:
        assert len(dm.resume("r", job)) == 2
        assert SECRET not in repr([event.data for event in dm.session("r").events()])
    assert (effects.times("0"), effects.times("1")) == (1, 1)
