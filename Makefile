# Every target does its own set-up, in .venv. Another Python: make PY=python3.12 test. Commands shown: make V=1 build
PY ?= python3
ARGS ?=
DEVICE ?=
TACK ?=
# The Python tests run in two processes, a file in one of them. One process: make test-py PARALLEL=
PARALLEL ?= -n 2 --dist loadfile
VPY := .venv/bin/python
# Runs a command in the build's environment: Go (of PATH, or PyPI's), the C compiler, Python.h
IN := $(VPY) buildsystem/toolchain.py
export V

.PHONY: help setup develop build demo demo-dask demo-mpi test test-go test-py test-numpy test-gpu test-clients test-tack bench model race asan lint docs format wheel wheels clean

help:
	@echo "make develop       make the virtual environment .venv, with the package importable from this checkout"
	@echo "make build         bring the native part up to date, after a change of Go or C"
	@echo "make demo          the main job, without and with budgets (DEVICE=sim-hip:0: there; ARGS=--help lists its options)"
	@echo "make demo-dask     the same job in pieces on a Dask cluster of four workers, each on a device that is too small"
	@echo "make demo-mpi      the same on four MPI ranks"
	@echo "make test          test-go and test-py"
	@echo "make test-numpy    NumPy's own tests with each allocator in the whole process (an hour or two), and ours on the oldest NumPy (ARGS=--help: its options)"
	@echo "make test-gpu      the tests on real devices; writes bench/RESULTS-gpu.md (without a GPU it says so)"
	@echo "make test-clients  other people's CUDA packages over the software driver"
	@echo "make test-tack     Tack's own tests, plugged in, and ours on Tack (TACK=path of a checkout of its sources; ARGS=sweep: that part)"
	@echo "make bench         the benchmarks; writes bench/RESULTS.md"
	@echo "make model         check the model of the protocol"
	@echo "make race          the Python tests under Go's race detector"
	@echo "make asan          the Python tests under AddressSanitizer"
	@echo "make lint          what CI checks beside the tests: formats, types, vet"
	@echo "make docs          the site of the documentation, in build/site"
	@echo "make format        reformat the sources"
	@echo "make wheel         a wheel for this Python and this machine, in dist/"
	@echo "make wheels        wheels for CPython 3.11 to 3.13 that run on other machines, each tried in a clean environment, and an sdist, in dist/"
	@echo "make clean         delete what was built"

setup:
	@command -v $(PY) >/dev/null || { echo "tack-memory: no $(PY) here. Install Python 3.11 or newer, or name it: make PY=/path/to/python3" >&2; exit 1; }
	@$(PY) buildsystem/develop.py

develop: build
	@echo "tack-memory: ready. Use .venv/bin/python, or: source .venv/bin/activate"

build: setup
	@$(VPY) buildsystem/native.py --inplace

demo: build
	@$(VPY) examples/sweep.py $(if $(DEVICE),--device $(DEVICE)) $(ARGS)

demo-dask: build
	@$(VPY) examples/dask_sweep.py $(ARGS)

demo-mpi: build
	@$(VPY) examples/mpi_sweep.py $(ARGS)

test: test-go test-py

# With TACK_MEMORY_FETCH_HEADERS=1 the vendors' own headers are fetched, and all tables compared with them; else that is skipped where they are not there.
test-go: setup
	$(if $(filter 1,$(TACK_MEMORY_FETCH_HEADERS)),$(MAKE) --no-print-directory -C backends/softdriver headers PYTHON=$(abspath $(VPY)))
	@$(MAKE) --no-print-directory -C backends/softdriver OUT=$(abspath build/softdriver/test-go)
	$(IN) go vet -tags invariants ./...
	TACK_MEMORY_TEST_SIM_FOLDER=$(abspath build/softdriver/test-go) $(IN) go test -race -timeout 30m -tags invariants ./...

# The tests of hosts in processes of their own: a host's memory that is left on a device is none of ours, and would be missing to tests of exact sizes. Those of NumPy's
# memory, too: they count every array of their process. Those of Dask and MPI start processes of their own, so no two of them at a time.
PYTEST := $(VPY) -m pytest -q $(PARALLEL)
APART := tests/py/hosts tests/py/numpy tests/py/dask tests/py/mpi
test-py: build
	$(if $(ARGS),$(PYTEST) $(ARGS),$(PYTEST) $(APART:%=--ignore=%) && $(PYTEST) tests/py/hosts && $(PYTEST) tests/py/numpy && $(VPY) -m pytest -q tests/py/dask tests/py/mpi)

test-numpy: build
	$(if $(ARGS),,tests/py/numpy/oldest)
	@$(VPY) tests/numpy_suite/run.py $(ARGS)

test-gpu: build
	@$(VPY) tests/gpu/run.py $(ARGS)

test-clients: build
	PY=$(PY) tests/clients/run $(ARGS)

test-tack: build
	@$(VPY) tests/tack/run.py --tack "$(TACK)" $(ARGS)

bench: build
	$(IN) $(VPY) bench/run.py $(ARGS)

model: setup
	$(VPY) gomem/model/run $(ARGS)

# Go's race runtime cannot be loaded by dlopen, so this makes an interpreter that has the extension inside. A race makes it exit with 66.
race: build
	@$(VPY) buildsystem/native.py --sanitizer race --interpreter build/race/python
	rm -f build/race/report.*
	TM_PYTHON=$(abspath $(VPY)) GORACE=log_path=$(abspath build/race/report) build/race/python -m pytest -q $(PARALLEL) $(ARGS) \
		|| { code=$$?; cat build/race/report.* 2>/dev/null; exit $$code; }

# On the C half, and on Go's uses of C memory. Some tests ask for more memory than there is: the allocator has to say no, and not end the process.
asan: setup
	rm -rf build/asan && mkdir -p build/asan && cp -r python/tack_memory build/asan/
	@$(VPY) buildsystem/native.py --sanitizer asan --destination build/asan/tack_memory/_native
	PYTHONPATH=$(abspath build/asan) LD_PRELOAD=$$($${CC:-gcc} -print-file-name=libasan.so) ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 PYTHONMALLOC=malloc \
		$(VPY) -m pytest -q $(PARALLEL) $(ARGS)

lint: setup
	$(IN) buildsystem/lint

docs: build
	@$(VPY) buildsystem/docs.py

format: setup
	$(IN) gofmt -w $(wildcard gomem backends bindings tests/go bench)
	$(VPY) -m ruff check --fix .
	$(VPY) -m ruff format .

wheel: setup
	$(VPY) -m pip wheel -q --no-deps -w dist .

# ARGS="3.12 --skip-missing" for some; ARGS=--help
wheels:
	@$(PY) buildsystem/wheels.py $(ARGS)

clean:
	rm -rf build dist python/tack_memory/_native/*.so python/tack_memory/_native/go.py python/tack_memory/_native/bindings.py
