# SPDX-FileCopyrightText: 2026 the Tutti authors
# SPDX-License-Identifier: BSD-3-Clause
#
# Short names for everyday work; CMakePresets.json and pyproject.toml do the real thing. Each target
# first gets what the machine lacks (tools/set_up.sh) and says in one line what cannot be had.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

JOBS ?= $(shell nproc)
BUILD := build/dev
# Not for the programs under test, which take TUTTI_* for knobs of the library.
WHEELS := $(TUTTI_WHEELS)
unexport TUTTI_WHEELS
export PATH := $(CURDIR)/.env/tools/bin:$(PATH)
export CMAKE_BUILD_PARALLEL_LEVEL := $(JOBS)
# Device images by the hash of their sources: every build of this tree shares them.
export DEVICE_IMAGES_CACHE := $(CURDIR)/.env/images

set_up := TUTTI_WHEELS="$(WHEELS)" tools/set_up.sh
tutti := TUTTI_LIBRARY_DIR=$(CURDIR)/$(BUILD)/lib PYTHONPATH=$(CURDIR)/python python3 -m

comma := ,

# In CI the counts of `test` and `sanitize` are added up at the end (.ci/run).
keep = $(if $(CI),--name $@)

# Two makes at the same time take turns in a build directory.
lock = mkdir -p build && flock build/$(1).lock

# configure(preset): only where there is no build directory yet, or set-up has found something since;
# Ninja looks after the rest. In CI lint looks at a room's sources together, too.
define configure
test build/$(1)/build.ninja -nt .env/stamps/found || \
  { $(call lock,$(1)) env TUTTI_WHEELS="$(WHEELS)" cmake --preset $(1) --log-level=NOTICE \
  $(if $(CI),-DTUTTI_UNITY_BUILD=ON); }
endef

# compile(preset, target): `all` without a target.
compile = $(call lock,$(1)) cmake --build --preset $(1) $(if $(2),--target $(2))

.PHONY: help
help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | expand -t 14

.PHONY: demo
demo: product ## native MPI, all NICs, a failing spine: tables and demo.png
	@cmake --build --preset dev --target tutti_demo
	@$(tutti) tutti_hpc.demo

.PHONY: product
product: ## the libraries and the measured programs, without the tests
	@$(set_up) compiler tools mpi
	@$(call configure,dev)
	@$(call compile,dev,tutti_product)

.PHONY: build
build: ## everything in build/dev
	@$(set_up) compiler tests tools mpi mpi4py_abi headers
	@$(call configure,dev)
	@$(call compile,dev)

.PHONY: test
test: build ## all tests; the last line counts them
	@$(set_up) torch rdma_vm
	@TUTTI_LIBRARY_DIR=$(CURDIR)/$(BUILD)/lib PYTHONPATH=$(CURDIR)/python \
	  python3 tools/run_tests.py --jobs $(JOBS) $(keep) --ctest $(BUILD) --pytest

.PHONY: check
check: build ## ctest and tests/python: all tests but those of tests/mpi, lab and rdma
	@$(set_up) torch
	@TUTTI_LIBRARY_DIR=$(CURDIR)/$(BUILD)/lib PYTHONPATH=$(CURDIR)/python \
	  python3 tools/run_tests.py --jobs $(JOBS) $(keep) --ctest $(BUILD) --pytest tests/python

.PHONY: torch-matrix
torch-matrix: build ## the PyTorch backend's tests with torch 2.11 to 2.15 (2.15 has not run; gigabytes of downloads)
	@TUTTI_LIBRARY_DIR=$(CURDIR)/$(BUILD)/lib PYTHONPATH=$(CURDIR)/python \
	  python3 tools/torch_matrix.py

.PHONY: sanitize
sanitize: ## unit, property, fuzz and simulation tests under ASan + UBSan and under TSan
	@$(set_up) compiler tests tools mpi
	@$(call configure,asan-ubsan)
	@$(call configure,tsan)
	@$(call compile,asan-ubsan,tutti_pure_tests)
	@$(call compile,tsan,tutti_pure_tests)
	@python3 tools/run_tests.py --jobs $(JOBS) $(keep) --ctest build/asan-ubsan --ctest build/tsan

