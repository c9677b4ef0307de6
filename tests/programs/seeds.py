"""Random choices of tests: the same in every `make test`, new ones in `make test-all`.

A failure is repeated with the seed that the header of the test run shows: `DURAMEN_TEST_SEED=… make test-all`.
"""

from __future__ import annotations

import os
import random

VARIABLE = "DURAMEN_TEST_SEED"


def choose_seed() -> None:
    """A new seed for this test run and its child processes, unless one is given."""
    os.environ.setdefault(VARIABLE, str(random.SystemRandom().randrange(2**32)))


def seeded(*name: int | str) -> random.Random:
    """Random choices that follow from a name and from the seed of the test run."""
    return random.Random(f"{os.environ.get(VARIABLE, '0')}/{name}")


def examples(count: int) -> int:
    """How many examples a property test tries: a quarter of `count` in `make test`."""
    return count if VARIABLE in os.environ else max(count // 4, 20)
