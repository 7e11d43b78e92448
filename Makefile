# Two commands matter: `make demo` and `make test`. Both set up everything they need in .venv.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
RELEASE ?= 0.30.0rc2
# Ports that the demo verifies and times; empty: all of them, which takes half an hour.
ONLY ?= grammar_bitmask
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
CLI := $(BIN)/ascendport
DEMO := demo/vllm-ascend-$(RELEASE)

.PHONY: demo test lint slow quick clean
.DEFAULT_GOAL := test

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' \
	  || { echo "Python 3.11 is needed (triton-ascend has no wheel for newer ones); set PYTHON=" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null \
	  || { echo "venv is missing: apt-get install -y python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[ascend,store,dev]'
	touch $@

# The main job on a real upstream release, start to end.
demo: $(READY)
	rm -rf $(DEMO)
	$(CLI) fetch $(RELEASE) $(DEMO)
	$(CLI) status $(DEMO)
	$(CLI) apply $(DEMO)
	$(CLI) verify $(DEMO) $(ONLY:%=--only %)
	$(CLI) bench $(DEMO) $(ONLY:%=--only %)
	$(CLI) revert $(DEMO)
	$(CLI) status $(DEMO)

test: lint
	$(BIN)/python -m pytest -n auto

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The tests that take long, and those that `make test` leaves out.
slow: $(READY)
	$(BIN)/python -m pytest -m slow

# How quick the commands are on this machine.
quick: $(READY)
	$(BIN)/python scripts/quick.py

clean:
	rm -rf $(VENV) demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
