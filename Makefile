# Developer commands. CI runs the same words.

CARGO ?= cargo
export PATH := $(PATH):$(HOME)/.cargo/bin

.PHONY: help setup demo demo-fleet test check bench instructions fuzz lab drivers experiments versions suites release packages image build unit e2e web seeds sim

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## */\1\t/' | expand -t 12

setup: ## install what build and tests need (apt, Rust, MySQL and a late MariaDB in a cache); quick when all is there
	scripts/setup
	scripts/setup mysql
	scripts/setup mariadb-11.8
	scripts/setup old-servers

# The build of the tests: it starts within minutes on a fresh machine. `make release` builds what is fast.
demo: ## a MariaDB primary, two replicas and the proxy before them; Ctrl-C ends it
	scripts/setup
	$(CARGO) build -p tidegate -p lab
	target/debug/lab demo

demo-fleet: ## the same with two proxies, which share their configuration in etcd
	scripts/setup
	$(CARGO) build -p tidegate -p lab
	target/debug/lab demo --fleet

test: setup build unit e2e seeds web ## everything: set up, build, unit tests, end-to-end tests with real servers

build:
	$(CARGO) build --workspace --exclude sim --all-targets

unit: ## unit tests of all crates
	$(CARGO) test --workspace --exclude sim --lib --bins --no-fail-fast
	$(CARGO) test --workspace --exclude sim --doc

e2e: ## integration and end-to-end tests (real servers, the real proxy)
	scripts/e2e

web: ## the web page in a real Chromium, before real servers
	scripts/setup web
	scripts/web

release: ## the proxy as it is to be shipped: guided by a profile of itself under load (scripts/release --train makes a new one)
	scripts/release

packages: ## a Debian package, an rpm and a tarball of the proxy as it is shipped, in target/packages
	scripts/packages

image: ## an OCI image of the package that `make packages` built, in target/packages/image; needs root
	scripts/image

check: ## formatting, lints, documentation, scripts
	scripts/check

bench: ## measurements
	scripts/bench

instructions: ## instructions of a query, counted by valgrind, beside the kept figures: fails above 1.02 of them
	scripts/instructions

fuzz: ## fuzz targets, a short run each
	scripts/fuzz

experiments: setup ## failover, switchover, clusters and stale reads under load, in full; about an hour
	$(CARGO) build --release -p tidegate -p lab
	scripts/experiments

versions: ## the proxy's end-to-end tests on MariaDB 10.5 and 11.8 (fetched into the cache)
	scripts/versions

# A crate of its own in every command: what it needs of the proxy (virtual time) must not be in the proxy that is tested elsewhere.
seeds: ## the simulator's own tests: a few hundred seeds, and that every safety check is needed
	$(CARGO) test -p sim

sim: ## 10,000 seeds of the simulator
	$(CARGO) run --release -p sim -- --seeds 0..10000

drivers: ## the test suites of MySQL drivers, through the proxy
	scripts/setup drivers
	scripts/drivers

suites: ## MariaDB's and MySQL's own tests, direct and through the proxy; hours (scripts/suites --help)
	scripts/setup suites
	scripts/setup mysql
	$(CARGO) build -p tidegate -p lab
	scripts/suites

lab: ## the lab's own program
	$(CARGO) build --release -p lab
	target/release/lab --help
