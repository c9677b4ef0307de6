"""Paths of the repository, the tests and their data."""

from pathlib import Path

TESTS = Path(__file__).parents[1]
ROOT = TESTS.parent
CORPUS = TESTS / "corpus"
DATA = TESTS / "data"
