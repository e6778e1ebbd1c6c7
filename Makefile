# `make demo` and `make test` are all a newcomer needs: each makes the environment it runs in.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
JOBS ?= 2

# With an NVIDIA GPU at hand, the demo and the benchmarks use it.
GPU := $(shell command -v nvidia-smi >/dev/null 2>&1 && nvidia-smi -L >/dev/null 2>&1 && echo yes)
GPU_EXTRAS := [cuda13,cupy]
DEMO_EXTRAS := $(if $(GPU),$(GPU_EXTRAS))

# Besides the CUDA that is used, what is emitted is compiled by the one before.
CUDA12 := nvidia-cuda-nvrtc-cu12 nvidia-cuda-runtime-cu12

# Operators of PyTorch are tested with it. PyPI's has all of CUDA with it; where pip is also offered a build for the CPU
# alone, it takes that. `make test TORCH=` does without, and skips its tests.
TORCH ?= torch==2.13.0

# What pyproject.toml names as the least, each at that version.
OLDEST := numpy==1.26.0 llvmlite==0.45.0 jax==0.5.0 jaxlib==0.5.0 absl-py ml_dtypes==0.5.0 pytest==8.2.0 \
  hypothesis==6.100.0 mpmath==1.3.0

CODE := src tests examples benchmarks

.PHONY: demo test test-oldest test-gpu bench bench-gradients bench-cpu lint format clean

demo: $(VENV)/.demo
	$(BIN)/python examples/quickstart.py

# How many cases of each family of tests: few in five minutes on two cores, more in about a quarter of an hour, or all.
CASES ?= few
CASES_few := and not slow and not more
CASES_more := and not slow

# NVRTC is a wheel that works without a GPU, so the kernels that we emit are compiled here too.
test: $(VENV)/.dev
	$(BIN)/pytest -n $(JOBS) --dist worksteal -m "not gpu $(CASES_$(CASES))" $(ARGS)

# In an environment of its own, without PyTorch.
test-oldest: | $(BIN)/python
	$(BIN)/python -m venv $(VENV)/oldest
	$(VENV)/oldest/bin/python -m pip install --quiet --editable ".[cuda13]" $(OLDEST)
	$(VENV)/oldest/bin/pytest -m "not gpu and not slow" $(or $(ARGS),tests/frameworks tests/runtime tests/backends/cpu)

test-gpu: $(VENV)/.dev
	$(BIN)/pytest -m gpu $(ARGS)

bench: $(VENV)/.dev
	$(BIN)/python benchmarks/primal.py $(ARGS)

bench-gradients: $(VENV)/.dev
	$(if $(GPU),$(BIN)/python -m pip install --quiet --editable ".[cupy]")
	$(BIN)/python benchmarks/gradients.py $(ARGS)

# Beside Warp and JAX, where warp-lang and jax are installed in the environment.
bench-cpu: $(VENV)/.dev
	$(BIN)/python benchmarks/cpu.py $(ARGS)

lint: $(VENV)/.dev
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# A stamp says what is installed; it is older than pyproject.toml when that has changed.
$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".$(DEMO_EXTRAS)"
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable ".[dev,cuda13]" $(TORCH)
	$(BIN)/python -m pip install --quiet --upgrade --no-deps --target $(VENV)/cuda12 $(CUDA12)
	@touch $@ $(VENV)/.demo

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "kernelgrad needs Python 3.11 or newer; '$(PYTHON)' is not. Name another: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "'$(PYTHON) -m venv' failed. On Debian and Ubuntu: sudo apt install python3-venv; then run make again." >&2; exit 1; }
