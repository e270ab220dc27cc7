# Each target makes what it needs, .venv included, and says so.
.PHONY: demo test check bench bench-models
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
.DEFAULT_GOAL := test

PY := .venv/bin/python
# A package for type checkers: links to the checkout, whose root is the package.
TYPED := .venv/typed
# On some indexes torch brings gigabytes of CUDA libraries along: asked before anything is fetched.
BRINGS_CUDA = $(PY) -m pip install --quiet --disable-pip-version-check --dry-run --report - \
	'torch==2.13.0' | grep -q '"name": "nvidia-cu'

# The first Python that will do; override with make PYTHON=...
PYTHON ?= $(shell for python in python3 python3.13 python3.12 python3.11 python3.10; do \
	$$python -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))' \
	2>/dev/null && echo $$python && break; done)

demo: .venv/installed  ## the main job: verify, bench, tune, and put the result back into a model
	@echo "==> demo: examples/demo.py"
	$(PY) examples/demo.py

test: .venv/installed  ## every test
	@echo "==> test: pytest, a process for each core"
	$(PY) -m pytest -q -n logical --maxprocesses 8

check: .venv/installed  ## style and types
	@echo "==> check: ruff, ruff format, mypy"
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	@rm -rf $(TYPED) && mkdir -p $(TYPED)/tunesmith
	@for init in __init__.py */__init__.py; do ln -s "$(CURDIR)/$${init%/__init__.py}" $(TYPED)/tunesmith/; done
	MYPYPATH=$(TYPED) .venv/bin/mypy -p tunesmith | sed 's#^$(TYPED)/tunesmith/##'

OPERATORS ?= all
EXAMPLES ?= 2
bench: .venv/installed-baselines  ## operators against NumPy, PyTorch and ONNX Runtime; make bench OPERATORS=conv2d EXAMPLES=50
	@echo "==> bench: $(OPERATORS), the first $(EXAMPLES) shapes of each"
	@for operator in $(OPERATORS); do \
		.venv/bin/tunesmith bench $$operator --examples $(EXAMPLES) --rounds 7 \
			--implementations default,numpy,torch,onnxruntime || exit; done

MODELS ?= light_resnet50 light_squeezenet light_vgg19 build/models/mobilenet_v2.onnx build/models/bert.onnx
bench-models: .venv/installed-baselines  ## whole models against ONNX Runtime
	@echo "==> bench-models: $(MODELS)"
	@$(PY) -W ignore examples/models/export.py build/models
	@.venv/bin/tunesmith study models $(MODELS)

.venv/installed: pyproject.toml
	@[ -n "$(PYTHON)" ] || { echo "needs Python 3.10 to 3.13 with venv (Debian, Ubuntu: apt install python3-venv)" >&2; exit 2; }
	@echo "==> .venv: installing tunesmith and its tools with $$($(PYTHON) --version) (a few minutes at most)"
	@[ -x $(PY) ] || $(PYTHON) -m venv .venv
	@$(PY) -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

.venv/installed-baselines: .venv/installed
	@echo "==> .venv: installing PyTorch (CPU) and ONNX Runtime to compare with"
	@! $(BRINGS_CUDA) || { echo "torch would bring CUDA libraries along: name PyTorch's index of CPU builds" \
		"in PIP_EXTRA_INDEX_URL and try again" >&2; exit 2; }
	@$(PY) -m pip install --quiet --disable-pip-version-check -e '.[baselines]'
	@touch $@
