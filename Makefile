# SPDX-License-Identifier: Apache-2.0
#
# `make` or `make help` lists the targets. Every one of them does the set-up it
# needs on a fresh Debian machine with Go, make and root; elsewhere it says what
# is missing. What is built goes to build/, the programs of the test cluster and
# the pinned tools to the caches of the user who calls.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# Two cores: targets one after the other, each with all of the machine. The C is the
# exception, since a compiler takes one: SIDE_BY_SIDE=1 makes its files beside each other.
ifndef SIDE_BY_SIDE
.NOTPARALLEL:
endif
IN_PARTS = SIDE_BY_SIDE=1 $(MAKE) --no-print-directory -s -j$$(nproc)

# What a caller may change: make fuzz FUZZTIME=1m
FUZZTIME ?= 20s
COVER_MIN ?= 80
KEEP ?=
# Passed on to go test, as in TESTFLAGS="-run TestFit -v".
TESTFLAGS ?=
# Passed on to golangci-lint run: LINTFLAGS=--fix mends what can be mended.
LINTFLAGS ?=
# Passed on to tranche-cluster run.
CLUSTER_FLAGS ?=
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# Git refuses to read a checkout of somebody else, and go build stops over that.
VCS := $(shell git rev-parse HEAD >/dev/null 2>&1 && echo true || echo false)
# grpcnotrace leaves golang.org/x/net/trace out, and with it html/template: a
# third of the binary, and of the memory that it takes on every node.
GO_BUILD = go build -buildvcs=$(VCS) -tags grpcnotrace
# The binaries share the build cache with the tests: no -trimpath here. Released
# images are built by deployments/container.
LDFLAGS = -s -w -X main.version=$(VERSION)
# kube-scheduler reads features off its version, so ours can only be a suffix of it.
SCHEDULER_LDFLAGS = -s -w -X k8s.io/component-base/version.gitCommit=$(VERSION) \
	-X k8s.io/component-base/version.gitVersion=$(shell go -C cmd/tranche-scheduler list -m -f '{{.Version}}' k8s.io/kubernetes)+tranche.$(VERSION)

BIN := build/bin
IMAGES := build/images
CLUSTER := $(BIN)/tranche-cluster
IMAGE_PREFIX := localhost/tranche
NODE_IMAGE := $(IMAGES)/tranche-node.tar
ARBITER_IMAGE := $(IMAGES)/tranche-arbiter.tar
BUSYBOX_IMAGE := $(IMAGES)/busybox.tar
CLIENT_IMAGE := $(IMAGES)/client.tar
SCHEDULER_IMAGE := $(IMAGES)/tranche-scheduler.tar
# Quoted for the shell and for go test -exec alike.
IN_CLUSTER = '$(CURDIR)/$(CLUSTER)' run $(foreach i,$(NODE_IMAGE) $(ARBITER_IMAGE) $(BUSYBOX_IMAGE) $(CLIENT_IMAGE),--image '$(CURDIR)/$(i)') $(CLUSTER_FLAGS)
# As it is installed: one scheduler for all pods, and never two that allocate claims.
WITH_SCHEDULER = --scheduler '$(CURDIR)/$(BIN)/tranche-scheduler' --scheduler-config '$(CURDIR)/deployments/static/scheduler/config.yaml' \
	--apply '$(CURDIR)/deployments/static/00-namespace.yaml' --apply '$(CURDIR)/deployments/static/scheduler/rbac.yaml' \
	--scheduler-account tranche-system/tranche-scheduler

# Tools are versions in tests/tools/go.mod; Go builds and caches them.
TOOL := go tool -modfile='$(CURDIR)/tests/tools/go.mod'
# Go modules that are written here. Those of Kubernetes and containerd below
# tests/cluster only pin versions.
MODULES := . tests/cluster cmd/tranche-scheduler

# The C of the project.
include cdi/native.mk

##@ See it work

