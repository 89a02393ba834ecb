# `make demo` and `make test` each work as the first command in a fresh clone: they create .venv.
# ARGS is passed to the command (make demo ARGS=--forever, make test ARGS=tests/cli); PYTHON selects the interpreter.

VENV := .venv
BIN := $(VENV)/bin
# Debian installs mosquitto in /usr/sbin, which is not on every user's PATH.
export PATH := $(PATH):/usr/local/sbin:/usr/sbin
# The first python that runs and is 3.11 or newer: version managers put names on PATH that do not run.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { command -v $$p; break; }; done)
ARGS ?=
# Tests run in parallel, in one process more than there are processors, at most four: many mostly wait.
SIDE_BY_SIDE := -n $(shell cores=$$(getconf _NPROCESSORS_ONLN); echo $$((cores < 3 ? cores + 1 : 4))) --dist worksteal
# The tests that cover those packages: their own, doctests, and those of what no test of a package reaches.
MEASURED := $(addprefix tests/,alarm authoring causal evaluation evidence exact logic model picture policy hidden runtime sampled statistics stream worlds \
	cli/test_init_command.py cli/test_learn_command.py cli/test_learn_resumed.py cli/test_report_command.py cli/test_init_columns.py \
	cli/test_learn_numbers.py cli/test_logs_as_they_are.py cli/test_config_check.py cli/test_recording_convert.py sidecar/test_reshard.py) monitor
KERNEL_TESTS := $(addprefix tests/,causal exact hidden sampled statistics stream runtime)
# What is compiled: the modules with a .pxd file (hatch_build.py).
KERNELS := $(shell find monitor -name '*.pxd')
# Packages without clock, I/O and randomness: everything in them can be tested.
PURE := monitor/types/*,monitor/errors.py,monitor/arrays.py,monitor/runtime/*,monitor/model/*,monitor/policy/*,monitor/causal/*,monitor/logic/*,monitor/exact/*,monitor/exact/forward/*,monitor/stream/*,monitor/alarm/*,monitor/evidence/audit.py,monitor/evidence/canonical.py,monitor/evidence/contradictions.py,monitor/evidence/document.py,monitor/evidence/effort.py,monitor/evidence/maker.py,monitor/evidence/rederivation.py,monitor/statistics/*,monitor/sampled/*,monitor/worlds/*,monitor/hidden/*,monitor/evaluation/*,monitor/picture/*,monitor/authoring/formats/*,monitor/authoring/learning/*,monitor/authoring/proposal/*

.DEFAULT_GOAL := help
.PHONY: help demo test test-all coverage bounds mutants docs gallery screenshots faults fuzz soak-truth soak-world bench experiments lint lock flink dashboards sbom format clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' Makefile

demo: $(VENV)/.demo ## Run the monitor beside a live agent: an alarm fires, resolves and is verified (ARGS=--forever, ARGS="--seed 3")
	@$(BIN)/cfmon demo $(ARGS)

# Without bytecode each process of the tests would compile the sources again.
test test-all coverage bounds: export PYTHONDONTWRITEBYTECODE :=
test: export TIER := fast
test: prepared ## Run lint, types, import contracts and the fast tests (ARGS=tests/logic: tests only, of one package)
	@$(BIN)/pytest $(SIDE_BY_SIDE) $(ARGS)

test-all: test ## Run what continuous integration runs: `make test`, then slow tests, more random examples, bounds, coverage
	@TIER=rest $(BIN)/pytest $(SIDE_BY_SIDE) $(ARGS)
	@[ -n "$(ARGS)" ] || $(MAKE) --no-print-directory bounds coverage

# In a copy: what is compiled here stays as it is. An index out of range in a kernel fails the test as an error that
# nobody catches.
bounds: $(VENV)/.dev ## Run the fast tests of the compiled packages with every index checked
	@rm -rf var/bounds && mkdir -p var/bounds
	@cp -r monitor tests policies config docs pyproject.toml conftest.py hatch_build.py var/bounds
	@find var/bounds -name '*.so' -delete
	@cd var/bounds && MONITOR_BOUNDS=1 ../../$(BIN)/python hatch_build.py
	@cd var/bounds && TIER=fast ../../$(BIN)/python -m pytest $(SIDE_BY_SIDE) $(KERNEL_TESTS)

# With the sources of the compiled modules: machine code cannot tell which branches it takes.
coverage: $(VENV)/.dev ## Measure the branch coverage of the pure packages by their fast tests; below 99 % is an error
	@MONITOR_UNCOMPILED=1 TIER=fast $(BIN)/pytest --cov --cov-report= $(SIDE_BY_SIDE) $(MEASURED)
	@$(BIN)/coverage report --include='$(PURE)' --skip-covered --fail-under=99 \
		|| { echo "make: branch coverage of the pure packages is below 99 %" >&2; exit 1; }

# Done once, before the processes of the tests would each do it: machine code, lint and types, bytecode.
.PHONY: prepared
prepared: $(VENV)/.dev
	@$(PYTHON) .ci/setup.py system
	@$(BIN)/python hatch_build.py
	@[ -n "$(ARGS)" ] || $(MAKE) --no-print-directory -j2 ARGS= lint bytecode

.PHONY: bytecode
bytecode: $(VENV)/.dev
	@output=$$($(BIN)/pytest -q -n 0 --collect-only 2>&1) || { echo "$$output" | tail -n 40; exit 1; }

mutants: $(VENV)/.dev ## Mutation testing of the pure packages (hours): ARGS="exact --jobs 4"
	@$(BIN)/python -m tests.mutation $(ARGS)

faults: $(VENV)/.dev ## Fault injection: kill, stop and disconnect monitor and broker (long; partly needs root): var/faults.json
	@$(PYTHON) .ci/setup.py system
	@CFMON_FAULTS=long $(BIN)/pytest -p no:cacheprovider tests/faults $(ARGS)

fuzz: $(VENV)/.dev ## Fuzz every parser of untrusted input, ten million inputs (hours): var/fuzz.json (ARGS="http --inputs 2000000 --seed 7")
	@$(BIN)/python -m tests.fuzz.drive $(ARGS)

soak-truth: $(VENV)/.dev ## Compare the engine with the oracle on random formulas (ARGS="--minutes 60 --seed 1 --processes 2")
	@$(BIN)/python -m tests.truth.soak $(ARGS)

soak-world: $(VENV)/.dev ## Simulate the sidecar in a world of faults, seed after seed (ARGS="--minutes 60 --first 1000")
	@$(BIN)/python -m tests.simulation $(ARGS)

bench: $(VENV)/.dev ## Measure every row beside its peers (minutes): table, var/bench.json, var/bench.svg (ARGS=--quick)
	@$(PYTHON) .ci/setup.py system
	@mkdir -p var
	@$(BIN)/python -m benchmarks --json var/bench.json --plot var/bench.svg $(ARGS)

experiments: $(VENV)/.dev ## Reproduce the paper's figures and tables, and ours (minutes): CSV and PNG in var/experiments (ARGS="--seed 3")
	@mkdir -p var/experiments
	@for each in histograms sanity traces table1 takeovers judged_takeovers few_changes graph_game learned_models; do \
		echo "== $$each"; $(BIN)/python -m experiments.$$each --out var/experiments $(ARGS) || exit 1; done
	@echo "== error rates"; $(BIN)/python -m tests.statistics.error_rates --csv var/experiments/error-rates.csv $(ARGS)

docs: $(VENV)/.dev ## Build the documentation site, var/site/index.html; broken links are errors
	@output=$$(NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict 2>&1) || { echo "$$output"; exit 1; }
	@echo "docs: var/site/index.html"

gallery: $(VENV)/.dev ## Make screenshots of the status page in each state, light, dark, on a phone and printed: var/gallery.html
	@$(PYTHON) .ci/setup.py system
	@$(BIN)/python -m tests.page.gallery

screenshots: $(VENV)/.dev ## Make the documentation's screenshots from a running demo: docs/pictures/page-*.webp
	@$(PYTHON) .ci/setup.py system
	@$(BIN)/python -m docs.site.screenshots

lint: $(VENV)/.dev ## ruff, ruff format, mypy, import-linter
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/mypy --no-error-summary --python-version 3.10 client/src
	@contracts=$$($(BIN)/lint-imports --no-cache 2>&1) || { echo "$$contracts"; exit 1; }
	@echo "lint: clean"

lock: $(VENV)/.dev ## Generate the lock files in deploy/ from pyproject.toml (ARGS=--upgrade: newest versions)
	@$(BIN)/python deploy/lock.py $(ARGS)
	@$(BIN)/python deploy/lock.py flink $(ARGS)

flink: .flink/.made ## Make the environment of the job on Flink, .flink (1.4 GB; Java 17 is needed to run it)

# Flink has wheels for Python 3.11 and 3.12 only, and pins older packages than the monitor's own environment has.
.flink/.made: deploy/flink/requirements.lock
	@python=$$(for p in python3.11 python3.12; do $$p -c '' >/dev/null 2>&1 && { command -v $$p; break; }; done); \
		[ -n "$$python" ] || { echo "make: Flink needs Python 3.11 or 3.12, and neither is on PATH" >&2; exit 2; }; \
		$$python -m venv --clear .flink
	@.flink/bin/pip install --quiet --disable-pip-version-check --require-hashes -r deploy/flink/requirements.lock
	@cd .flink/lib/python3.*/site-packages/pyflink && cp opt/flink-python-*.jar lib/
	@touch $@

