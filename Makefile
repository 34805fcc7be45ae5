# Everything a developer does. `make` alone lists it.

BIN := .venv/bin
READY := .venv/.ready
SITE := .venv-docs/.ready
SEED ?= 1

# Without bytecode each worker of a test run compiles all tests anew, for 15 s.
unexport PYTHONDONTWRITEBYTECODE

# Many tests wait, so there are more workers than cores. Each has servers of its own, 1 GB in all.
WORKERS ?= 6
PYTEST := $(BIN)/pytest -n $(WORKERS) --dist worksteal
CRASHES := tests/faults/test_crash_points.py
CONTAINERS := tests/containers
PROOFS := tests/integration tests/simulation  # no worker collects what is not run
FAULTS := $(BIN)/python -m tests.faults --seed $(SEED)
DOZEN := agent-kill agent-freeze-long agent-drain reaper-kill exporter-kill kafka-kill kafka-link-hole \
	database-freeze database-link-tear redis-freeze llm-500 llm-hang garbage

.DEFAULT_GOAL := help
.PHONY: help install check format lint style types layers unit servers test units suite net crash-points short-faults containers proof on-mysql seeds faults demo demo-kafka docs site pages bench lock clean

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

lint: style types layers

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

layers: $(READY)
	$(BIN)/lint-imports --no-logo

unit: $(READY) ## unit tests alone; no server is started
	$(BIN)/pytest -q -n 2 tests/unit

servers: $(READY)
	$(BIN)/python -m tests.servers install

test: lint pages units suite ## all tests on real Kafka, MariaDB, MySQL and Redis, which it installs; 300 new simulations

units: servers
	@$(MAKE) --no-print-directory unit

suite: servers
	$(PYTEST) -m "not proof and not again" --ignore tests/unit --ignore tests/site

net: servers ## every planted bug is caught; kills and outages of servers lose nothing
	$(PYTEST) -m proof $(PROOFS)

crash-points: servers ## kill -9 between any two durable effects, on both sets of parts
	$(BIN)/pytest -q $(CRASHES)

short-faults: servers ## four minutes with a dozen kinds of faults on real servers
	$(FAULTS) --minutes 4 --kinds $(DOZEN)

containers: servers ## the image and the Compose file, built and run by Docker; as root
	$(BIN)/pytest -q $(CONTAINERS)

proof: seeds ## everything long, once for each large change: more of each, and every kind of fault; 2 hours
	DOCLLM_TEST_LONG=1 $(MAKE) net
	DOCLLM_TEST_LONG=1 $(PYTEST) -m again
	DOCLLM_TEST_LONG=1 $(BIN)/pytest -q tests/integration/documents/test_conversions.py
	DOCLLM_TEST_LONG=1 DOCLLM_TEST_CRASHES=5 $(MAKE) crash-points
	$(MAKE) containers
	$(MAKE) on-mysql
	DOCLLM_TEST_LONG=1 $(MAKE) faults MINUTES=10

on-mysql: export DOCLLM_TEST_DATABASE = mysql
on-mysql: servers ## whole programs, crash points and a short fault run with MySQL in place of MariaDB
	$(PYTEST) -m "not again" tests/integration
	$(BIN)/pytest -q -k kafka $(CRASHES)
	$(MAKE) short-faults

seeds: $(READY) ## 2,000 new simulations
	$(BIN)/python -m tests.simulation --new --seeds 2000 --processes 2

MINUTES ?= 120

faults: servers ## hours with every kind of fault, then one judge of seven ledgers (MINUTES=120 SEED=1)
	$(FAULTS) --minutes $(MINUTES)

demo: $(READY) ## summarize some hundred real documents on this machine alone
	$(BIN)/python examples/demo.py

demo-kafka: servers ## the same on Apache Kafka, MariaDB and Redis, which it starts itself
	$(BIN)/python examples/demo.py --kafka

docs: $(READY) ## write what the pages take from the code and from real runs, then build the site
	$(BIN)/python -m tools.reference
	$(BIN)/python -m tools.picture
	@$(MAKE) --no-print-directory site

site: $(SITE) ## build the site from docs/ into site/, strict about links
	@tools/site

pages: site servers
	$(BIN)/pytest -q tests/site

$(SITE): requirements-docs.lock $(READY)
	@[ -x .venv-docs/bin/pip ] || .venv/bin/python -m venv .venv-docs
	@.venv-docs/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.lock
	@touch $@

bench: servers ## what a task costs, as a table with ratios
	$(BIN)/python -m bench

lock: $(READY) ## resolve the dependencies again
	@tools/lock

clean: ## remove what can be made again, .venv included
	rm -rf .venv .venv-docs site .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