.PHONY: demo
demo: images build $(BIN)/demo $(BIN)/tranche-scheduler ## Bring up a Kubernetes node with two simulated cards and share them among pods; KEEP=1 leaves a shell in it
	@keep='$(if $(KEEP),--keep)'; \
	if [ -n "$$keep" ] && ! [ -t 0 ]; then echo 'KEEP needs a terminal: the cluster ends with the demo'; keep=; fi; \
	PATH="$(CURDIR)/$(BIN):$$PATH" $(IN_CLUSTER) $(WITH_SCHEDULER) $$keep -- $(BIN)/demo $$keep

##@ Test

# These tests say how much of a card pods get: they have the machine to themselves.
ALONE := ComputeThat|ComputeWhile|HasBothAtOnce
# Other tests on the node wait for kubelet most of the time. Others compute beside them, and say
# what they have to say afterwards: nothing is mixed. What both need is made before.
BESIDE_E2E := build/beside-e2e.txt
# Of several such flags go test takes the last: a user's own choose from all tests on the node at once.
CHOSEN = $(filter -run% -skip% --run% --skip%,$(TESTFLAGS))

.PHONY: test
test: machine-cluster machine-native check-generate cluster $(BIN)/tranche-scheduler ## Run every test: unit, integration, crash, compat under the race detector, end to end on a real node, and the sharing runtime, with sanitizers too; TESTFLAGS='-run TestFit': those that match
	@$(IN_PARTS) native
	@$(MAKE) --no-print-directory test-e2e $(if $(CHOSEN),,TESTFLAGS="$(TESTFLAGS) -run '$(ALONE)'")
	@$(MAKE) --no-print-directory lint test-race test-asan >$(BESIDE_E2E) 2>&1 & beside=$$!; \
	trap 'kill $$beside' EXIT; \
	failed=; \
	$(if $(CHOSEN),,$(MAKE) --no-print-directory test-e2e TESTFLAGS="$(TESTFLAGS) -skip '$(ALONE)'" || failed=1;) \
	wait $$beside || failed=1; \
	trap - EXIT; \
	cat $(BESIDE_E2E); \
	[ -z "$$failed" ]
	@$(MAKE) --no-print-directory test-runtime test-tsan

.PHONY: test-unit
test-unit: machine-build ## Run all tests that need no cluster, with the seeds of the fuzz targets
	for module in $(MODULES); do go -C $$module test -count=1 $(TESTFLAGS) ./...; done

# The detector sleeps a second at the end of every process, and the crash suite has hundreds.
.PHONY: test-race
test-race: machine-build ## Run the same tests under the race detector
	for module in $(MODULES); do GORACE=atexit_sleep_ms=10 go -C $$module test -race -count=1 $(TESTFLAGS) ./...; done

.PHONY: test-scheduler-1.36
test-scheduler-1.36: machine-build ## Run the tests of tranche-scheduler with Kubernetes 1.36 instead of 1.37; the first time compiles it, in some 5 minutes
	go -C cmd/tranche-scheduler test -modfile=go.1.36.mod -tags kubernetes_1_36 -count=1 $(TESTFLAGS) ./...

.PHONY: test-crash
test-crash: machine-build ## Kill the node driver at every step of its work and look at what is left
	go test -count=1 $(TESTFLAGS) ./tests/crash/...

.PHONY: test-e2e
test-e2e: images $(SCHEDULER_IMAGE) ## Run the end-to-end tests on a real Kubernetes node, and on some that do not exist
	go test -tags e2e -v -timeout 40m -count=1 $(TESTFLAGS) -exec "$(IN_CLUSTER) --image '$(CURDIR)/$(SCHEDULER_IMAGE)' $(WITH_SCHEDULER) --fake-nodes --" ./tests/e2e

