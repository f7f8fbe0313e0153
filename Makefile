# Set-up and daily commands. Needs make and Python 3.11 or newer; everything else goes into $(VENV).
#
#   make parity      set up, then train the tiny preset on both sides and judge it
#   make test        set up, then the CPU tests            make test-slow   the slow ones
#   make check       set up, then lint, format, types and import rules
#
# To change what is installed (set on the command line or exported):
#   PYTHON=/path/to/python3.12     the Python that the environment is made with
#   EXTRAS=torch,jax,gpu,dev       the extras of pyproject.toml
#   CONSTRAINTS=                   no pins: the newest versions that pyproject.toml admits
#   TORCH_ARGS="--index-url https://download.pytorch.org/whl/cpu"    pip options for torch alone: a CPU or CUDA build
#   ARGS="-k clip"                 further arguments for pytest or `parity run tiny`

VENV ?= .venv
EXTRAS ?= torch,jax,dev
CONSTRAINTS ?= requirements/ci-py311.txt
TORCH_ARGS ?=
ARGS ?=

BIN := $(VENV)/bin
comma := ,
extras := $(subst $(comma), ,$(EXTRAS))
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(CONSTRAINTS),-c $(CONSTRAINTS))
# Named by what was asked for, so that other extras or pins are a new set-up.
STAMP := $(VENV)/.setup-$(subst $(comma),-,$(EXTRAS))-$(notdir $(basename $(CONSTRAINTS)))

NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
CANDIDATES := $(or $(PYTHON),python3 python3.11 python3.12 python3.13 python3.14)

.DEFAULT_GOAL := help
.PHONY: help setup parity test test-slow check clean

help:
	@sed -n '/^#  /s/^# *//p' Makefile

setup: $(STAMP)

$(STAMP): pyproject.toml $(CONSTRAINTS) | $(BIN)/python
	@echo "setting up $(VENV): $(EXTRAS) (minutes the first time)"
ifneq ($(filter torch,$(extras)),)
	@# First and alone, so that its build (CPU, CUDA) is chosen by TORCH_ARGS and not by what another package asks for.
	$(PIP_INSTALL) $(TORCH_ARGS) 'torch>=2.11'
endif
	$(PIP_INSTALL) -e '.[$(EXTRAS)]'
	@touch $@

# A candidate must run: a version manager's shim can be on PATH for a Python that is not there.
$(BIN)/python:
	@for python in $(CANDIDATES); do \
	    if $$python $(NEW_ENOUGH); then \
	        echo "making $(VENV) with $$python ($$($$python -V))"; \
	        $$python -m venv $(VENV) && exit 0; \
	        rm -rf $(VENV); exit 1; \
	    fi; \
	done; \
	echo "Python 3.11 or newer is needed; tried: $(CANDIDATES) (python3 is $$(python3 -V 2>&1 | tail -1))." >&2; \
	echo "Install one, or name it: make setup PYTHON=/path/to/python3.12" >&2; \
	exit 1

parity: setup
	$(BIN)/parity run tiny $(ARGS)

test: setup
	$(BIN)/python -m pytest -m "not slow and not gpu and not multigpu" $(ARGS)

test-slow: setup
	$(BIN)/python -m pytest -m "slow and not gpu and not multigpu" $(ARGS)

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyrefly check
	$(BIN)/lint-imports

# What tools and tests left behind. The environment and runs/ stay; `rm -rf .venv` begins anew.
clean:
	rm -rf build dist *.egg-info .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find spec torch_impl jax_impl parity tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
