# One word per habit. Every word makes or renews its own environment in .venv first (see scripts/setup.sh).
bin := .venv/bin
code := nbs scripts tests benchmarks setup.py
export PATH := $(CURDIR)/$(bin):$(PATH)
.PHONY: help setup train test export format notebooks base docs bench lab constraints clean
.NOTPARALLEL:

help:  ## show these words
	@awk -F ':.*## ' '/^[a-z]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup:  ## make .venv with the exact set of constraints.txt (nothing to do: instant)
	@PYTHON="$(PYTHON)" sh scripts/setup.sh

train: setup  ## teach the tiny model three games in minutes; options of `gamerl train` go in ARGS="..."
	$(bin)/gamerl train $(ARGS)

# One thread each, and no network: the tests need neither.
test: export OMP_NUM_THREADS := 1
test: export TOKENIZERS_PARALLELISM := false
test: export HF_HUB_OFFLINE := 1
test: setup  ## everything that must hold before a change goes in
	$(bin)/python scripts/check_generated.py notebooks
	$(bin)/python scripts/check_order.py
	$(bin)/python scripts/check_generated.py package
	$(bin)/ruff check $(code)
	$(bin)/ruff format --check $(code)
	$(bin)/nbdev_test --n_workers 2
	$(bin)/python -m pytest
	$(bin)/python scripts/build_docs.py --check

export: setup  ## write gamerl/ from the notebooks
	$(bin)/nbdev_export

format: setup  ## clean the notebooks, sort imports, set the layout of all code
	$(bin)/nbdev_clean
	$(bin)/ruff check --fix $(code)
	$(bin)/ruff format $(code)

notebooks: export OMP_NUM_THREADS := 1
notebooks: export  ## run every notebook again and keep its outputs; FLAGS="slow gpu" runs those cells too
	$(bin)/python scripts/run_notebooks.py --flags $(FLAGS)
	$(bin)/nbdev_clean

base: setup  ## build the tiny base model again, from random play (half an hour)
	$(bin)/python -m gamerl.tiny gamerl/data/tiny

docs: setup  ## build the site in _docs/ and README.md
	$(bin)/python scripts/build_docs.py

bench: setup  ## run every benchmark; ARGS goes to each
	for script in benchmarks/*.py; do echo "== $$script"; $(bin)/python $$script $(ARGS) || exit 1; done

lab: setup  ## open the notebooks in JupyterLab
	$(bin)/jupyter lab nbs

constraints: setup  ## write constraints.txt from what .venv holds now
	{ grep '^#' constraints.txt; $(bin)/python -m pip freeze --all --exclude-editable | sed 's/^\(torch==[^+]*\)+.*/\1/' | LC_ALL=C sort -f; } > .venv/constraints.txt
	mv .venv/constraints.txt constraints.txt

clean:  ## remove what the build made; .venv and runs stay
	rm -rf _proc _sphinx _docs build dist *.egg-info jupyter_execute .pytest_cache .ruff_cache .hypothesis
	find gamerl nbs scripts tests benchmarks -name __pycache__ -o -name .ipynb_checkpoints | xargs rm -rf