# What takes longest comes first: others are done beside it.
.PHONY: test-runtime
test-runtime: machine-native native $(NATIVE)/hollow/libcuda-real.so.1 ## Test the sharing runtime in front of the simulated driver; RANDOM_RUNS=500 KILLS=20000 STEPS=100 do more
	go test -tags native -timeout 20m -count=1 $(TESTFLAGS) ./tests/runtime/... ./tests/sim/... ./tests/hw ./tests/bench/sharing ./tests/nvml ./tests/sandbox ./tests/bench/runtime

# The ledger's tests build it with all sanitizers themselves: test-runtime has them.
.PHONY: test-asan test-tsan
test-asan test-tsan: test-%: machine-native
	@$(IN_PARTS) native FLAVOUR=$*
	FLAVOUR=$* TSAN_OPTIONS=atexit_sleep_ms=10 go test -tags native -timeout 20m -count=1 $(TESTFLAGS) ./tests/runtime ./tests/sim/... ./tests/nvml

.PHONY: test-sanitizers
test-sanitizers: test-asan test-tsan ## Run the same tests with the C built for the address, undefined behaviour and thread sanitizers

# For machines without Go: the arbiter's program, built elsewhere.
ARBITER ?= $(BIN)/tranche-arbiter
HWFLAGS ?=

.PHONY: test-hw
test-hw: native ## Test the sharing runtime on this machine's NVIDIA GPU, in at most 8 minutes; HWFLAGS=--simulated: without one; ARBITER=file: without Go
	@if [ '$(ARBITER)' = '$(BIN)/tranche-arbiter' ] && command -v go >/dev/null; then $(MAKE) --no-print-directory -s build; fi
	python3 -B tests/hw/suite.py --native $(NATIVE) --arbiter '$(ARBITER)' $(HWFLAGS)

.PHONY: check-abi
check-abi: machine-build native-runtime ## Compare the table of hooks, and the runtime's libraries, with what drivers export
	go test -count=1 $(TESTFLAGS) ./cdi/runtime/gen/... ./tests/abi/...

.PHONY: test-abi-real
test-abi-real: machine-build native-runtime ## Compare them with NVIDIA's own libraries, which it downloads (1 GB) from Debian's non-free
	TRANCHE_ABI_REAL='$(CURDIR)/$(NATIVE)/runtime' go test -count=1 -v $(TESTFLAGS) ./tests/abi/real

.PHONY: fuzz
fuzz: machine-build ## Run each fuzz target for FUZZTIME
	grep -rnoE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' $(MODULES) --exclude-dir=build | \
	sort -u | sed -E 's|^(.*)/[^/]+:[0-9]+:func (Fuzz.*)|\1 \2|' | \
	while read -r package target; do \
		echo "$$package $$target"; \
		go -C $$package test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) . </dev/null; \
	done

.PHONY: cover
cover: machine-build ## Measure coverage of pkg and cdi; fails where pkg is below COVER_MIN percent
	mkdir -p build/cover
	go test -coverpkg=./pkg/...,./cdi/... -coverprofile=build/cover/all.out ./... >build/cover/tests.txt || { cat build/cover/tests.txt; exit 1; }
	grep -v '/zz_generated' build/cover/all.out >build/cover/written.out
	grep -E '^mode:|/tranche/pkg/' build/cover/written.out >build/cover/pkg.out
	go tool cover -html=build/cover/written.out -o build/cover/index.html
	go tool cover -func=build/cover/written.out >build/cover/functions.txt
	go tool cover -func=build/cover/pkg.out | awk -v min=$(COVER_MIN) '/^total:/ { \
		printf "coverage of pkg: %s, at least %s%% is wanted; by line: build/cover/index.html\n", $$3, min; exit ($$3 + 0 < min) }'

.PHONY: lint
lint: machine-build ## Check style, mistakes and which package imports which
	$(TOOL) golangci-lint config verify
	for module in $(MODULES); do (cd $$module && $(TOOL) golangci-lint run --config '$(CURDIR)/.golangci.yml' $(LINTFLAGS) ./...); done

