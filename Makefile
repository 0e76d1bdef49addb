# make chat   everything that a chat needs, then the chat        make chat ARGS="--model qwen3 --draft ngram"
# make test   the whole test suite                               make test ARGS="tests/cli -k json"
# make bench  docs/RESULTS.md and its pictures, anew             make bench ARGS="--model qwen3 --peers all"
# make check  format, lint, types, layering
# make screenshots  docs/pictures from a recorded chat           make screenshots ARGS="--record smollm2"
# make clean  remove what make made (models, built llama.cpp and conversations stay)
#
# ACCEL=cpu|cuda|rocm|vulkan|metal picks llama.cpp's backend (found out when not given), ACCEL=wheel or wheel-cu124
# and the like takes a ready-made one, without a compiler (docs/INSTALL.md). PYTHON=... picks the interpreter.

VENV := .venv
BIN := $(VENV)/bin
RUNS := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 14))

# The environment's own Python first: it starts at once, where a version manager's shims take their time. A
# candidate counts when it really runs: a shim may exist for a version that is not there.
PYTHON ?= $(shell for python in $(BIN)/python python3.13 python3.12 python3.11 python3 python; do \
	"$$python" -c '$(RUNS)' >/dev/null 2>&1 && { echo "$$python"; break; }; done)

.DEFAULT_GOAL := help
# What the results in docs/ are made with; ARGS take the place of all of it but the files that are written.
GRID := --model smollm2 --files BF16,own --draft ngram --draft-length 2,4,8,auto --max-tokens 64 --runs 4 \
	--prompts-per-task 1,copy=6,chain=6 --parallel 1,2,4,8 --peer-draft Q2_K \
	--peers "ngram-simple 3/8,ngram-map-k 3/8,ngram-map-k4v 3/8,ngram-mod,ngram-cache,draft-simple 3,eagle3,mtp,dflash,dspark"

.PHONY: help chat test bench check screenshots clean env dev python

help:
	@sed -n "s/^# //p" Makefile | sed "1,8!d"

# The small model is fetched where no other is asked for.
chat: env $(if $(filter --model% -m%,$(ARGS)),,$(VENV)/default-model)
	@$(BIN)/python -m localspec chat $(ARGS)

$(VENV)/default-model: | env
	@$(BIN)/python -m localspec models pull smollm2 >/dev/null && touch $@

# Much of a test's time is waiting for a model or a terminal, so several run at once; those of a file share fixtures.
test: dev
	@$(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile $(ARGS)

bench: dev
	@mkdir -p docs/results
	@$(BIN)/python -m localspec bench $(or $(ARGS),$(GRID)) \
		--json docs/results/results.json --csv docs/results/results.csv --markdown docs/RESULTS.md \
		--plots docs/results

check: dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/python -m mypy
	$(BIN)/python $(BIN)/lint-imports --no-cache

screenshots: dev
	@$(BIN)/python scripts/screenshots.py $(ARGS)

env: python
	@"$(PYTHON)" scripts/setup_env.py --accel "$(ACCEL)"

dev: python
	@"$(PYTHON)" scripts/setup_env.py --accel "$(ACCEL)" --dev

python:
	@"$(PYTHON)" -c '$(RUNS)' 2>/dev/null || { \
		echo "localspec: needs Python 3.11, 3.12 or 3.13 with its venv module (Debian, Ubuntu: apt install" \
		"python3-venv); install one, or name it: make chat PYTHON=/path/to/python3.12" >&2; exit 1; }

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
