# Every target that needs Python makes .venv first; PYTHON=python3.12 chooses another interpreter.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
EXTRAS := comet,hf,ct2,rl,ray,docs,dev

.PHONY: help demo test lint slow pages docs bench torture clean
.DEFAULT_GOAL := help

help:  ## show this help
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "make %-8s %s\n", $$1, $$2}'

demo: $(VENV)/core  ## install the core, then compare a teacher with uniform shares on a small corpus (about 5 minutes)
	$(BIN)/rota demo

test: $(VENV)/all lint  ## install everything, then lint, types and all fast tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

lint: $(VENV)/all  ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

slow: $(VENV)/all  ## the tests that take minutes
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 -m slow

pages: $(VENV)/all  ## bring the parts of docs/ up to date that are made from the program
	$(BIN)/python website/made_pages.py

docs: pages  ## build the documentation site in site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "built; to read it: $(BIN)/python -m http.server -d site, then http://localhost:8000"

bench: $(VENV)/all  ## measure speed and memory, also of other toolkits (hours); see docs/benchmarks.md
	$(BIN)/python benchmarks/run.py $(BENCH)

torture: $(VENV)/all  ## kill commands, damage files, give bad input (20 minutes); see docs/torture.md
	OMP_NUM_THREADS=1 $(BIN)/python torture/run.py $(TORTURE)

clean:  ## remove the environment and what the demo made
	rm -rf $(VENV) demo site

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/core: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing Rota into $(VENV) (one to two minutes) ..."
	@if [ -e $(VENV)/all ]; then $(MAKE) --no-print-directory $(VENV)/all; else $(PIP_INSTALL) -e .; fi
	@touch $@

$(VENV)/all: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing Rota with all extras into $(VENV) (a few minutes) ..."
	@$(PIP_INSTALL) -e '.[$(EXTRAS)]'
	@touch $@ $(VENV)/core