.PHONY: bench
bench: bench-node bench-placement bench-runtime bench-sharing bench-cluster bench-scheduler ## Measure, print tables and write build/bench/*.json

.PHONY: bench-node
bench-node: machine-build ## Measure preparing and publishing
	go run ./tests/bench/node

# Such as -data DIR, where the trace is, and -traces default.
PLACEMENTFLAGS ?=

.PHONY: bench-placement
bench-placement: machine-build ## Measure how full policies get a cluster, on a sample; PLACEMENTFLAGS='-data DIR': on the published production trace
	go run ./tests/bench/placement $(PLACEMENTFLAGS)

.PHONY: bench-runtime
bench-runtime: machine-native native $(NATIVE)/hollow/libcuda-real.so.1 ## Measure what the sharing runtime adds to calls and processes
	go run ./tests/bench/runtime

# Such as -short, -only 'online|gate', or another runtime: -preload FILE -env K={cores} -beside.
SHARINGFLAGS ?=

.PHONY: bench-sharing
bench-sharing: machine-native native $(NATIVE)/hollow/libcuda-real.so.1 ## Measure how compute is shared, in about 14 minutes; SHARINGFLAGS=-short: in one; SHARINGFLAGS=-help
	go run ./tests/bench/sharing $(SHARINGFLAGS)

.PHONY: bench-cluster
bench-cluster: images $(BIN)/tranche-scheduler ## Measure pods on a real node
	$(GO_BUILD) -o $(BIN)/bench-cluster ./tests/bench/cluster
	$(IN_CLUSTER) $(WITH_SCHEDULER) -- $(BIN)/bench-cluster

# Such as -short, or -only stock.
SCHEDULERFLAGS ?=

.PHONY: bench-scheduler
bench-scheduler: machine-cluster $(CLUSTER) $(BIN)/tranche-scheduler ## Measure scheduling on 1,000 nodes, beside the stock scheduler, in about 10 minutes; SCHEDULERFLAGS=-short: a smaller one
	$(GO_BUILD) -o $(BIN)/bench-scheduler ./tests/bench/scheduler
	'$(CURDIR)/$(CLUSTER)' run $(CLUSTER_FLAGS) -- $(BIN)/bench-scheduler -tranche $(BIN)/tranche-scheduler -tranche-config deployments/static/scheduler/config.yaml $(SCHEDULERFLAGS)

##@ Build

.PHONY: build
build: machine-build ## Build the binaries into build/bin
	@echo 'Building the binaries'
	@mkdir -p $(BIN)
	@$(GO_BUILD) -ldflags "$(LDFLAGS)" -o $(BIN)/ ./cmd/...

# Containers get these libraries from their node, not from their image.
OF_THE_NODE := $(foreach l,libcuda.so.1 libcuda-real.so.1 libnvidia-ml.so.1 libnvidia-ml-real.so.1,--provided-lib $(l))
# What libraries of the node may need beside the libc that every client has.
CLIENT_LIBRARIES := libm.so.6 libdl.so.2 libpthread.so.0 libgcc_s.so.1

