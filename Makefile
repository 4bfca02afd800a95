# Two commands set everything up on a fresh machine: `make demo` and `make test`.
# Both make .venv, and install system packages only where they have the right to (root and apt); where not, they say so.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

# Bytecode is written, whoever has forbidden it: each of some thousand runs of necropsy would compile anew, and each worker
# of pytest all tests. It lies in __pycache__, which git ignores.
export PYTHONDONTWRITEBYTECODE :=

# Without it, mkdocs-material advertises its successor at each build.
export NO_MKDOCS_2_WARNING := 1

.PHONY: help demo demo-confirm test all-tests test-aarch64 test-musl check check-python quick-tests medium-tests lint types docs picture site dist dist-aarch64 outputs profiles readme bench races cpython-tests fuzz preload clean system-packages musl-packages windows-packages browser-packages

help:
	@echo "make demo    run the TensorFlow crashes of examples/ and show what necropsy finds"
	@echo "make demo-confirm  prove the cause of each of these crashes, and a fix: some ten minutes"
	@echo "make test    everything that decides whether a change lands: lint, types, tests"
	@echo "make test-aarch64  programs that die on an emulated AArch64 machine: it takes long (Debian)"
	@echo "make test-musl  necropsy in a Python that is linked with musl, as on Alpine (Debian, x86-64)"
	@echo "make check   lint, types and the quick tests, without wine, TensorFlow and slow crashers"
	@echo "make check-python  the same, and the tests that take a few seconds each: for another version of Python"
	@echo "make docs    regenerate the pages that are made from the code"
	@echo "make site    the documentation as a site that needs no network, in build/site"
	@echo "make dist    the source distribution, with that site in it, and the wheel"
	@echo "make dist-aarch64  the wheels for Linux on AArch64, compiled on any Linux machine (gcc-aarch64-linux-gnu)"
	@echo "make outputs put real output of necropsy and other tools into the manual (gcc, gdb, a kernel that writes cores)"
	@echo "make fuzz    look for minidumps that break the reader, for ten minutes (Linux)"
	@echo "make readme  put real output into README.md"
	@echo "make picture make the picture of a page in README.md"
	@echo "make bench   necropsy beside gdb and pystack on the same crashes, and what supervision costs; an hour"
	@echo "make races   programs whose death is a matter of chance: do they die as often under necropsy? some minutes"
	@echo "make cpython-tests  CPython's own tests plain and under necropsy: an hour"

$(STAMP): pyproject.toml hatch_build.py $(wildcard src/necropsy/capture/linux/csrc/* src/necropsy/capture/linux/csrc/*/*)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip || true
	$(BIN)/python -m pip install --quiet -e '.[test,examples,docs]' || { \
	  echo "The packages that are needed could not be installed, see above. It takes a network (or a package index, see"; \
	  echo "\`pip config\`) and Python 3.10 or newer; another one: make PYTHON=python3.12 ..."; exit 1; }
	@touch $@

# g++ builds the custom ops and the crashers; gdb is only for the comparison in `make bench`. wine runs the Windows
# programs that MinGW builds (about 30 s to install, 1.1 GB).
system-packages:
	@.ci/system-packages g++

# musl-gcc builds programs for musl, which the tests let die (about 5 s to install, 3 MB).
musl-packages:
	@.ci/system-packages musl-tools:musl-gcc

windows-packages:
	@.ci/system-packages wine wine64:wineserver gcc-mingw-w64-x86-64-win32:x86_64-w64-mingw32-gcc \
	  g++-mingw-w64-x86-64-win32:x86_64-w64-mingw32-g++

# A browser in which axe-core checks the pages (about 20 s to install, 400 MB).
browser-packages:
	@.ci/system-packages chromium

demo: $(STAMP) system-packages
	$(BIN)/python examples/demo $(if $(CONFIRM),--confirm) $(NAMES)

demo-confirm: $(STAMP) system-packages
	$(BIN)/python examples/demo --confirm $(NAMES)

# Three tests at a time for two processors: many of them wait, for a program to die or for a second to pass.
WORKERS ?= 3

# The types are checked beside the tests. Everything is compiled before the first test, which loads it many times.
test: $(STAMP) system-packages musl-packages windows-packages browser-packages lint
	@$(BIN)/python -m compileall -q -j 0 src
	@$(MAKE) --no-print-directory -j 2 types all-tests

all-tests:
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations=40 --durations-min=5

# By hand, on Debian: what `run` and `attach` do on AArch64, from a wheel that is built here and installed there. The kernel,
# the root file system and the wheels of the emulated machine are downloaded once (350 MB with what is made of them), and kept
# in NECROPSY_AARCH64. PAGES=16k: with Debian 13's kernel for pages of 16 KiB (another 90 MB).
# PAGES=64k: with a kernel that is compiled for pages of 64 KiB.
test-aarch64: $(STAMP)
	@.ci/system-packages qemu-system-arm:qemu-system-aarch64 g++-aarch64-linux-gnu:aarch64-linux-gnu-g++ e2fsprogs:mke2fs \
		$(if $(filter 64k,$(PAGES)),make flex bison bc)
	NECROPSY_AARCH64=$${NECROPSY_AARCH64:-$$HOME/.cache/necropsy-aarch64} NECROPSY_AARCH64_PAGES=$(PAGES) $(BIN)/python -m pytest -v tests/aarch64