dashboards: $(VENV)/.dev ## Generate Grafana's files from deploy/grafana/source
	@$(BIN)/python deploy/grafana/source/make.py

sbom: $(VENV)/.dev ## Write the bill of materials of deploy/requirements.lock: var/sbom.cdx.json
	@mkdir -p var
	@PYTHONWARNINGS=ignore::UserWarning:cyclonedx.model.bom $(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --mc-type application --output-reproducible \
		--output-format JSON --output-file var/sbom.cdx.json deploy/requirements.lock

format: $(VENV)/.dev ## Format the sources with ruff
	@$(BIN)/ruff check --fix --quiet
	@$(BIN)/ruff format --quiet

clean: ## Remove generated files (.venv, caches, var)
	@rm -rf $(VENV) .flink var .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage build dist
	@find monitor -name '*.so' -delete
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: which extra is installed, for which pyproject.toml. `dev` includes `demo` and the client.
$(VENV)/.demo: $(KERNELS) $(KERNELS:.pxd=.py)
$(VENV)/.demo $(VENV)/.dev: $(VENV)/.%: pyproject.toml client/pyproject.toml .ci/setup.py hatch_build.py
	@[ -n "$(PYTHON)" ] || { echo "make: Python 3.11 or newer is required and none is on PATH; install it (Debian: apt-get install python3 python3-venv) or run make PYTHON=/path/to/python3" >&2; exit 2; }
	@$(PYTHON) .ci/setup.py $*
