# `make demo` and `make test` set themselves up on a machine with Python >= 3.11 and a C compiler.
PYTHON ?= python3
VENV ?= .venv
PY := $(VENV)/bin/python
CLANG ?= $(shell command -v clang || command -v cc)
# A tested release; set TORCH to another build for another kind of accelerator.
TORCH ?= torch==2.13.0
# Frameworks that the tests train with; installed after PyTorch, else pip may fetch another build of it.
TRAINERS := accelerate lightning transformers
KERNEL := $(wildcard kernel/*.h kernel/*/*.h src/corgipile/_kernel/*.[ch])

.PHONY: setup demo demo-postgres test check docs wheels memcheck figures bench clean

BUILT := src/corgipile/_kernel.abi3.so
# Bytecode is written at first import, since packages hold ten times as much as is imported. Without stored bytecode,
# each of thousands of test processes would compile its imports, which takes seconds and 15 MB.
unexport PYTHONDONTWRITEBYTECODE
INSTALL := $(PY) -m pip install --quiet --no-compile

setup: $(VENV)/.installed
	@$(MAKE) --no-print-directory $(BUILT)

# The kernel compiles while PyTorch downloads.
$(VENV)/.installed: pyproject.toml setup.py
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade "pip>=25.1" "setuptools>=77" wheel
	$(PY) setup.py --quiet build_ext --inplace & built=$$!; \
	$(PY) -c "import torch" 2>/dev/null || $(INSTALL) "$(TORCH)" || \
	    echo "PyTorch is not available here; its tests are skipped"; \
	! $(PY) -m pip show --quiet torch 2>/dev/null || $(INSTALL) "torchdata>=0.11" $(TRAINERS) || \
	    echo "$(TRAINERS) are not available here; their tests are skipped"; \
	wait $$built
	$(INSTALL) --no-build-isolation --editable ".[all]" --group dev
	touch $@

$(BUILT): $(KERNEL)
	$(PY) setup.py --quiet build_ext --inplace
	touch $@

demo: setup
	$(PY) examples/demo.py

# Compiles the extension for a server from PyPI, and trains inside it.
demo-postgres: setup
	$(PY) examples/demo_postgres.py

# Six processes, since most tests wait for a disk, a server, a compiler or their own processes: databases; PyTorch;
# loaders, stores and damaged files; compiled programs; commands and memory measurements; the rest.
DATABASES := tests/postgres tests/sql
TORCH_TESTS := tests/torch tests/examples
LOADERS := tests/stores tests/loader tests/tables/test_flips.py
PROGRAMS := tests/kernel
COMMANDS := tests/cli tests/test_budget.py tests/test_documents.py

PARTS := databases torch loaders programs commands
TEST_databases := $(PY) -m pytest $(DATABASES)
TEST_torch := $(PY) -m pytest $(TORCH_TESTS)
TEST_loaders := $(PY) -m pytest $(LOADERS)
TEST_programs := $(PY) -m pytest $(PROGRAMS)
TEST_commands := $(PY) -m pytest $(COMMANDS)
TEST_rest := $(PY) -m pytest --doctest-modules $(addprefix --ignore=,$(DATABASES) $(TORCH_TESTS) $(LOADERS) $(PROGRAMS) $(COMMANDS))

test: setup
	@logs=$$(mktemp -d); \
	$(foreach part,$(PARTS),{ $(TEST_$(part)) > $$logs/$(part) 2>&1; echo $$? > $$logs/$(part).rc; } & ) \
	$(TEST_rest); echo $$? > $$logs/rest.rc; wait; \
	for part in $(PARTS); do cat $$logs/$$part; done; codes=$$(cat $$logs/*.rc | sort -u); rm -rf $$logs; test "$$codes" = 0

# A single part: `make test-databases` and so on.
$(addprefix test-,$(PARTS) rest): test-%: setup
	$(TEST_$*)

check: setup
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	for file in src/corgipile/_kernel/*.c; do \
	    $(CLANG) -fsyntax-only -std=c11 -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wswitch-enum -Werror -DPy_LIMITED_API=0x030B0000 \
	        -Ikernel -Isrc/corgipile/_kernel -I$$($(PY) -c "import sysconfig; print(sysconfig.get_path('include'))") $$file || exit 1; \
	done

# The site, in build/site, with each tutorial as a notebook; broken links and names fail.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	$(PY) tools/notebooks.py build/site/tutorials

$(VENV)/.docs: $(VENV)/.installed
	$(PY) -m pip install --quiet --group docs
	touch $@

# The wheels of all platforms, in dist: Zig compiles them on any Linux. RUNS names interpreters to run them with.
wheels: $(VENV)/.wheels
	$(PY) tools/wheels.py $(foreach run,$(RUNS),--run "$(run)")

$(VENV)/.wheels: pyproject.toml
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(INSTALL) --upgrade "pip>=25.1" && $(INSTALL) --group wheels
	touch $@

# Some tests of the PostgreSQL extension under valgrind (minutes), compiled for one vector width that valgrind supports.
memcheck: setup
	CORGIPILE_VALGRIND=1 EXTRA_CFLAGS="-O1 -g -DCP_NO_CLONES -DUSE_ASSERT_CHECKING" CORGIPILE_INTERRUPTIONS=3 \
	    $(PY) -m pytest tests/postgres -k "regress or awkward or (same_seed and (real or words)) or (interrupted and cancel)"

# The saved results behind the figures of each page, and how old they are.
figures: setup
	$(PY) bench/figures.py

bench: setup
	$(PY) bench/run.py

clean:
	rm -rf $(VENV) build dist src/*.egg-info src/corgipile/*.so
