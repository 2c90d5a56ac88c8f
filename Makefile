# `make demo` and `make test` need only Python 3.11 and make: each installs into .venv first.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-oldest dist test-slow test-learning contract contract-record size words check docs audit install clean

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	touch $@

# Only slow tests need these: the libraries of examples/, the cluster on which `prepare --engine ray`
# is tested (80 MB to download), and triton, which torch's compiler asks about when it writes code
# for a GPU (290 MB).
$(VENV)/.slow: $(VENV)/.installed
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[examples,ray]' triton
	touch $@

install: $(VENV)/.installed

demo: install
	$(BIN)/electrify demo --output-dir demo

# Three at a time on two cores: many tests wait, for a process that they stopped or a lock.
test: install
	$(BIN)/python -m pytest -n 3 --dist loadfile

test-slow: $(VENV)/.slow
	$(BIN)/python -m pytest -m slow -n 2 --dist loadfile

# Without that text every test of it is skipped, which would look like success.
LEARNING := ../shared/data/corpus/wiki-00.txt.xz
test-learning: install
	$(if $(wildcard $(LEARNING)),,$(error nothing was run: test-learning trains on \
$(LEARNING), which is not there; put a text of some MB there, compressed with xz))
	$(BIN)/python -m pytest -m learning -n 2

# The program from outside: tests/contract/README.md. AGAINST=CLONE compares with another checkout.
CONTRACT := $(BIN)/python -m pytest tests/contract --confcutdir tests/contract --timeout 1800
contract: install
	$(CONTRACT) -n 2 --dist loadfile $(if $(AGAINST),--against=$(AGAINST))

contract-record: install
	$(CONTRACT) --record

# The site in build/site, from README.md, docs/, research/ and the docstrings.
$(VENV)/.docs: $(VENV)/.installed
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e '.[docs]'
	touch $@

docs: $(VENV)/.docs
	$(BIN)/python docs/site.py
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/zensical build --strict

words: install
	$(BIN)/python benchmarks/words.py

size:
	$(PYTHON) benchmarks/size.py

check: install
	$(BIN)/ruff check --no-cache src tests benchmarks docs examples
	$(BIN)/ruff format --check src tests benchmarks docs examples
	$(BIN)/pyright --pythonpath $(BIN)/python

# The tests with the oldest versions that pyproject.toml allows, but for the tools of the tests.
OLDEST := build/oldest
test-oldest:
	$(PYTHON) -m venv $(OLDEST)
	$(PYTHON) benchmarks/oldest.py > $(OLDEST)/pins.txt
	$(OLDEST)/bin/python -m pip install -q --disable-pip-version-check -c $(OLDEST)/pins.txt -e '.[all,dev]'
	$(OLDEST)/bin/python -m pytest -n 3 --dist loadfile

# The wheel and the sdist, and the wheel used where there is nothing else of the project.
CLEAN := build/wheel
dist:
	rm -rf dist $(CLEAN)
	$(PYTHON) -m venv $(CLEAN)
	$(CLEAN)/bin/python -m pip install -q --disable-pip-version-check build
	$(CLEAN)/bin/python -m build --outdir dist .
	$(CLEAN)/bin/python -m pip install -q --disable-pip-version-check -c constraints.txt dist/*.whl
	cd $(CLEAN) && bin/electrify --version && bin/electrify recipes electra-tiny > recipe.yaml
	cd $(CLEAN) && bin/electrify pretrain $(CURDIR)/README.md --recipe recipe.yaml --max-steps 2 --train-batch-size 16 \
		--output-dir run

# Needs the network: asks the database of Python advisories about every pin.
audit:
	$(PYTHON) -m venv .audit
	.audit/bin/python -m pip install -q --disable-pip-version-check pip-audit
	sed 's/+cpu//' constraints.txt > .audit/pins.txt
	.audit/bin/pip-audit -r .audit/pins.txt --no-deps --disable-pip

clean:
	rm -rf $(VENV) .audit demo
