# Everything a person runs. `make help` explains.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

DENY_VERSION := 0.20.2
MACHETE_VERSION := 0.9.1
# tests that boot a control plane of their own; each takes about 700 MB and half a core
RIG_JOBS ?= 4
# rotations that `make simulate` wants to see
ROTATIONS ?= 20000
# what chooses the histories and the sample of mutants; printed by each
ifndef SEED
SEED := $(shell date +%s)
endif
# how long `make fuzz` runs, all targets together
FUZZ_SECONDS ?= 60
# mutants that `make mutants-sample` tries
MUTANTS ?= 20

.PHONY: help libfuzzer simulate mutants mutants-sample faults demo test check unit fuzz rig-tests vectors bench crd chart-readme tools deny unused docs layers build

help: ## This list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  Needs Rust >= 1.95, Go >= 1.26, a C compiler. The first run builds a Kubernetes and validators of older ones (about twenty minutes)."

tools:
	@command -v cargo >/dev/null || { echo "cargo is missing: install Rust 1.95 or newer (https://rustup.rs)" >&2; exit 1; }
	@command -v go >/dev/null || { echo "go is missing: install Go 1.26 or newer (https://go.dev/dl)" >&2; exit 1; }
	@command -v cc >/dev/null || { echo "cc is missing: install a C compiler (Debian: build-essential)" >&2; exit 1; }

demo: tools ## Boots a control plane, installs everything, shows what is refused, rotates two nodes before your eyes (KEEP=1 leaves it running)
	@# as the demonstration itself builds them, so that it finds them built; here cargo shows its progress
	@cargo build -p noderotation-tests --bin demo
	@for program in noderotation-controller noderotation-webhook; do cargo build -p $$program --bin $$program; done
	@cargo run --quiet -p noderotation-tests --bin demo

test: check unit fuzz simulate mutants-sample rig-tests ## Everything: check, unit tests, simulated histories, and all tests on a real control plane

check: tools layers deny unused docs ## Formatting, lints, layers, licences, unused dependencies, documentation: before every commit
	@echo "== formatting"; cargo fmt --all -- --check
	@echo "== lints"; cargo clippy --workspace --all-targets --locked -- -D warnings

layers: ## Proves that the pure crates are pure and that no arrow points up
	@echo "== layers"; bash tests/layers.sh

deny: ## Licences, duplicate versions, sources; advisories where their database can be fetched
	@echo "== dependencies"
	@cargo deny --version 2>/dev/null | grep -qF '$(DENY_VERSION)' || { echo "installing cargo-deny $(DENY_VERSION) (a few minutes, once)"; cargo install --locked cargo-deny --version $(DENY_VERSION); }
	@cargo deny --log-level error check bans licenses sources
	@if timeout 60 cargo deny --log-level error fetch db >/dev/null 2>&1; then cargo deny --log-level error check advisories; else echo "advisories: skipped, their database cannot be fetched from here"; fi

unused: ## Dependencies that no source file names
	@echo "== unused dependencies"
	@cargo machete --version 2>/dev/null | grep -qF '$(MACHETE_VERSION)' || { echo "installing cargo-machete $(MACHETE_VERSION) (a minute, once)"; cargo install --locked cargo-machete --version $(MACHETE_VERSION); }
	@found=$$(cargo machete --skip-target-dir 2>&1) || { echo "$$found" >&2; exit 1; }

docs: ## Documentation of all crates, warnings denied; every path that a page names exists
	@echo "== documentation"; bash tests/docs.sh
	@RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked

unit: tools ## Tests that need no control plane
	@echo "== unit tests"; cargo build --workspace --exclude noderotation-tests --tests --locked
	@cargo test --quiet --workspace --exclude noderotation-tests --locked

fuzz: tools ## Random reviews, policies, annotations and texts for whatever reads them, for a minute (FUZZ_SECONDS=3600: an hour)
	@echo "== random inputs"; cargo build --locked -p noderotation-fuzz --test fuzz
	@# eleven targets, two at a time
	@NODEROTATION_FUZZ_SECONDS=$$(($(FUZZ_SECONDS) / 6)) cargo test --quiet --locked -p noderotation-fuzz --test fuzz -- --test-threads 2

libfuzzer: tools ## The same, guided by coverage: needs a nightly toolchain, a C++ compiler and cargo-fuzz (FUZZ_SECONDS=60)
	@for target in fuzz/libfuzzer/targets/*.rs; do \
	  name=$$(basename $$target .rs); mkdir -p target/libfuzzer/$$name; echo "== $$name"; \
	  cargo +nightly fuzz run --fuzz-dir fuzz/libfuzzer --target-dir target/libfuzzer-build $$name target/libfuzzer/$$name fuzz/corpus/$$name -- -max_total_time=$$(($(FUZZ_SECONDS) / 11)) -max_len=65536; \
	done

build: tools ## The control plane (once) and all programs
	@cargo build --locked -p noderotation-rig --bin rig
	@cargo run --quiet --locked -p noderotation-rig --bin rig -- build
	@cargo build --workspace --all-targets --locked

rig-tests: build ## Tests on a real control plane
	@echo "== tests on a real control plane"
	cargo test --locked -p noderotation-tests -- --test-threads $(RIG_JOBS)

simulate: tools ## Histories of the simulator with all faults and a fresh seed (ROTATIONS=20000, SEED=…)
	@echo "== simulated histories"
	cargo build --profile simulation --locked -p noderotation-simulator --tests
	NODEROTATION_ROTATIONS=$(ROTATIONS) NODEROTATION_SEED=$(SEED) cargo test --profile simulation --locked -p noderotation-simulator --test histories whatever -- --nocapture

mutants: tools ## Every mutant of the crates that decide, write or refuse must fail a test (some hours)
	bash tests/mutants.sh all

mutants-sample: tools ## About MUTANTS=20 of them in the state machine, chosen by SEED=…
	@echo "== mutants"; bash tests/mutants.sh sample $(MUTANTS) $(SEED)

faults: tools ## Puts each deliberate fault into a copy of the product and shows which test catches it; a quarter of an hour (FAULTS=07,21: only those)
	@FAULTS=$(FAULTS) bash simulator/faults/run.sh

vectors: tools ## The vector tests alone; NODEROTATION_VECTORS names another folder with the same files
	cargo test --locked -p noderotation-shared --test vectors

bench: tools ## Criterion benches, then memory, lag and writes of whole processes on the rig, beside their targets
	cargo bench --locked -p noderotation-shared
	cargo run --release --locked -p noderotation-tests --bin bench

crd: ## Writes the chart's CustomResourceDefinition, and what is kept of its schema, from the types
	cargo run --quiet -p noderotation-cli -- crd > target/crd.yaml
	mv target/crd.yaml charts/noderotation/files/rotationpolicies.noderotation.io.yaml
	cargo run --quiet -p noderotation-cli -- crd --schema > target/schema.json
	mv target/schema.json shared/src/api/spec-schema.json

chart-readme: ## Writes the chart's README from the comments of its values
	cargo run --quiet -p noderotation-tests --bin chart-readme
