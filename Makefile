# `make` lists the targets.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory

TOOLS         := bin/tools# relative: the names of targets cannot hold spaces
GOLANGCI_LINT := v2.15.0
SQLC          := v1.31.1
BUILDFLAGS    := -trimpath -ldflags "-s -w"# small programs; version and date come from the stamp of the repository
FUZZTIME      ?= 10s
SEEDS         ?= 5000
SEED          ?= 1
FAULTS        := LostAnswers|GoesAway|Backend|SmallPool|NoConnection|NoEffect|EndWaits|GivenBack|SlowDatabase|Raised|Locked|DiskIsFull|Forgets|Dead|Silent

# git refuses a clone that belongs to another user, and go build then fails: declare it safe. Without
# a repository, build without the version stamp.
REPOSITORY := git rev-parse --git-dir >/dev/null 2>&1 && echo yes
ifneq ($(shell $(REPOSITORY)),yes)
ifeq ($(shell export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory "GIT_CONFIG_VALUE_0=$(CURDIR)"; $(REPOSITORY)),yes)
export GIT_CONFIG_COUNT   := 1
export GIT_CONFIG_KEY_0   := safe.directory
export GIT_CONFIG_VALUE_0 := $(CURDIR)
else
export GOFLAGS := $(GOFLAGS) -buildvcs=false
endif
endif

.PHONY: help
help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/worker, bin/enqueue and bin/turnctl
	@mkdir -p bin
	go build $(BUILDFLAGS) -o bin/ ./cmd/worker ./cmd/enqueue ./cmd/turnctl

# In bytes. internal/archtest/programs says what is heavy in each.
LIMITS        := enqueue:15000000 turnctl:54000000 worker:80000000

.PHONY: sizes
sizes: build ## check that the programs are no larger than their limits
	@for l in $(LIMITS); do n=$$(wc -c < bin/$${l%:*}); [ $$n -le $${l#*:} ] || { echo "bin/$${l%:*} has $$n bytes, $${l#*:} are allowed"; exit 1; }; done

.PHONY: release
release: ## build archives for linux and darwin on amd64 and arm64, with checksums, into bin/release (VERSION=v...: by that name)
	@scripts/release

.PHONY: setup
setup: ## install Postgres' programs if they are missing and we may (Debian, Ubuntu)
	@scripts/setup

.PHONY: demo
demo: setup build ## send a message to the demo agent and wait for its reply
	@scripts/demo.sh

.PHONY: quick
quick: setup ## run the fast tests, in less than a minute: for use after every edit
	scripts/test -short -timeout 10m

# TURNKEEPER_TESTS=full runs every case of tests with many, RACE=1 uses the race detector: CI sets both.
# CONTRIBUTING.md lists what runs in which tier.
.PHONY: test
test: setup ## run all tests
	scripts/test $(if $(RACE),-race) -timeout $(if $(RACE),60m,30m)

.PHONY: race
race: ## run all tests as CI does: every case, with the race detector (needs a C compiler)
	TURNKEEPER_TESTS=full $(MAKE) test RACE=1

.PHONY: crash
crash: setup ## make a program fail at every fault point, in every way, with every kind of tool (about half an hour)
	TURNKEEPER_TESTS=long scripts/test -timeout 90m -run 'TestCrashMatrix|TestAPanicInsideATurn|TestHarmBetween' ./tests/faults

.PHONY: sim
sim: ## run SEEDS (5000) simulations with faults, from seed SEED (1) on
	@SEEDS=$(SEEDS) SEED=$(SEED) scripts/sim

.PHONY: faults
faults: setup ## run the long tests of database faults: cuts, crashes, a full disk (a quarter of an hour)
	TURNKEEPER_TESTS=long scripts/test -timeout 30m -v -run '$(FAULTS)' ./tests/faults ./tests/core

.PHONY: fuzz
fuzz: setup ## fuzz each target for FUZZTIME (10s)
	@FUZZTIME=$(FUZZTIME) scripts/fuzz

.PHONY: model
model: ## check the model of the lease protocol, and that each of its mutants fails (spin; a minute)
	@scripts/need spin:spin gcc:gcc
	@protocol/lease_check.sh

.PHONY: mutants
mutants: setup ## break one condition of a guard at a time and run its tests: TARGET="fence grant" (default: all; hours)
	@mkdir -p bin/tools
	go build -ldflags='-s -w' -o bin/tools/serve ./storage/storagetest/serve
	go build -o bin/tools/mutants ./internal/mutants
	bin/tools/serve bin/tools/mutants $(if $(JOBS),-jobs $(JOBS)) $(if $(BUDGET),-budget $(BUDGET)) $(if $(QUICK),-quick) $(if $(AGAIN),-again) $(TARGET)

.PHONY: record
record: setup ## record journals of this release for tests of later releases: RELEASE=name
	scripts/test ./tests/core -run RecordedJournals -record $(or $(RELEASE),$(error say RELEASE=name))

.PHONY: mcp-conformance
mcp-conformance: ## run the official MCP conformance suite for clients (needs npm)
	@scripts/mcp-conformance

.PHONY: screenshots
screenshots: setup ## retake the pictures of docs/page.md (Chromium)
	scripts/test ./tests/api -run TestScreenshots -screenshots

.PHONY: bench
bench: setup build ## measure turns per second on this machine
	bin/worker bench

.PHONY: format
format: ## rewrite the source with gofmt
	gofmt -l -w .

.PHONY: vet
vet: ## run go vet
	go vet ./...

.PHONY: lint
lint: $(TOOLS)/golangci-lint-$(GOLANGCI_LINT) ## run the linters of .golangci.yml
	$< run ./...

.PHONY: generate
generate: $(TOOLS)/sqlc-$(SQLC) ## regenerate code and documents
	$< generate
	go generate ./...

.PHONY: models-table
models-table: ## update the context windows of known models from Catwalk (VERSION=v...; default: newest)
	cd inference/modeltable && go run generate.go $(or $(VERSION),latest)

.PHONY: drift
drift: $(TOOLS)/sqlc-$(SQLC) ## check that generated files are up to date
	@scripts/drift

.PHONY: tools
tools: $(TOOLS)/golangci-lint-$(GOLANGCI_LINT) $(TOOLS)/sqlc-$(SQLC) ## install the tools of lint and generate

$(TOOLS)/golangci-lint-$(GOLANGCI_LINT):
	@scripts/tool $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint $(GOLANGCI_LINT)

$(TOOLS)/sqlc-$(SQLC):
	@scripts/tool $@ github.com/sqlc-dev/sqlc/cmd/sqlc $(SQLC)

.PHONY: clean
clean: ## remove built files; data in .turnkeeper stays
	rm -rf bin
