# Everything a developer does. `make` alone lists it.

BIN := .venv/bin
READY := .venv/.ready

.DEFAULT_GOAL := help
.PHONY: help install check format lint unit servers test proofs crash-points faults seeds proof-ci demo demo-kafka bench lock clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(READY) ## make .venv ready (Python 3.11 or newer; PYTHON=... names one)

$(READY): requirements-dev.lock pyproject.toml tools/install
	@tools/install
	@touch $@

check: lint unit ## style, types, layers and unit tests, under a minute

format: $(READY) ## format the code, and repair what can be repaired by itself
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

unit: $(READY) ## unit tests alone; no server is started
	$(BIN)/pytest -q tests/unit

servers: $(READY)
	$(BIN)/python -m tests.servers install

test: lint servers ## installs what is missing; all tests, real Kafka, MariaDB and Redis, 300 new simulations
	$(BIN)/pytest -n 3 --dist worksteal -m "not proof"

proofs: servers ## every planted bug is caught; kills at any moment and outages of servers lose nothing
	$(BIN)/pytest -q -n 3 --dist worksteal -m proof --ignore tests/faults/test_crash_points.py

crash-points: servers ## kill -9 between any two durable effects, on both sets of parts
	$(BIN)/pytest -q tests/faults/test_crash_points.py

MINUTES ?= 120
SEED ?= 1

faults: servers ## hours of faults on real servers, then one judge of five ledgers (MINUTES=120 SEED=1)
	$(BIN)/python -m tests.faults --minutes $(MINUTES) --seed $(SEED)

seeds: $(READY) ## 2,000 new simulations
	$(BIN)/python -m tests.simulation --new --seeds 2000 --processes 2

proof-ci: seeds proofs crash-points ## these three, then ten minutes with every kind of fault
	$(BIN)/python -m tests.faults --minutes 10 --seed $(SEED)

demo: $(READY) ## summarize some hundred real documents on this machine alone
	$(BIN)/python examples/demo.py

demo-kafka: servers ## the same on Apache Kafka, MariaDB and Redis, which it starts itself
	$(BIN)/python examples/demo.py --kafka

bench: servers ## what a task costs, as a table with ratios
	$(BIN)/python -m bench

lock: $(READY) ## resolve the dependencies again
	@tools/lock

clean: ## remove what can be made again, .venv and downloaded servers included
	rm -rf .venv .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
