# Everything runs in .venv, made from the lock; nothing else is installed by hand.
PYTHON ?= python3
# On a CUDA machine: make book LOCK=requirements-gpu.txt
LOCK ?= requirements.txt
RUN = .venv/bin/python
READY = .venv/.made-from-$(LOCK)

.PHONY: help book test serve bench records matrix lock export strip address clean

help: ## say what can be made
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

book: $(READY) ## execute every chapter and render the book
	$(RUN) tools/build.py book

test: $(READY) ## lint, unit tests, every notebook, the rendered book in a browser
	$(RUN) tools/build.py test

serve: $(READY) ## serve the rendered book on this machine
	$(RUN) tools/build.py serve

matrix: $(READY) ## run every notebook with 1, 2, 3, 4 and 8 devices
	$(RUN) tools/build.py matrix

bench: $(READY) ## compare the training steps on this machine: ratios
	$(RUN) tools/bench.py

records: $(READY) ## run the source's experiment in full and keep its numbers
	$(RUN) tools/records.py

export: $(READY) ## write manygpu/scratch from the notebooks
	$(RUN) tools/notebooks.py export

strip: $(READY) ## take outputs out of the notebooks
	$(RUN) tools/notebooks.py strip

address: $(READY) ## REPO=owner/name: where a notebook opened alone finds the package
	@test -n "$(REPO)" || { echo "usage: make address REPO=owner/name"; exit 2; }
	$(RUN) tools/notebooks.py address $(REPO)

lock: $(READY) ## write the locks anew from requirements.in
	$(RUN) -m uv pip compile --quiet --universal --python-version 3.10 \
	  --generate-hashes --no-header --upgrade requirements.in -o requirements.txt
	$(RUN) -m uv pip compile --quiet --universal --python-version 3.10 \
	  --generate-hashes --no-header --constraint requirements.txt \
	  requirements-gpu.in -o requirements-gpu.txt

clean: ## remove the environment and all that was built
	rm -rf .venv _build _checked .hypothesis .pytest_cache .ruff_cache *.egg-info

$(READY): $(LOCK) pyproject.toml
	@echo "[environment] $$($(PYTHON) --version) and $(LOCK), into .venv"
	@$(PYTHON) -c "import sys; v = sys.version_info[:2]; \
	  sys.exit(0 if (3, 10) <= v <= (3, 13) else \
	  f'Python {v[0]}.{v[1]}: the book needs 3.10 to 3.13; make PYTHON=python3.11 ...')"
	$(PYTHON) -m venv --clear .venv
	$(RUN) -m pip install --quiet --disable-pip-version-check \
	  --no-deps --require-hashes --requirement $(LOCK)
	$(RUN) -m pip install --quiet --disable-pip-version-check \
	  --no-deps --no-build-isolation --editable .
	@touch $@
