# What a developer types. `make` alone lists it.

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

# A clone that belongs to another user is no repository to git unless it is told so, and go then
# refuses to build. Where there is no repository at all, it builds without the version stamp.
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
LIMITS        := enqueue:15000000 turnctl:30000000 worker:65000000

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
demo: setup build ## send a message to the demo agent and watch its one reply come out
	@scripts/demo.sh

.PHONY: quick
quick: setup ## run what takes less than a minute in all: for use after every edit
	scripts/test -short -timeout 10m

# TURNKEEPER_TESTS=full asks for every case of the tests that have many, RACE=1 for the race detector:
# CI asks for both. CONTRIBUTING.md says what runs in which tier.
.PHONY: test
test: setup ## run all tests
	scripts/test $(if $(RACE),-race) -timeout $(if $(RACE),60m,30m)

.PHONY: race
race: ## run all tests as CI does: every case, with the race detector (needs a C compiler)
	TURNKEEPER_TESTS=full $(MAKE) test RACE=1

.PHONY: crash
crash: setup ## harm a program at every point, in every way, with every kind of tool (about half an hour)
	TURNKEEPER_TESTS=long scripts/test -timeout 90m -run 'TestCrashMatrix|TestAPanicInsideATurn|TestHarmBetween' ./tests/faults

.PHONY: sim
sim: ## live through SEEDS (5000) simulated worlds of faults, from seed SEED (1) on
	@SEEDS=$(SEEDS) SEED=$(SEED) scripts/sim

.PHONY: faults
faults: setup ## make faults of the database for a quarter of an hour: cuts, crashes, a full disk
	TURNKEEPER_TESTS=long scripts/test -timeout 30m -v -run '$(FAULTS)' ./tests/faults ./tests/core

.PHONY: fuzz
fuzz: setup ## fuzz each target for FUZZTIME (10s)
	@FUZZTIME=$(FUZZTIME) scripts/fuzz

.PHONY: model
model: ## check the lease protocol as a model, and that each of its mutants fails (spin; a minute)
	@scripts/need spin:spin gcc:gcc
	@protocol/lease_check.sh

.PHONY: mutants
mutants: setup ## plant faults of one condition each in what guards something: TARGET="fence grant" (default: all; hours)
	@mkdir -p bin/tools
	go build -ldflags='-s -w' -o bin/tools/serve ./storage/storagetest/serve
	go build -o bin/tools/mutants ./internal/mutants
	bin/tools/serve bin/tools/mutants $(if $(JOBS),-jobs $(JOBS)) $(if $(BUDGET),-budget $(BUDGET)) $(if $(QUICK),-quick) $(if $(AGAIN),-again) $(TARGET)

.PHONY: record
record: setup ## keep this release's journals for later ones: RELEASE=name
	scripts/test ./tests/core -run RecordedJournals -record $(or $(RELEASE),$(error say RELEASE=name))

.PHONY: mcp-conformance
mcp-conformance: ## run the official MCP conformance suite for clients (needs npm)
	@scripts/mcp-conformance

.PHONY: screenshots
screenshots: setup ## take the pictures of docs/page.md anew (Chromium)
	scripts/test ./tests/api -run TestScreenshots -screenshots

.PHONY: bench
bench: setup build ## measure turns a second on this machine
	bin/worker bench

.PHONY: format
format: ## rewrite the source with gofmt
	gofmt -l -w .

.PHONY: vet
vet: ## look for faults with go vet
	go vet ./...

.PHONY: platforms
platforms: ## check that the programs compile for the other platforms of a release
	TURNKEEPER_TESTS=full go test ./internal/archtest -run Platform

.PHONY: lint
lint: $(TOOLS)/golangci-lint-$(GOLANGCI_LINT) ## look for faults with the linters of .golangci.yml
	$< run ./...

.PHONY: generate
generate: $(TOOLS)/sqlc-$(SQLC) ## write generated code and documents anew
	$< generate
	go generate ./...

.PHONY: models-table
models-table: ## take the context windows of known models from the newest Catwalk (VERSION=v...: that one)
	cd inference/modeltable && go run generate.go $(or $(VERSION),latest)

.PHONY: drift
drift: $(TOOLS)/sqlc-$(SQLC) ## check that what is generated is what make generate writes
	@scripts/drift

.PHONY: tools
tools: $(TOOLS)/golangci-lint-$(GOLANGCI_LINT) $(TOOLS)/sqlc-$(SQLC) ## install the tools of lint and generate

$(TOOLS)/golangci-lint-$(GOLANGCI_LINT):
	@scripts/tool $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint $(GOLANGCI_LINT)

$(TOOLS)/sqlc-$(SQLC):
	@scripts/tool $@ github.com/sqlc-dev/sqlc/cmd/sqlc $(SQLC)

.PHONY: clean
clean: ## remove what was built; data in .turnkeeper stays
	rm -rf bin
