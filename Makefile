# The commands of a developer. `make` alone lists them.

SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS   += --no-print-directory
export CGO_ENABLED := 0# as in releases; scripts/test sets 1 for the race detector

TOOLS         := bin/tools# relative, because names of targets cannot contain spaces
GOLANGCI_LINT := v2.15.0
GOTESTSUM     := v1.13.0
SQLC          := v1.31.1
BUILDFLAGS    := -trimpath -ldflags "-s -w"# small programs; version and date come from Go's VCS stamp
FUZZTIME      ?= 10s
SEEDS         ?= 5000
SEED          ?= 1
BENCHMARKS    := ./storage/journal ./storage/grants ./agentturn/prompt ./inference/openai ./inference/openai/responses ./internal/redact
FAULTS        := LostAnswers|GoesAway|Backend|SmallPool|NoConnection|NoEffect|EndWaits|GivenBack|SlowDatabase|Raised|Locked|DiskIsFull|Forgets|Dead|Silent|AreAppended

# Git does not trust a clone that belongs to another user, and go then refuses to build: mark the folder
# as safe. Without a repository, build without the version stamp.
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

# In bytes. internal/archtest/programs lists the largest dependencies of each program; docs/architecture.md says what must not come back.
LIMITS        := enqueue:15000000 turnctl:28000000 worker:80000000

