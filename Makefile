# A thin face over packaging/bootstrap.py, which does the same where there is no make.
# Pass arguments on with ARGS: make run ARGS='ask "Hello"'; make test ARGS='-k tokenizer'.
PYTHON ?= python3
BIN = .venv/bin
ifeq ($(OS),Windows_NT)
BIN = .venv/Scripts
endif

.PHONY: run test lint build-env bench

run:
	@$(PYTHON) packaging/bootstrap.py run $(ARGS)

test:
	@$(PYTHON) packaging/bootstrap.py test $(ARGS)

build-env:
	@$(PYTHON) packaging/bootstrap.py build-env

lint: build-env
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

bench: build-env
	@$(PYTHON) packaging/bootstrap.py run bench $(or $(ARGS),speed --peer)
