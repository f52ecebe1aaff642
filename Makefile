# Everything a developer types. `make help` lists it.
.DEFAULT_GOAL := help
SHELL := /bin/sh
.SHELLFLAGS := -eu -c

PYTHON ?= python3
VENV ?= .venv
TIERS ?= unit process simulation kafka api_server cluster spark
ROUNDS ?= 20
TOGETHER ?= 1
DIST ?= dist

BIN := $(VENV)/bin
SOURCES := $(wildcard */src)
PINNED := constraints.txt pyproject.toml scripts/setup scripts/pins.py $(wildcard */pyproject.toml)
space := $(subst ,, )
# The checkout that make runs in is the one that is looked at, also when VENV belongs to another one.
export PYTHONPATH := $(subst $(space),:,$(abspath $(SOURCES)))
# Where it is set, each process of the tests compiles its modules anew: a third of the time that a process takes to start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## Show this list
	@echo "make TARGET [VARIABLE=value]"
	@awk 'BEGIN {FS = ":.*## "} /^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "Variables: PYTHON (an interpreter, 3.11 or newer), VENV (where the environment lies)."
	@echo "Tiers of tests: $(TIERS). What each starts, and what it takes: docs/testing.md"

.PHONY: setup
setup: $(VENV)/.all ## Make .venv with all parts and tools, from constraints.txt

$(VENV)/.all: $(PINNED)
	@PYTHON=$(PYTHON) VENV=$(VENV) scripts/setup all
	@touch $(VENV)/.demo $@

$(VENV)/.demo: $(PINNED)
	@PYTHON=$(PYTHON) VENV=$(VENV) scripts/setup demo
	@touch $@

.PHONY: demo
demo: $(VENV)/.demo ## Run the orders example, and say what to try; DEMO_SECONDS=20: by itself, and say in a line how it went
	@$(if $(DEMO_SECONDS),rm -rf .rota/demo &&) exec $(BIN)/python -m rota_operator local \
		$(if $(DEMO_SECONDS),--home=.rota/demo --demo-seconds=$(DEMO_SECONDS))

# In order of their speed, so that what is wrong shows soon.
.PHONY: check
check: shape lint protos resources metrics licences benchmarks-page imports types ## Lint, layout, contracts, generated files, types: all that needs no test run

.PHONY: lint shape protos resources metrics licences benchmarks-page imports types
lint: $(VENV)/.all
	@$(BIN)/ruff check --quiet . || { echo "lint: see above; 'make format' mends what can be mended by itself" >&2; exit 1; }
	@$(BIN)/ruff format --quiet --check . || { echo "lint: files are not formatted; run 'make format'" >&2; exit 1; }
	@echo "lint: ok"
shape: $(VENV)/.all
	@# Not `python -m`: that puts the checkout first on the path, and one of the things looked for is a file that breaks it.
	@$(BIN)/pytest --quiet --no-header tests/architecture
protos: $(VENV)/.all
	@cd proto && $(abspath $(BIN))/buf lint
	@cd proto && $(abspath $(BIN))/buf format --diff --exit-code || { echo "protos: not formatted; run 'make proto'" >&2; exit 1; }
	@$(BIN)/python scripts/generate_protos.py --check
	@echo "protos: ok"
resources: $(VENV)/.all
	@$(BIN)/python scripts/generate_crds.py --check
metrics: $(VENV)/.all
	@$(BIN)/python -m scripts.generate_metrics_reference --check
licences: $(VENV)/.all
	@$(BIN)/python -m scripts.generate_licences --check
benchmarks-page: $(VENV)/.all
	@$(BIN)/python -m scripts.generate_benchmarks --check
imports: $(VENV)/.all
	@$(BIN)/lint-imports --no-cache --no-logo || { echo "imports: each broken contract above is named after its remedy" >&2; exit 1; }
types: $(VENV)/.all
	@$(BIN)/mypy

.PHONY: format
format: $(VENV)/.all ## Format the code, and mend what the linter can mend
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format .

.PHONY: proto
proto: $(VENV)/.all ## Generate the gRPC code from proto/rota
	@cd proto && $(abspath $(BIN))/buf format --write
	@$(BIN)/python scripts/generate_protos.py

.PHONY: crds
crds: $(VENV)/.all ## Generate the CustomResourceDefinition from rota_operator.spec
	@$(BIN)/python scripts/generate_crds.py

.PHONY: test
test: $(VENV)/.all ## Run the tests, all tiers or some: make test TIERS="unit process"
	@$(BIN)/python -m tests.support.tiers $(TIERS)

.PHONY: soak
soak: $(VENV)/.all ## Run a suite over and over, resumable: make soak SUITE=cluster ROUNDS=50
	@$(BIN)/python -m tests.support.soak --rounds $(ROUNDS) --together $(TOGETHER) $(SUITE)

.PHONY: bench
bench: $(VENV)/.all ## Measure each claim beside its peer; ARGUMENTS=--record keeps the result
	@for script in benchmarks/*.py; do $(BIN)/python -m benchmarks.$$(basename $$script .py) $(ARGUMENTS); done

.PHONY: dist
dist: $(VENV)/.all ## Build a wheel of every part into dist/, or DIST=FOLDER
	@# Without an index and without isolation: the back-ends of constraints.txt build, and nothing newer.
	@$(BIN)/pip wheel --quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation \
		--wheel-dir $(DIST) $(patsubst %/pyproject.toml,./%,$(wildcard */pyproject.toml))
	@echo "dist: wheels are in $(DIST)"

.PHONY: pins
pins: ## Write constraints.txt anew, with the newest versions and their hashes (needs uv)
	@$(PYTHON) scripts/pins.py write

.PHONY: clean
clean: ## Remove what was made in this checkout (what tests keep outside of it: docs/testing.md)
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .rota uv.lock
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
