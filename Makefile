PYTHON ?= python3
BIN := .venv/bin
.DEFAULT_GOAL := help

help: ## list the targets
	@sed -n 's/^\([a-z0-9-]*\):.*## \(.*\)/  make \1\t\2/p' $(MAKEFILE_LIST) | expand -t 20

setup: .venv/.ready ## make .venv from the hash-locked requirements

.venv/.ready: requirements.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Muster needs Python 3.11 or newer: make setup PYTHON=python3.11")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.txt
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

check: setup ## lint, types, import directions, sizes, texts, generated files
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q tests/architecture

test: setup ## every test that needs neither root nor a service this machine lacks
	$(BIN)/pytest --ignore tests/architecture --ignore tests/e2e/test_failover.py

drills: setup ## clusters that are stopped, killed, frozen and cut off under runs, on real Ray; some ten minutes
	$(BIN)/pytest tests/e2e/test_failover.py

test-fast: setup ## the tests that start no Ray
	$(BIN)/pytest --ignore tests/architecture -m "not ray"

failures: setup ## play 1,000 seeded schedules of failures, some twenty minutes
	$(BIN)/python -m tests.simulation.failures 1000

s3-server: setup ## build the S3 server of the tests, once, with Go; some minutes
	$(BIN)/python -m tests.builders.seaweedfs

fmt: setup ## format, and mend what can be mended
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

run: setup ## the service in the foreground, on its own state folder
	$(BIN)/muster serve

openapi: setup ## write api/openapi.json anew from the application
	$(BIN)/python -m api.openapi

migration: setup ## draft the next step of the schema: make migration m="what changes"
	$(BIN)/python -m api.migrations "$(m)"
	$(BIN)/ruff check --fix --quiet api/migrations/versions
	$(BIN)/ruff format --quiet api/migrations/versions

docs: setup ## write the generated reference pages anew
	$(BIN)/python -m tests.architecture.reference

bench: setup ## measure beside plain Ray, some half an hour; with RECORD=1 into docs/benchmarks.md
	$(BIN)/python -m benchmarks $(if $(RECORD),--record)

demo: setup ## run the sample once in each run mode, on real Ray clusters on this machine
	$(BIN)/python docs/demo/demo.py

.PHONY: bench check demo docs drills failures fmt help migration openapi run s3-server setup test test-fast