.PHONY: sizes
sizes: build ## check the sizes of the programs
	@for l in $(LIMITS); do n=$$(wc -c < bin/$${l%:*}); [ $$n -le $${l#*:} ] || { echo "bin/$${l%:*} has $$n bytes; the limit is $${l#*:}"; exit 1; }; done

.PHONY: release
release: ## build archives for linux and darwin on amd64 and arm64, with checksums, into bin/release (VERSION=v... names them)
	@scripts/release

.PHONY: setup
setup: ## install the programs of Postgres if missing and allowed (Debian, Ubuntu)
	@scripts/setup

.PHONY: demo
demo: setup build ## send a message to the demo agent and show its reply
	@scripts/demo.sh

.PHONY: quick
quick: setup ## run the fast tests (less than a minute): for use after every edit
	scripts/test -short -timeout 10m

# TURNKEEPER_TESTS=full also runs the tests that need CI, and every case of tests with many cases; RACE=1 turns on the race detector,
# with which these run some cases. CONTRIBUTING.md lists what runs in which tier.
.PHONY: test
test: setup ## run all tests
	scripts/test $(if $(RACE),-race) -timeout $(if $(RACE),60m,30m)

.PHONY: race
race: ## run all tests with the race detector, as CI does (needs a C compiler)
	TURNKEEPER_TESTS=full $(MAKE) test RACE=1

.PHONY: cases
cases: setup ## run the tests with many cases as CI does: every case, without the race detector
	@scripts/cases -timeout 60m

.PHONY: crash
crash: setup ## run the crash matrix: every point, every harm, every kind of tool (about half an hour)
	TURNKEEPER_TESTS=long scripts/test -timeout 90m -run 'TestCrashMatrix|TestAPanicInsideATurn|TestHarmBetween' ./tests/faults

.PHONY: sim
sim: ## run the simulation with SEEDS (5000) seeds, starting at SEED (1)
	@SEEDS=$(SEEDS) SEED=$(SEED) scripts/sim

.PHONY: faults
faults: setup ## test database faults for a quarter of an hour: cuts, crashes, a full disk
	TURNKEEPER_TESTS=long scripts/test -timeout 60m -v -run '$(FAULTS)' ./tests/faults ./tests/core

.PHONY: fuzz
fuzz: setup ## fuzz each target for FUZZTIME (10s)
	@FUZZTIME=$(FUZZTIME) scripts/fuzz

.PHONY: model
model: ## check the model of the lease protocol, and that each of its mutants fails (spin; a minute)
	@scripts/need spin:spin gcc:gcc
	@protocol/lease_check.sh

.PHONY: mutants
mutants: setup ## run mutation tests of the guards: TARGET="fence grant" (default: all; hours), or of a random SAMPLE=300 SEED=1 of all code
	@mkdir -p bin/tools
	go build -ldflags='-s -w' -o bin/tools/serve ./storage/storagetest/serve
	go -C dev build -o ../bin/tools/mutants ./mutants
	bin/tools/serve bin/tools/mutants $(if $(SAMPLE),-sample $(SAMPLE)) $(if $(SEED),-seed $(SEED)) $(if $(JOBS),-jobs $(JOBS)) $(if $(BUDGET),-budget $(BUDGET)) $(if $(QUICK),-quick) $(if $(IN),-in $(IN)) $(if $(NEAR),-near) $(if $(AGAIN),-again) $(TARGET)

.PHONY: record
record: setup ## record this release's journals for the tests of later releases: RELEASE=name
	scripts/test ./tests/core -run RecordedJournals -record $(or $(RELEASE),$(error set RELEASE=name))

.PHONY: mcp-conformance
mcp-conformance: ## run the official MCP conformance suite for clients (needs npm)
	@scripts/mcp-conformance

.PHONY: screenshots
screenshots: setup ## retake the pictures of docs/page.md (needs Chromium)
	scripts/test ./tests/api -run TestScreenshots -screenshots

.PHONY: bench
bench: setup build ## measure what a turn costs on this machine; also into bin/bench.json (FLAGS="--quick")
	bin/worker bench --out bin/bench.json $(FLAGS)

.PHONY: bench-compare
bench-compare: setup build ## measure against another commit: REF=main, PAIRS (2) of runs each, FLAGS="--idle 0"
	@PAIRS=$(or $(PAIRS),2) scripts/bench-compare $(or $(REF),$(error set REF to a branch, tag or commit)) $(FLAGS)

# The output is what benchstat reads. BENCH selects benchmarks, COUNT repeats them.
.PHONY: bench-go
bench-go: setup ## run the Go benchmarks of hot code; also into bin/bench-go.txt
	@scripts/test -run '^$$' -bench '$(or $(BENCH),.)' -benchmem -count $(or $(COUNT),6) -p 1 $(BENCHMARKS) | tee bin/bench-go.txt

.PHONY: format
format: ## rewrite the source with gofmt
	gofmt -l -w .

.PHONY: vet
vet: ## run go vet
	go vet ./...
	go -C dev vet ./...

.PHONY: platforms
platforms: ## check that the programs compile for the other platforms of a release
	TURNKEEPER_TESTS=full go test ./internal/archtest -run Platform

.PHONY: lint
lint: $(TOOLS)/golangci-lint-$(GOLANGCI_LINT) ## run the linters of .golangci.yml
	$< run ./...
	cd dev && ../$< run ./...

.PHONY: generate
generate: $(TOOLS)/sqlc-$(SQLC) ## regenerate code and documents
	$< generate
	go generate ./...

.PHONY: models-table
models-table: ## update the context windows of known models from Catwalk (VERSION=v...; default the newest)
	cd inference/modeltable && go run generate.go $(or $(VERSION),latest)

.PHONY: drift
drift: $(TOOLS)/sqlc-$(SQLC) ## check that generated files are current
	@scripts/drift

.PHONY: tools
tools: $(TOOLS)/golangci-lint-$(GOLANGCI_LINT) $(TOOLS)/sqlc-$(SQLC) $(TOOLS)/gotestsum-$(GOTESTSUM) ## install the tools of lint, generate and CI

$(TOOLS)/golangci-lint-$(GOLANGCI_LINT):
	@scripts/tool $@ github.com/golangci/golangci-lint/v2/cmd/golangci-lint $(GOLANGCI_LINT)

$(TOOLS)/gotestsum-$(GOTESTSUM):
	@scripts/tool $@ gotest.tools/gotestsum $(GOTESTSUM)

$(TOOLS)/sqlc-$(SQLC):
	@scripts/tool $@ github.com/sqlc-dev/sqlc/cmd/sqlc $(SQLC)

.PHONY: clean
clean: ## remove build output; data in .turnkeeper stays
	rm -rf bin
