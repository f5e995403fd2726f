# Every target works alone on a fresh clone with nothing but python3 (3.11+) and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BENCH_STAMP := $(VENV)/.installed-bench
export TF_CPP_MIN_LOG_LEVEL ?= 2

.PHONY: setup demo test test-slow lint format bench bench-smoke bench-micro clean

setup: $(STAMP)

$(STAMP): setup.cfg setup.py pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else "tfp_lhnn needs Python 3.11 or newer; %s is %d.%d. Name another one: make PYTHON=python3.12 ..." % (sys.executable, v[0], v[1]))'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[test]'
	@touch $@

demo: setup
	$(BIN)/python examples/energy_conservation.py --output figures
	$(BIN)/python examples/eight_gaussians.py --output figures
	$(BIN)/python examples/joint_distribution.py --draws 500 --gradient-budget 2000 --output figures

test: setup
	$(BIN)/python -m pytest --numprocesses auto

# Some of them compare with truths that the extra "bench" brings.
test-slow: $(BENCH_STAMP)
	$(BIN)/python -m pytest -m slow

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(BENCH_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --editable '.[bench]'
	@touch $@

# Some hours on two cores; what is stored can be reported at any time.
bench: $(BENCH_STAMP)
	$(BIN)/python -m benchmarks.run --suite all --jobs 2
	$(BIN)/python -m benchmarks.report

bench-smoke: $(BENCH_STAMP)
	rm -rf figures/bench-smoke
	$(BIN)/python -m benchmarks.run --suite smoke --output figures/bench-smoke
	$(BIN)/python -m benchmarks.report --results figures/bench-smoke --output figures/bench-smoke

# What one step of the kernel and of the training costs.
bench-micro: setup
	$(BIN)/python benchmarks/training.py
	$(BIN)/python benchmarks/kernel.py

clean:
	rm -rf $(VENV) figures build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache
