"""Random choices of tests: the same in every `make test`, different in every `make test-all`.

The header of a test run shows its seed. `DURAMEN_TEST_SEED=… make test-all` repeats the run.
"""

from __future__ import annotations

import os
import random

VARIABLE = "DURAMEN_TEST_SEED"


def choose_seed() -> None:
    """Set a random seed for this test run and its child processes, unless the environment has one."""
    os.environ.setdefault(VARIABLE, str(random.SystemRandom().randrange(2**32)))


def seeded(*name: int | str) -> random.Random:
    """A generator whose choices depend only on `name` and the seed of the test run."""
    return random.Random(f"{os.environ.get(VARIABLE, '0')}/{name}")


def examples(count: int) -> int:
    """How many examples a property test tries: a quarter of `count` in `make test`."""
    return count if VARIABLE in os.environ else max(count // 4, 20)
