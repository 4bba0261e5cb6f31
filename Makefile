# A thin face over packaging/bootstrap.py, which does the same where there is no make.
# Pass arguments on with ARGS: make run ARGS='ask "Hello"'; make test ARGS='-k tokenizer'.
PYTHON ?= python3
BIN = .venv/bin
ifeq ($(OS),Windows_NT)
BIN = .venv/Scripts
endif

.PHONY: run test sanitize build-env bench lint lint-rules lint-format lint-types lint-imports

run:
	@$(PYTHON) packaging/bootstrap.py run $(ARGS)

test:
	@$(PYTHON) packaging/bootstrap.py test $(ARGS)

# The kernels' tests under sanitizers; ISAS='avx2;neon' compiles these instruction sets only.
sanitize: build-env
	@PATH="$(CURDIR)/$(BIN):$$PATH" ISAS='$(ISAS)' sh tests/engine/kernels/run_sanitized.sh $(ARGS)

build-env:
	@$(PYTHON) packaging/bootstrap.py build-env

# One target per tool, so that `make --keep-going lint` shows what each of them has to say.
lint: lint-rules lint-format lint-types lint-imports

lint-rules: build-env
	$(BIN)/ruff check .

lint-format: build-env
	$(BIN)/ruff format --check .

lint-types: build-env
	$(BIN)/mypy

lint-imports: build-env
	$(BIN)/lint-imports --no-logo

bench: build-env
	@$(PYTHON) packaging/bootstrap.py run bench $(or $(ARGS),speed --peer)
