# What a newcomer types. CI calls the same targets.

SHELL := /bin/bash
# Right after `make setup` installed it, cargo is here and not on the PATH yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

# Our own crates are compiled by clippy where they are tested, so that lints need no build; and not incrementally, which
# takes longer after a clone.
LINTING = RUSTC_WORKSPACE_WRAPPER=$(CURDIR)/scripts/test/linting-rustc CARGO_INCREMENTAL=0
# Benchmarks have dependencies of their own, and no test needs them.
CARGO_TEST = $(LINTING) cargo test --locked --workspace --exclude fairlock-bench
CLIENTS ?= python typescript java go rust
MODULE = $${CARGO_TARGET_DIR:-target}/release/libfairlock.so

.PHONY: $(shell sed -n 's/^\([a-z0-9-]*\):.*/\1/p' Makefile)

help: ## List the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 20

setup: ## Install what is missing: server, compiler, libclang, Rust
	@scripts/setup

setup-tests: ## Install what the tests need besides: Java, Python, Node and Go
	@scripts/setup --tests

build: module ## Build the module and the companion in release mode
	cargo build --release --locked --package fairlock-cli

module: setup ## Build the module only
	cargo build --release --locked

clients: setup-tests ## Build the client packages as they would be published, into target/clients
	@for language in $(CLIENTS); do scripts/clients/$$language build || exit 1; done

run: module ## Start a server with the module, show it at work, keep it running (PORT=n to choose)
	@scripts/demo/start 1 "$(MODULE)" $(PORT)

cluster: module ## Start a cluster of six nodes with the module, keep it running (PORT=n)
	@scripts/demo/start 6 "$(MODULE)" $(PORT)

# Most tests wait, so that many run at a time.
export RUST_TEST_THREADS ?= 8

# Without Go, Porcupine does not judge the histories of chaos; without Java, no client there uses Redisson's scripts.
test: setup check ## Formatting, lints, and the tests that need Rust and a server only
	ONLY_RUST=yes $(LINTING) scripts/test/side-by-side --but redisson clients examples deployment

test-all: setup-tests check ## All tests: real Redisson clients, the client packages, killed masters, benchmarks
	$(LINTING) scripts/test/side-by-side
	$(LINTING) cargo test --locked --package fairlock-bench
	$(CARGO_TEST) --no-fail-fast -- --ignored
	REDISSON_RELEASES=3.11.1 $(CARGO_TEST) --test redisson

conformance: setup-tests module ## The rows of clients/conformance over all packages, or CLIENTS="go ioredis" ROWS="31 44"
	CONFORMANCE_WORKERS=$${CONFORMANCE_WORKERS:-16} FAIRLOCK_MODULE=$(MODULE) scripts/clients/conformance test $(CLIENTS) -- --rows "$(ROWS)"

failovers: setup-tests module ## Count two holders at a time over FAILOVERS (100) killed masters and as many planned changes
	FAIRLOCK_MODULE=$(MODULE) clients/conformance/lab/faults --only kill,planned,paused --rounds $${FAILOVERS:-100} $(CLIENTS)

test-redisson: setup-tests ## The tests with real clients, all releases of Redisson
	REDISSON_RELEASES=all $(CARGO_TEST) --test redisson -- --include-ignored

export SERVERS MATRIX_TESTS REDISSON_TESTS MAY_LACK

test-matrix: setup-tests ## All suites with a server on SERVERS="redis-8.0 valkey-8.1", one build for all
	$(LINTING) scripts/test/matrix

test-arm64: setup-tests ## The black-box tests with module and server for arm64, emulated (SERVERS=redis-7.0)
	@scripts/setup --arm64
	@scripts/test/arm64 $(ARM64_TESTS)

fingerprints: setup-tests ## Write the scripts of RELEASES="4.8.0 ..." of Redisson into the table of digests
	RECORD_FINGERPRINTS=1 REDISSON_RELEASES="$(RELEASES)" $(CARGO_TEST) --test redisson fingerprints

check: setup ## Formatting, and the rules of the house: which folder may use which
	cargo fmt --all --check
	scripts/check-architecture

