# What a newcomer types. CI calls the same targets.

SHELL := /bin/bash
# Right after `make setup` installed it, cargo is here and not on the PATH yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

MODULE = $${CARGO_TARGET_DIR:-target}/release/libfairlock.so

.PHONY: help setup setup-tests build run test test-redisson fingerprints check fmt lint properties model \
    chaos soak \
    bench bench-quick bench-build instructions

help: ## List the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup: ## Install what is missing: server, compiler, libclang, Rust
	@scripts/setup

setup-tests: ## Install what the tests need besides: a JDK, Maven
	@scripts/setup --tests

build: setup ## Build the module in release mode
	cargo build --release --locked

run: build ## Start a server with the module, show it at work, keep it running (PORT=n to choose)
	@scripts/run "$(MODULE)" $(PORT)

test: setup-tests ## Formatting, lints, all tests
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	scripts/check-architecture
	cargo test --locked --workspace

test-redisson: setup-tests ## The tests with real clients, all releases of Redisson, long fleets
	REDISSON_RELEASES=all cargo test --locked --test redisson

fingerprints: setup-tests ## Write the scripts of RELEASES="4.8.0 ..." of Redisson into the table of digests
	RECORD_FINGERPRINTS=1 REDISSON_RELEASES="$(RELEASES)" cargo test --locked --test redisson fingerprints

check: ## The rules of the house: which room may use which
	scripts/check-architecture

fmt: ## Format the code
	cargo fmt --all

lint: ## Clippy, warnings are errors
	cargo clippy --locked --workspace --all-targets -- -D warnings

properties: ## The rules' properties, 100,000 random sequences of steps
	PROPTEST_CASES=100000 cargo test --release --locked --lib lock::properties

model: ## The rules in small worlds, all that can happen to a lock: millions of states
	MODEL_STATES=$${MODEL_STATES:-3000000} cargo test --release --locked --lib lock::model -- --nocapture

chaos: setup-tests ## Faults under load, for CHAOS_SECONDS (an hour); CHAOS_SEED=n for the same plan again
	CHAOS_SECONDS=$${CHAOS_SECONDS:-3600} CHAOS_SEED=$${CHAOS_SEED:-$$(date +%s)} \
	    cargo test --locked --test chaos guarantees -- --nocapture --test-threads=1

soak: setup-tests ## Mixed load for SOAK_SECONDS (an hour): memory, descriptors, latency to docs/soak.md
	SOAK_SECONDS=$${SOAK_SECONDS:-3600} cargo test --release --locked --test chaos soak -- --nocapture

bench-build: setup-tests
	cargo build --release --locked --workspace
	@scripts/redisson target/redisson 4.7.0

bench: bench-build ## Measure everything beside Redisson's scripts and plain commands, and write docs/benchmarks.md
	@$${CARGO_TARGET_DIR:-target}/release/fairlock-bench

bench-quick: bench-build ## The same in less than a minute and a half, printed only
	@$${CARGO_TARGET_DIR:-target}/release/fairlock-bench --quick

instructions: bench-build ## Count the instructions of an uncontended pair (docs/performance.md)
	@scripts/setup --counts
	@$${CARGO_TARGET_DIR:-target}/release/fairlock-bench instructions