.PHONY: images
images: machine-cluster build native $(CLUSTER) ## Make the container images of the test cluster, without Docker
	@echo 'Making the images'
	@mkdir -p $(IMAGES)
	@$(CLUSTER) image --output $(NODE_IMAGE) --name $(IMAGE_PREFIX)/tranche-node:dev --entrypoint /usr/bin/tranche-node $(OF_THE_NODE) \
		$(BIN)/tranche-node=/usr/bin/tranche-node $(NATIVE)/runtime=/usr/lib/tranche/runtime $(NATIVE)/sim=/usr/lib/tranche/sim
	@$(CLUSTER) image --output $(ARBITER_IMAGE) --name $(IMAGE_PREFIX)/tranche-arbiter:dev \
		--entrypoint /usr/bin/tranche-arbiter $(BIN)/tranche-arbiter=/usr/bin/tranche-arbiter
	@busybox=$$(command -v busybox); links=$$("$$busybox" --list | grep -vx busybox | sed 's|.*|--link /bin/&=busybox|'); \
	$(CLUSTER) image --output $(BUSYBOX_IMAGE) --name $(IMAGE_PREFIX)/busybox:dev $$links "$$busybox=/bin/busybox"; \
	libraries=$$(for l in $(CLIENT_LIBRARIES); do file=$$(realpath "$$($(CC) -print-file-name=$$l)"); echo "$$file=/usr/lib/x86_64-linux-gnu/$$l"; done); \
	$(CLUSTER) image --output $(CLIENT_IMAGE) --name $(IMAGE_PREFIX)/client:dev $(OF_THE_NODE) $$links "$$busybox=/bin/busybox" \
		$$libraries $(NATIVE)/clients=/usr/bin

# Under the name that its manifest has, which the test of the manifest does not change.
.PHONY: $(SCHEDULER_IMAGE)
$(SCHEDULER_IMAGE): $(BIN)/tranche-scheduler $(CLUSTER)
	@mkdir -p $(IMAGES)
	@$(CLUSTER) image --output $@ --name docker.io/tranche/tranche-scheduler:dev \
		--entrypoint /usr/bin/tranche-scheduler $(BIN)/tranche-scheduler=/usr/bin/tranche-scheduler

.PHONY: cluster
cluster: machine-cluster $(CLUSTER) ## Build the programs of the test cluster; the first time takes some 10 minutes on two cores
	$(CLUSTER) build

.PHONY: $(CLUSTER)
$(CLUSTER): machine-build
	@go -C tests/cluster build -buildvcs=false -o '$(CURDIR)/$@' .

# The first build compiles kube-scheduler: some 3 minutes on two cores.
.PHONY: scheduler
scheduler: $(BIN)/tranche-scheduler ## Build tranche-scheduler, which needs all of kube-scheduler, into build/bin

.PHONY: $(BIN)/tranche-scheduler
$(BIN)/tranche-scheduler: machine-build
	@go -C cmd/tranche-scheduler build -buildvcs=$(VCS) -ldflags "$(SCHEDULER_LDFLAGS)" -o '$(CURDIR)/$@' .

.PHONY: $(BIN)/demo
$(BIN)/demo: machine-build
	@$(GO_BUILD) -o $@ ./demo/run

##@ Change

.PHONY: format
format: machine-build ## Format the Go code
	for module in $(MODULES); do (cd $$module && $(TOOL) golangci-lint fmt --config '$(CURDIR)/.golangci.yml' ./...); done

.PHONY: generate
generate: machine-build ## Write the generated code anew
	cd pkg/api/v1alpha1 && $(TOOL) controller-gen object:headerFile=boilerplate.go.txt paths=.
	go generate ./cdi/...
	go run ./cdi/simdriver/gen

# The names too: a file that is generated for the first time is a difference.
GENERATED = find pkg cdi \( -name 'zz_generated*' -o -path 'cdi/*.map' \) -type f -exec sha256sum {} + | sort

.PHONY: check-generate
check-generate: machine-build ## Fail where generated code does not fit its source
	before=$$($(GENERATED)); \
	$(MAKE) --no-print-directory -s generate; \
	if ! diff <(echo "$$before") <($(GENERATED)); then \
		echo 'make: generated code was out of date; it is written anew, commit it' >&2; exit 1; \
	fi

.PHONY: clean
clean: ## Remove build/; the caches of Go and of the test cluster stay
	rm -rf build

##@ Help

.PHONY: help
help: ## List the targets
	@awk 'BEGIN { FS = ":.*## " } \
		/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z0-9.-]+:.*## / { sub(/:.*/, "", $$1); printf "  make %-19s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: machine-build machine-native machine-cluster
machine-build machine-native machine-cluster: machine-%:
	@tests/tools/machine.sh $*
