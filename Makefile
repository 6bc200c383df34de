# Everything a contributor runs. `make help` explains the targets.

VERSION ?= v0.1.0
CACHE   ?= $(or $(BOURSE_CACHE),$(HOME)/.cache/bourse)
LINT_VERSION := v2.15.0
LINT    := $(CACHE)/lint-$(LINT_VERSION)/golangci-lint
LDFLAGS := -s -w \
	-X k8s.io/component-base/version.gitVersion=$(VERSION) \
	-X k8s.io/component-base/version.gitMajor=0 \
	-X k8s.io/component-base/version.gitMinor=1 \
	-X k8s.io/client-go/pkg/version.gitVersion=$(VERSION)

.DEFAULT_GOAL := help
.PHONY: help build run test test-long mutants sim fuzz e2e chaos bench savings lint fix vuln generate kubectl clean

help: ## explain the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## build bin/bourse, static and stripped
	CGO_ENABLED=0 go build -ldflags '$(LDFLAGS)' -o bin/bourse ./cmd/bourse

run: build ## build, then run a whole exchange on this machine: 3 broker nodes, 4 simulated member clusters
	bin/bourse dev

test: ## unit, property and multi-node tests, with the race detector
	go test -race -timeout 20m ./...
	CGO_ENABLED=0 go test -run 'TestTakingOver|TestAPlan' ./blueprint # too long for the race detector

test-long: ## at length: 100,000 command sequences, 20,000 lives of each room, 12,000 faults of Raft in memory
	BOURSE_LONG=1 go test -timeout 120m -run 'TestRandomSequences|TestLife|TestRaftInMemory' -v ./fsm ./reservation ./advertisement ./cluster
	BOURSE_LONG=1 go test -timeout 120m -v ./blueprint

mutants: ## build each of 13 bugs in on purpose: every one must be caught
	CGO_ENABLED=0 go run ./test/mutants

sim: ## simulate whole exchanges with faults: SEEDS=n [FROM=k]; one seed told step by step: SEED=s [SKIP=..] [STEPS=n]
	CGO_ENABLED=0 go run ./test/sim -from $(or $(FROM),1) -seeds $(or $(SEEDS),2000) $(if $(SEED),-seed $(SEED) -skip '$(SKIP)' -steps $(or $(STEPS),0))

fuzz: ## fuzz every decoder of bytes from disk or wire, each for FUZZTIME
	FUZZTIME=$(or $(FUZZTIME),30s) test/fuzz.sh

e2e: ## end-to-end tests on real Kubernetes control planes (built on first use)
	test/e2e.sh

chaos: ## real processes under kills, partitions and damage, every answer checked [DURATION=4h] [SEED=n] [OLD=commit] [KEEP=1]
	CGO_ENABLED=0 go run ./test/chaos $(if $(DURATION),-duration $(DURATION)) $(if $(SEED),-seed $(SEED)) $(if $(OLD),-old-commit $(OLD))

bench: ## one table: ours beside what one would build instead, with an fsync probe of the same run (QUICK=1: less)
	@test/bench.sh

savings: ## what the weights save: a simulated week of 4 to 50 clusters, as Markdown (QUICK=1: less)
	@go run ./test/savings $(SAVINGS)

lint: $(LINT) ## static checks, and that generated code is up to date
	$(LINT) run --allow-parallel-runners ./...
	cd test/kube && CGO_ENABLED=0 $(LINT) run --allow-parallel-runners --config ../../.golangci.yml ./...
	cd test/bench && CGO_ENABLED=0 $(LINT) run --allow-parallel-runners --config ../../.golangci.yml ./...
	api/generate.sh --check

fix: $(LINT) ## what lint would complain about and can be mended by itself
	$(LINT) run --allow-parallel-runners --fix ./...

$(LINT):
	@echo "building golangci-lint $(LINT_VERSION) once, into $(@D)"
	GOBIN=$(@D) GOFLAGS= CGO_ENABLED=0 go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)

vuln: ## known vulnerabilities in dependencies (needs its database)
	go run golang.org/x/vuln/cmd/govulncheck@latest ./...

generate: ## write the generated code and the settings page anew
	api/generate.sh
	BOURSE_WRITE_DOCS=1 go test -run TestConfigurationIsDocumented ./cmd/bourse

kubectl: ## build a kubectl into bin/, for machines that have none
	@dir=$$(test/kube/build.sh kubectl) && mkdir -p bin && cp "$$dir/kubectl" bin/kubectl && echo "bin/kubectl is ready"

clean: ## remove what was built
	rm -rf bin
