# Everything runs in .venv, which is made once; `make help` lists the targets.
PYTHON ?= python3
SECONDS ?= 600
ENDPOINTS ?= 200
# Counted, not timed: the same seeds at every run, however busy the machine is. A minute on two idle cores.
SCHEDULES := 6000
VENV := .venv
SOURCES := sync_core server_relay clients tests
BIN := $(VENV)/bin
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help venv demo test bench bench-peers simulate soak campaigns clean

help:
	@echo "make demo                    install, then run the demo: a task is carried from a killed phone to a desktop"
	@echo "make test                    ruff, mypy, all tests, a minute of simulation"
	@echo "make bench                   the benchmarks"
	@echo "make bench-peers             the relay against its peers, which npm and pip install below .bench; takes twenty minutes"
	@echo "make simulate SECONDS=600    the simulation on fresh seeds, as long as you like"
	@echo "make soak SECONDS=600        200 devices on flapping links for ten minutes: nothing is lost, nothing grows"
	@echo "make campaigns               what is too long for every day: a thousand kills, a million mutants"
	@echo "make venv                    only make .venv, with all that the tests need"
	@echo "make clean                   remove .venv and whatever else was made"

venv: $(VENV)/tests.stamp

$(VENV)/made.stamp:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Segue needs Python 3.11 or later; name one with PYTHON=…"; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/demo.stamp: $(VENV)/made.stamp pyproject.toml
	@echo "installing"
	@$(INSTALL) --editable '.[all]'
	@touch $@

$(VENV)/tests.stamp: $(VENV)/made.stamp pyproject.toml
	@echo "installing"
	@$(INSTALL) --editable '.[test]'
	@touch $@ $(VENV)/demo.stamp

demo: $(VENV)/demo.stamp
	@$(BIN)/segue demo

test: $(VENV)/tests.stamp
	@$(BIN)/ruff check --quiet $(SOURCES)
	@$(BIN)/ruff format --quiet --check $(SOURCES)
	@$(BIN)/mypy --strict -p sync_core -p server_relay -p clients
	@$(BIN)/python -m pytest
	@$(BIN)/python -m tests.simulation --schedules $(SCHEDULES)

bench: $(VENV)/tests.stamp
	@$(BIN)/python -m tests.benchmarks

bench-peers: $(VENV)/tests.stamp
	@tests/benchmarks/peers/install.sh .bench/peers
	@$(BIN)/python -m tests.benchmarks.peers

simulate: $(VENV)/tests.stamp
	@$(BIN)/python -m tests.simulation --seconds $(SECONDS)

campaigns: $(VENV)/tests.stamp
	@$(BIN)/python -m pytest -m campaign --timeout 3600

soak: $(VENV)/tests.stamp
	@$(BIN)/python -m tests.soak --seconds $(SECONDS) --endpoints $(ENDPOINTS)

clean:
	@rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .demo .bench
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
