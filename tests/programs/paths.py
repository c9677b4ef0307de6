"""Where the repository, the tests and their data are."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
CORPUS = TESTS / "corpus"
DATA = TESTS / "data"
