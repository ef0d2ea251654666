# The commands of the project. Each sets up and builds what it needs; HACKING.md says what lies behind them.
SHELL := /bin/bash
export PATH := $(CURDIR)/.venv/bin:$(PATH)
DEMO_STEPS ?=
# full or fast, and the backend: tests/torch_suite/README.md
TORCH_SUITE ?= full
TORCH_SUITE_BACKEND ?= cohort
# One compiler per core, but no more than 2 GiB of memory each allow: sources that use LibTorch are large.
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell awk -v cores=$$(nproc) '/MemAvailable/ {m = int($$2 / 2097152); j = m < cores ? m : cores; print j < 1 ? 1 : j}' /proc/meminfo)

.PHONY: help setup build build-gate demo wheel test test-all release-check torch-suite mutants bench asan asan-torch tsan fuzz aarch64 compat format check tidy clean

help:
	@echo "make demo     train a small GPT on 2 processes (DEMO_STEPS=20: the short form)"
	@echo "make wheel    a Python wheel with the launcher, the library and a program to try, in dist/"
	@echo "make test     build and prove the product (CHANGED=1: only what your change can affect)"
	@echo "make test-all  every test there is"
	@echo "make release-check  test-all, sanitizers, other releases of LibTorch, other processors: all that takes hours"
	@echo "make torch-suite  PyTorch's own backend tests on backend cohort (TORCH_SUITE=fast: a part)"
	@echo "make mutants  break the sources in many places, one at a time, and see whether the tests notice (MUTANTS=--help)"
	@echo "make mutants SAMPLE=200 SEED=7  the same with places drawn at random, and the share that is noticed"
	@echo "make bench    every benchmark beside its rivals, JSON in build/bench/"
	@echo "make asan     address and undefined-behavior sanitizers over the layers without LibTorch"
	@echo "make asan-torch  the same over the layers with LibTorch, which itself is not instrumented (slow; before each release)"
	@echo "make tsan     thread sanitizer over the layers without LibTorch"
	@echo "make fuzz     hostile input for every parser (FUZZ_SECONDS=600: longer, FUZZ_TARGETS='http etcd': only these)"
	@echo "make aarch64  cross-compile the shared-memory engine and run its tests under qemu-user"
	@echo "make compat   build and test against the other supported releases of LibTorch"
	@echo "make check    layers, budgets, registered tests, parity table, format"
	@echo "make tidy     clang-tidy over the sources that changed"
	@echo "make format   format all sources"
	@echo "make clean    remove build/ (.venv stays)"

setup:
	@tools/dev/setup.sh

build/build.ninja: | setup
	cmake --preset release

build: setup build/build.ninja
	cmake --build --preset release

build-gate: setup build/build.ninja
	cmake --build --preset release --target gate

demo: setup build/build.ninja
	cmake --build --preset release --target cohort_launcher train_gpt
	@rm -rf build/demo && mkdir -p build/demo
	build/bin/cohort run --standalone --nproc-per-node 2 build/bin/examples/train_gpt \
	  --checkpoint build/demo/train_gpt $(if $(DEMO_STEPS),--steps $(DEMO_STEPS))

# For this machine's kind of Python and PyTorch: pip install dist/*.whl && cohort demo
wheel: setup build/build.ninja
	cmake --build --preset release --target torchcohort
	COHORT_BUILD_DIR=build .venv/bin/python -m pip wheel -q --no-deps --no-build-isolation --wheel-dir dist .

test: build-gate
	tools/dev/run_tests.sh $(if $(CHANGED),changed)

test-all: build
	tools/dev/run_tests.sh all

release-check: setup
	tools/dev/release_check.sh

torch-suite: setup build/build.ninja
	cmake --build --preset release --target torchcohort_module
	COHORT_TEST_RARE_GC=1 PYTHONPATH=build/python .venv/bin/python tests/torch_suite/run.py --backend $(TORCH_SUITE_BACKEND) \
	  --selection $(TORCH_SUITE) --json build/torch-suite.json

mutants: setup
	$(if $(SAMPLE),tools/dev/sample_mutants.py --sample $(SAMPLE) --seed $(or $(SEED),1),tools/dev/mutants.py) $(MUTANTS)

bench: build
	@mkdir -p build/bench
	build/bin/cohort-bench all --json build/bench/all.json

asan asan-torch tsan: setup
	cmake --preset $@
	cmake --build --preset $@
	@mkdir -p build/test-logs
	ctest --preset $@ -j $$(($$(nproc) + 1)) --output-junit $(CURDIR)/build/test-logs/$@.xml

fuzz: setup
	tools/dev/fuzz.sh

aarch64: setup
	tools/dev/aarch64.sh

compat: setup
	tools/dev/compat.sh

check: setup
	tools/dev/check.sh

tidy: setup
	tools/dev/tidy.sh

format: setup
	tools/dev/format.sh

clean:
	rm -rf build
