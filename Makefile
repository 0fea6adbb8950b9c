# Each target sets up its own environment in .venv.
#   make demo   train, evaluate, export and draw on generated data (about ten minutes, two cores)
#   make test   the test suite
#   make lint   ruff
# Another interpreter: make test PYTHON=python3.9 VENV=.venv39
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test test-slow lint bench clean

demo: $(VENV)/.installed
	$(BIN)/python tools/demo.py --out runs/demo

test: $(VENV)/.test-installed
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

test-slow: $(VENV)/.test-installed
	$(BIN)/python -m pytest -m slow

lint: $(VENV)/.test-installed
	$(BIN)/ruff check .

bench: $(VENV)/.test-installed
	for script in benchmarks/*.py; do $(BIN)/python $$script || exit 1; done

clean:
	rm -rf $(VENV) runs build *.egg-info

# A container without libGL can't load opencv-python: the headless build takes its place there.
# Without a C++ compiler the faster operators stay away, and nothing else.
$(VENV)/.installed: setup.py
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install -q --disable-pip-version-check -e .
	$(BIN)/python -c "import cv2" 2>/dev/null || { \
		$(BIN)/pip uninstall -q -y opencv-python && \
		$(BIN)/pip install -q --disable-pip-version-check "opencv-python-headless<4.12"; }
	-@$(BIN)/python tools/build_ops.py
	touch $@

# torch: the weight converter is tested, not skipped
$(VENV)/.test-installed: $(VENV)/.installed
	$(BIN)/pip install -q --disable-pip-version-check -e ".[dev,fast,onnx]" "torch==2.13.0"
	touch $@
