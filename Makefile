# Every target does its own set-up: Python 3.11+ and make are all that is needed.
PYTHON ?= python3
VENV   ?= .venv
TORCH  ?= torch==2.13.0
# RL stacks whose whole wants GPUs, and what their logging imports
STACKS ?= verl==0.9.1 openrlhf==0.11.2 skyrl==0.3.0 antlr4-python3-runtime==4.13.2 codetiming==1.4.0 \
          hydra-core==1.3.8 jsonlines==4.0.0 loguru==0.7.3 omegaconf==2.4.0 peft==0.18.1 \
          pylatexenc==2.11 pyvers==0.2.3 tensordict==0.10.0 torchdata==0.11.0
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --quiet

.DEFAULT_GOAL := help
.PHONY: help demo test test-integration fuzz check format docs bench wheel new-detector clean

help:            ## this list
	@grep -E '^[a-z-]+: .*## ' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## /\t/' | expand -t 20

demo: $(VENV)/base.stamp            ## a small real training, recorded, scanned and shown
	@$(BIN)/rlprobe demo

test: $(VENV)/test.stamp            ## unit tests
	$(BIN)/python -m pytest -n auto

test-integration: $(VENV)/integration.stamp   ## tests with torch, TRL and real processes
	$(BIN)/python -m pytest -m integration --timeout 600

fuzz: $(VENV)/test.stamp            ## 20,000 harmed inputs of every format, read or refused
	$(BIN)/python -m benchmarks.reliability.inputs 20000

check: $(VENV)/check.stamp          ## lint, format, types, docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pyright
	$(BIN)/python -m rlprobe.dev docs --check

format: $(VENV)/check.stamp         ## let ruff fix and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/test.stamp            ## write the generated pages again
	$(BIN)/python -m rlprobe.dev docs

bench: $(VENV)/bench.stamp          ## all benchmarks, as ratios in one run
	PATH="$(CURDIR)/$(VENV)/peers/bin:$$PATH" $(BIN)/python -m benchmarks

wheel: $(VENV)/check.stamp          ## dist/*.whl and dist/*.tar.gz
	$(BIN)/python -m build --quiet

new-detector: $(VENV)/test.stamp    ## make new-detector ID=MY_PATHOLOGY
	$(BIN)/python -m rlprobe.dev new-detector $(ID)

clean:           ## remove everything that was built
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache

$(VENV)/base.stamp: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "rlprobe needs Python 3.11 or newer; try make PYTHON=python3.12"; exit 1; }
	@echo "setting up $(VENV) (once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --upgrade 'pip>=25.1' 2>/dev/null
	@$(PIP) install -e .
	@touch $@

$(VENV)/test.stamp: $(VENV)/base.stamp
	@$(PIP) install --group test
	@touch $@

$(VENV)/check.stamp: $(VENV)/test.stamp
	@$(PIP) install --group check
	@touch $@

$(VENV)/integration.stamp: $(VENV)/check.stamp
	@$(PIP) install '$(TORCH)'
	@$(PIP) install --group integration
	@$(PIP) install --target $(VENV)/stacks --upgrade --no-deps $(STACKS) \
	  || echo "without verl, OpenRLHF and SkyRL: tests with their logging are skipped"
	@touch $@

$(VENV)/bench.stamp: $(VENV)/integration.stamp
	@$(PIP) install --group bench
	@$(PIP) install --target $(VENV)/rlprobe-0.1.0 --no-deps rlprobe==0.1.0
	@$(PYTHON) -m venv $(VENV)/peers
	@$(VENV)/peers/bin/python -m pip --quiet install losslint rldoctor runmedic trainproof
	@touch $@