properties: ## The rules' properties, 100,000 random sequences of steps
	PROPTEST_CASES=100000 cargo test --release --locked --lib lock::tests::random

model: ## The rules in small worlds, all that can happen to a lock: millions of states
	MODEL_STATES=$${MODEL_STATES:-3000000} cargo test --release --locked --lib lock::tests::search -- --nocapture

chaos: setup-tests ## Faults under load, for CHAOS_SECONDS (an hour); CHAOS_SEED=n for the same plan again
	CHAOS_SECONDS=$${CHAOS_SECONDS:-3600} CHAOS_SEED=$${CHAOS_SEED:-$$(date +%s)} \
	    $(CARGO_TEST) --test chaos guarantees -- --nocapture --test-threads=1

evidence: setup-tests ## Make the last long run in docs/evidence.md anew, on the newest servers (EVIDENCE_SECONDS, an hour)
	@$(LINTING) scripts/test/evidence

soak: setup-tests ## Mixed load for SOAK_SECONDS (an hour): memory, descriptors
	SOAK_SECONDS=$${SOAK_SECONDS:-3600} cargo test --release --locked --test chaos soak -- --include-ignored --nocapture

fuzz: setup-tests ## Ten million random commands on random contents of keys (FUZZ_COMMANDS, FUZZ_SEED)
	FUZZ_COMMANDS=$${FUZZ_COMMANDS:-10000000} $(CARGO_TEST) --test fuzz -- --nocapture

test-asan: setup-tests ## The black-box tests with a module that is built for the address sanitiser (ASAN_TESTS)
	@$(LINTING) scripts/test/asan $(ASAN_TESTS)

test-valgrind: setup-tests ## The black-box tests with the server under valgrind; takes long
	@scripts/setup --counts
	FAIRLOCK_TEST_WRAPPER="valgrind -q --soname-synonyms=somalloc=*jemalloc* --leak-check=full --num-callers=30 \
	    --show-leak-kinds=definite --errors-for-leak-kinds=definite --child-silent-after-fork=yes" cargo test --locked --test black_box

bench: setup-tests ## Measure fairlock beside others, and write docs/benchmarks.md; BENCH=--quick: less, printed only
	@[ -n "$(BENCH)" ] || scripts/setup --bench
	cargo build --release --locked --workspace
	@$(dir $(MODULE))fairlock-bench $(BENCH)

instructions: setup-tests ## Count the instructions of a pair and of a hand-off (docs/performance.md)
	@scripts/setup --counts
	@$(MAKE) --no-print-directory bench BENCH=instructions

export DESTDIR prefix bindir datadir mandir moduledir confdir
INSTALL = MODULE="$(MODULE)" COMPANION="$(dir $(MODULE))fairlock" scripts/package/install

# As root there may be no cargo; then what was built before is installed.
install: ## Install module, options, companion (DESTDIR, prefix, moduledir, confdir, ...)
	@if command -v cargo >/dev/null || [ ! -e "$(MODULE)" ]; then $(MAKE) --no-print-directory build; fi
	@$(INSTALL)

uninstall: ## Take away what `make install` put there
	@$(INSTALL) --uninstall

deny: setup ## Check licences, sources, versions and known faults of all dependencies (DENY="bans licenses sources": no network)
	@"$$(scripts/tool cargo-deny)" --locked --workspace check --hide-inclusion-graph $(or $(DENY),all)

release: setup ## Build what is published, the same bytes everywhere (docs/releasing.md)
	@scripts/package/release

deb: release ## Make the Debian package, beside the rest of the release
	@scripts/package/deb

test-deb: deb ## Install the package on clean Debian systems with SERVERS, use it, purge it (as root)
	@scripts/package/test-deb "$${CARGO_TARGET_DIR:-target}"/reproducible/dist/fairlock_*.deb $(SERVERS)

test-reproducible: setup ## Build the release twice, in different places, and compare
	@scripts/package/test-reproducible

test-dockerfile: ## Build the Dockerfile on stand-ins for the official images, and run what comes out (as root)
	@scripts/setup --image
	@scripts/package/test-dockerfile
