PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.PHONY: demo test test-core evidence check bench clean

demo: $(VENV)/.core ## the main job on the bundled real trace; core only
	$(BIN)/dfsim replay traces/ --strategy maxvar --out out/demo --force
	$(BIN)/dfsim screen traces/ --strategy all --out out/screen --force
	@echo "Pages: out/demo/index.html, out/screen/index.html. Skipped: the tests (make test)."

test: $(VENV)/.live ## everything, live included
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not evidence"
	@echo "Skipped: claims that take minutes to measure (make evidence)."

test-core: $(VENV)/.dev ## the quick tests; leaves out what needs verl
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not live and not evidence"
	@echo "Skipped: tests marked live, which need verl (make test), and claims that take minutes (make evidence)."

evidence: $(VENV)/.live ## claims that take minutes to measure; what passed on this commit is not run again
	$(BIN)/python tests/support/evidence.py .cache/evidence.jsonl

check: $(VENV)/.dev ## style, types, floors
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	mkdir -p .cache && ln -sfn .. .cache/dfsim
	MYPYPATH=.cache $(BIN)/mypy -p dfsim
	$(BIN)/lint-imports

bench: $(VENV)/.live ## ratios of medians, measured in one process
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/decide.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/scale.py
	OPENBLAS_NUM_THREADS=1 $(BIN)/python benchmarks/capture.py

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) --upgrade "pip>=25"

$(VENV)/.core: pyproject.toml | $(VENV)/bin/python
	$(PIP) --editable .
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --constraint constraints.txt --editable ".[dev]"
	@touch $@ $(VENV)/.core

$(VENV)/.live: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --constraint constraints.txt --editable ".[dev,live]"
	@touch $@ $(VENV)/.core $(VENV)/.dev

clean:
	rm -rf $(VENV) .cache out build *.egg-info
