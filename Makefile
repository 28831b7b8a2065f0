# Everything runs in .venv, made from the lock; nothing else is installed by hand.
PYTHON ?= python3
# On a CUDA machine: make book LOCK=requirements-gpu.txt
LOCK ?= requirements.txt
RUN = .venv/bin/python
OLDEST = .venv-oldest/bin/python
ALL = -m pytest --nbmake -q --tb=no -n 2 --dist worksteal

.PHONY: help environment book test quick unit chapter prose sizes pdf slides serve bench records \
  matrix test-oldest standalone handout test-standalone test-hosted dist lock export strip address clean mistakes faults \
  hostile odd-values

help: ## say what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/'

book: environment ## execute what has changed and render the book; can be broken off [SOLUTIONS=no]
	@$(RUN) -m workshop.build book

test: environment ## everything: lint, tests, every notebook, the book in a browser
	@$(RUN) -m workshop.build test

quick: environment ## lint, and the tests that need no TensorFlow: a minute
	@$(RUN) -m workshop.build quick

unit: environment ## unit and property tests [C=pipeline: of what uses that chapter]
	@$(RUN) -m workshop.build unit $(C)

chapter: environment ## C=pipeline: lint, export, its tests, run it, its page
	@$(RUN) -m workshop.build chapter $(C)

prose: environment ## whose English needs a second look, counted [C=pipeline: each place]
	@$(RUN) -m workshop.prose $(C)

sizes: environment ## how much of a chapter's visible code teaches; its length
	@$(RUN) -m workshop.sizes _build/html

pdf: environment ## the rendered book on paper, as one file [C=pipeline: that chapter]
	@$(RUN) -m workshop.pdf $(C)

slides: environment ## slides of what has run, from its pages, in _slides/ [C=pipeline]
	@$(RUN) -m workshop.slides $(C)

serve: environment ## serve the rendered book on this machine
	@$(RUN) -m workshop.build serve

matrix: environment ## notebooks x 1, 2, 3, 4, 8 devices x both kinds of kernels [C=pipeline]
	@for kind in 1 0; do for count in 1 2 3 4 8; do \
	  echo "$$count devices, TF_ENABLE_ONEDNN_OPTS=$$kind"; \
	  MANYGPU_OFFLINE=1 MANYGPU_DEVICES=$$count TF_ENABLE_ONEDNN_OPTS=$$kind \
	  $(RUN) $(ALL) book/*/$(or $(C),*).ipynb || red=1; \
	done; done; test -z "$$red"

test-oldest: ## unit tests and notebooks, oldest TensorFlow [KERAS=3.12.0]
	@$(PYTHON) workshop/environment.py requirements-oldest.txt .venv-oldest \
	  $(if $(KERAS),keras==$(KERAS))
	@MANYGPU_OFFLINE=1 $(OLDEST) $(ALL) book
	@TF_ENABLE_ONEDNN_OPTS=$${TF_ENABLE_ONEDNN_OPTS:-0} \
	  $(OLDEST) -m pytest -q -n auto --dist worksteal tests/unit

mistakes: environment ## mistakes in pages' cells: does the page notice? [C=pipeline]
	@$(RUN) -m workshop.mistakes $(C)

faults: environment ## kill a training [COUNT=200] times, damage five times as many checkpoints
	@FAULTS=$(or $(COUNT),200) $(RUN) -m pytest -q tests/unit/test_faults.py \
	  tests/unit/scratch/beyond/test_worker_dies.py -k "killed or damage"

hostile: environment ## grade notebooks that mean harm [C="word ...": of their names]
	@$(RUN) experiments/hostile.py $(C)

odd-values: environment ## odd values in place of right results: does check take one? [C=pipeline]
	@$(RUN) experiments/odd_values.py $(C)

bench: environment ## each strategy against one device, on this machine: ratios
	@$(RUN) -m manygpu bench
	@$(RUN) -m manygpu bench --model transformer \
	  --strategy network pipeline gpipe interleaved zero-bubble

records: environment ## measure GPUs if there are any; run the source's experiment in full
	@$(RUN) experiments/gpu_records.py
	@$(RUN) experiments/source_experiment.py

standalone: environment ## each chapter as one file that runs anywhere, in _standalone/
	$(RUN) -m workshop.standalone

handout: environment ## the book without solutions and tests, to give to a class, in _handout/
	@$(RUN) -m workshop.handout

test-standalone: environment ## run such files with the versions of the lock [C=pipeline: one]
	@$(RUN) -m workshop.build alone $(C)

test-hosted: environment ## run such files with what a hosted notebook has [LIST=hosted-....txt]
	$(RUN) -m workshop.standalone \
	  $(or $(LIST),$(lastword $(sort $(wildcard hosted-*.txt))))

dist: environment ## wheel and sdist, checked and tried in an empty environment
	$(RUN) -m workshop.dist

export: environment ## write manygpu/scratch from the notebooks
	$(RUN) -m workshop.notebooks export

strip: environment ## take outputs out of the notebooks
	$(RUN) -m nbstripout --keep-id $(wildcard book/*/*.ipynb)

address: environment ## REPO=owner/name: where the book lives; buttons, badges
	@test -n "$(REPO)" || { echo "usage: make address REPO=owner/name"; exit 2; }
	@$(RUN) -m workshop.notebooks address "$(REPO)"

lock: environment ## write the locks anew from requirements.in
	$(RUN) -m uv pip compile --quiet --universal --python-version 3.10 \
	  --generate-hashes --no-header --upgrade requirements.in -o requirements.txt
	$(RUN) -m uv pip compile --quiet --universal --python-version 3.10 \
	  --generate-hashes --no-header --constraint requirements.txt \
	  requirements-gpu.in -o requirements-gpu.txt
	$(RUN) -m uv pip compile --quiet --universal --python-version 3.10 \
	  --generate-hashes --no-header --override requirements-oldest.in \
	  requirements.in -o requirements-oldest.txt

clean: ## remove the environments and all that was built
	rm -rf .venv .venv-oldest _build _checked _executed _mistakes _slides _standalone _handout dist
	rm -rf .hypothesis .pytest_cache .ruff_cache *.egg-info

environment: # nothing to do where it was made from just this lock
	@$(PYTHON) workshop/environment.py $(LOCK)