# By hand, on Debian and x86-64: necropsy in a Python that is linked with musl, which is built once, in NECROPSY_MUSL.
test-musl: $(STAMP) musl-packages
	@.ci/system-packages make pkg-config
	NECROPSY_MUSL=$${NECROPSY_MUSL:-$$HOME/.cache/necropsy-musl} $(BIN)/python -m pytest -v tests/musl

# After each change. What it leaves out: tests/marks.py.
check: $(STAMP) lint
	@$(BIN)/python -m compileall -q -j 0 src
	@$(MAKE) --no-print-directory -j 2 types quick-tests

quick-tests:
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not medium and not wine and not tensorflow"

# What the workflow runs with each version of Python.
check-python: $(STAMP) lint
	@$(BIN)/python -m compileall -q -j 0 src
	@$(MAKE) --no-print-directory -j 2 types medium-tests

medium-tests:
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not slow and not wine and not tensorflow"

lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks docs examples scripts
	$(BIN)/ruff format --check src tests benchmarks docs examples scripts

types: $(STAMP)
	$(BIN)/mypy

# By hand, with a browser: the picture in README.md.
picture: $(STAMP) system-packages browser-packages
	@.ci/system-packages pngquant
	$(BIN)/python docs/generate_picture.py

docs: $(STAMP)
	$(BIN)/python docs/generate_rules.py
	$(BIN)/python docs/generate_reference.py
	$(BIN)/python docs/generate_cli.py
	$(BIN)/python docs/generate_json.py

site: $(STAMP) docs
	$(BIN)/python -m mkdocs build --quiet

dist: site
	$(BIN)/python -m pip install --quiet build
	$(BIN)/python -m build
	NECROPSY_LIBC=musl $(BIN)/python -m build --wheel

# The wheels for Linux on AArch64, built here: the same that are built on such a machine.
dist-aarch64: $(STAMP)
	@.ci/system-packages gcc-aarch64-linux-gnu:aarch64-linux-gnu-gcc
	CC=aarch64-linux-gnu-gcc NECROPSY_LIBC=glibc $(BIN)/python -m hatchling build --target wheel
	CC=aarch64-linux-gnu-gcc NECROPSY_LIBC=musl $(BIN)/python -m hatchling build --target wheel

# By hand, where the kernel writes cores to the working directory.
outputs: $(STAMP)
	@.ci/system-packages gcc gdb
	$(BIN)/python -m pip install --quiet -e '.[bench]'
	ulimit -c unlimited; $(BIN)/python docs/generate_outputs.py

# By hand: the numbers of the page of profiled examples.
profiles: $(STAMP)
	@.ci/system-packages g++
	$(BIN)/python docs/generate_profiles.py

bench: $(STAMP)
	@.ci/system-packages gdb g++
	$(BIN)/python -m pip install --quiet -e '.[bench]'
	$(BIN)/python benchmarks/bench.py --out benchmarks/RESULTS.md
	$(BIN)/python benchmarks/cost.py --out benchmarks/RESULTS.md --summary docs/explanation/limits.md
	$(BIN)/python benchmarks/profiling.py --out benchmarks/RESULTS.md
	$(BIN)/python benchmarks/dataset.py --out benchmarks/RESULTS.md
	$(BIN)/python benchmarks/doctor.py --out benchmarks/RESULTS.md
	$(BIN)/python benchmarks/contain.py --out benchmarks/RESULTS.md
	$(BIN)/python benchmarks/reduce.py --out benchmarks/RESULTS.md
	$(BIN)/python benchmarks/fuzz.py --out benchmarks/RESULTS.md
	$(BIN)/python benchmarks/triage.py --out benchmarks/RESULTS.md

# By hand: what the tests hold with a few runs, with fifty.
races: $(STAMP)
	@.ci/system-packages gcc
	$(BIN)/python tests/race_rates.py

# By hand. It takes an interpreter with the package `test`: make cpython-tests PYTHON=/usr/bin/python3
cpython-tests: $(STAMP)
	$(BIN)/python benchmarks/cpython_tests.py --python $(PYTHON)

# By hand: ten minutes of coverage-guided fuzzing of all that reads a minidump. What fails is written to build/fuzz-*.
fuzz: $(STAMP)
	@mkdir -p build
	$(BIN)/python -m pip install --quiet atheris
	$(BIN)/python tests/fuzz/fuzz_minidump.py -max_total_time=600 -timeout=20 -rss_limit_mb=2048 -max_len=16384 -artifact_prefix=build/fuzz-

# What is loaded into the runs of an experiment, made once and kept: it has to work where there is no compiler.
PRELOAD := src/necropsy/confirm/preload
preload:
	for name in own_memory refused replace_library thread_stack unmapped; do \
	  gcc -O2 -fPIC -fno-builtin -s -shared -nostartfiles -Wl,--build-id=none -Wl,-soname,$$name.so \
	    -o $(PRELOAD)/$$name-x86_64.so $(PRELOAD)/$$name.c || exit 1; \
	done

readme: $(STAMP)
	$(BIN)/python docs/generate_readme.py

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