.PHONY: lint
lint: lint-format lint-python lint-shell lint-tree lint-cpp ## formatters, linters, types, tools/tidy.py

sources = $(shell git ls-files --cached --others --exclude-standard -- $(1))

.PHONY: lint-set-up lint-format lint-python lint-shell lint-tree lint-cpp
lint-set-up:
	@$(set_up) compiler lint tools mpi
lint-format: lint-set-up
	@clang-format --dry-run -Werror $(call sources,'*.cpp' '*.hpp' '*.c' '*.h')
lint-python: lint-set-up
	ruff check --quiet .
	ruff format --check --quiet .
	mypy
lint-shell: lint-set-up
	shellcheck $(call sources,'*.sh' .ci/run)
lint-tree: lint-set-up
	python3 tools/tidy.py
# Clang knows neither all of GCC's warning options nor its precompiled headers: build/lint has none
# and is only configured. It warns of what libstdc++ uses itself (stable_sort). In CI a room's sources
# are looked at together, in a third of the time, and without the path-sensitive analyzer, which takes
# several times as long as all other checks together.
lint-cpp: lint-set-up
	@$(call configure,lint)
	@ninja -C build/lint --quiet build.ninja  # New and moved sources, as a build would see them.
	run-clang-tidy.py -quiet -hide-progress -j $(JOBS) -p build/lint \
	  -extra-arg=-Wno-unknown-warning-option -extra-arg=-Wno-deprecated-declarations \
	  $(if $(CI),-checks='-clang-analyzer-*$(comma)-bugprone-suspicious-include') \
	  '^$(CURDIR)/(src|bench|build/lint/src|build/lint/bench)/' 2>/dev/null >build/lint/clang-tidy.log \
	  || { grep -E -A4 '(error|warning):' build/lint/clang-tidy.log; exit 1; }

.PHONY: format
format: lint-set-up ## puts every file into its right form
	clang-format -i $(call sources,'*.cpp' '*.hpp' '*.c' '*.h')
	ruff check --quiet --fix . || true
	ruff format --quiet .

# Those that need no argument and no GPU; tools/gpu_check.sh runs bench/gpu_node.py.
benches := schedule transport sim_network overhead lab

.PHONY: bench
bench: product ## the measurements of bench/ that run anywhere, each against its bound
	@$(set_up) tests
	@$(call configure,dev)
	@$(call compile,dev,schedule_bench transport_bench)
	@for script in $(benches); do \
	  echo "== bench/$$script.py"; \
	  TUTTI_LIBRARY_DIR=$(CURDIR)/$(BUILD)/lib PYTHONPATH=$(CURDIR)/python \
	    python3 bench/$$script.py; \
	done

.PHONY: wheel
# Runs with glibc 2.28 and later, whatever this system has. Made of the source archive, as pip makes
# one, with the packages that pyproject.toml names. WHEEL_FLAGS: the compiler's, in place of a release's.
# Open MPI's and MPICH's libraries are the user's own.
WHEEL_GLIBC := 2.28
wheel: ## dist/tutti_hpc-*.whl and the source archive
	@$(set_up) compiler tools
	rm -rf build/dist
	python3 -m build --sdist --no-isolation --skip-dependency-check --outdir build/dist
	TUTTI_WHEELS="$(WHEELS)" python3 -m pip wheel --no-deps --wheel-dir build/dist \
	  $(if $(WHEELS),--no-index --find-links "$(WHEELS)") \
	  --config-settings=cmake.define.TUTTI_OLDEST_GLIBC=$(WHEEL_GLIBC) \
	  $(if $(WHEEL_FLAGS),--config-settings=cmake.define.CMAKE_CXX_FLAGS_RELEASE="$(WHEEL_FLAGS)") \
	  build/dist/tutti_hpc-*.tar.gz
	python3 -m auditwheel repair --plat manylinux_$(subst .,_,$(WHEEL_GLIBC))_x86_64 --only-plat \
	  --exclude 'libmpi.so.*' --exclude 'libmpi_abi.so.*' --wheel-dir dist build/dist/*.whl
	mkdir -p dist && mv build/dist/*.tar.gz dist/

.PHONY: clean
clean: ## removes build/ and dist/; .env stays (rm -r .env)
	rm -rf build dist
