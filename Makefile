# Needs only make and a Python 3.11 or newer; everything else is installed into .venv.
#   make demo    set up and run the main job
#   make test    set up and run the tests (PYTEST_ARGS="-k name", or "-m slow" for the slow ones)

# The first working interpreter that is new enough; override with: make test PYTHON=/path/to/python
ifeq ($(origin PYTHON),undefined)
PYTHON := $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo "$$p"; break; }; done)
endif
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
WORKERS ?= auto
PYTEST_ARGS ?=
DEMO_ARGS ?=
BENCH_ARGS ?=
# Packages that the benchmarks compare with; empty to time onstage alone.
BENCH_PEERS ?= jax torch==2.13.0
BENCH_VENV := .venv-bench

.PHONY: help demo test lint types format bench clean
.DELETE_ON_ERROR:

help:
	@echo "make demo | test | lint | types | format | bench | clean"

demo: $(VENV)/.demo
	$(BIN)/onstage demo $(DEMO_ARGS)

test: $(VENV)/.test
	$(BIN)/python -m pytest -n $(WORKERS) $(PYTEST_ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/pyright

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# The peers live in an environment of their own, so that nothing they bring is there when onstage is tested.
bench: $(BENCH_VENV)/.bench
	$(BENCH_VENV)/bin/python -m onstage.models.bench $(BENCH_ARGS)

clean:
	rm -rf $(VENV) $(BENCH_VENV) build dist *.egg-info onstage.egg-info .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@test -n "$(PYTHON)" || { echo "onstage: no Python 3.11 or newer found; give one with PYTHON=/path/to/python" >&2; exit 1; }
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "onstage: $(PYTHON) does not run or is older than Python 3.11" >&2; exit 1; }
	@"$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || \
		{ echo "onstage: $(PYTHON) has no venv or ensurepip module (on Debian and Ubuntu: apt install python3-venv)" >&2; exit 1; }
	"$(PYTHON)" -m venv $(VENV)

# One stamp a set of extras: the second call installs nothing until pyproject.toml changes.
$(VENV)/.demo: EXTRAS := demo
$(VENV)/.test: EXTRAS := test,demo
$(VENV)/.dev: EXTRAS := test,demo,dev
$(VENV)/.demo $(VENV)/.test $(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(PIP) install --quiet -e ".[$(EXTRAS)]"
	@touch $@

$(BENCH_VENV)/.bench: pyproject.toml | $(BIN)/python
	test -x $(BENCH_VENV)/bin/python || $(BIN)/python -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip --disable-pip-version-check install --quiet -e . $(BENCH_PEERS)
	@touch $@
