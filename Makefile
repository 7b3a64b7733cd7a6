# Everything a developer runs. The real servers need java, mvn and redis-server; no Docker.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
RUN  ?= .run
LINT := go tool -modfile=tools/go.mod golangci-lint
FUZZTIME ?= 30s

.PHONY: help test models race lint check e2e nightly chaos soak kafka-up kafka-down compose-check snapshot simulate fuzz bench adapters cover mutants measured site mixin

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

TESTED = ./...

test: ## the fast suite, on embedded Kafka and Redis
	go test -p 4 -parallel 8 $(TESTFLAGS) $(TESTED) # tests with servers wait more than they work

# Models are compared with the code, and simulations run, with all of their steps: make test takes a tenth.
MODELS = ./windows ./rules/... ./internal/tools/engine ./pipeline/aggregate/shard ./pipeline/aggregate/state ./pipeline/admit/...

models: ## what make test takes a tenth of, whole
	TALLYGATE_TEST_DEPTH=10 go test -count=1 $(TESTFLAGS) $(MODELS)

# Pure packages, and tests that only read the repository or drive programs from outside, have no goroutine that
# could race.
RACED = $$(go list ./... | grep -vE '/(clients|docs/.*|deploy|examples/.*|internal/(programs/dev|testing/layers|tools/(accesslog|engine|vocabulary))|windows|rules|rules/.*|pipeline/aggregate/(hotkeys|shard|state)|pipeline/admit/(protocol|internal/classics)|scripts/.*)$$')

race: ## the fast suite of all that has goroutines, under the race detector
	go test -race -parallel 4 -timeout 20m $(TESTFLAGS) $(RACED)

lint: ## formatting, vet and the linters of .golangci.yml
	@files=$$(gofmt -l .); [[ -z $$files ]] || { printf '%s\nrun gofmt -w .\n' "$$files" >&2; exit 1; }
	go vet ./...
	go vet -C bench ./...
	$(LINT) run --allow-serial-runners ./...

check: ## all that CI runs
	bash .ci/run

# What has tests on real servers, or in a browser. The longest is first, so that others run beside it.
REAL = ./internal/testing/e2e $$(grep -rlE --include='*_test.go' 'internal/testing/servers"|/blocklist/internal/rig"|/browsertest"|"TALLYGATE_TEST_[A-Z]+"' . | xargs -n 1 dirname | sort -u | \
	grep -vE '^\./(internal/(programs/dev|testing/(e2e|layers|testrun|servers/.*))|adapters/.*|bench/.*|deploy/(helm|mixin)/.*)$$')

e2e: kafka-up ## tests on a real Kafka and Redis; SUITES=kills,browsers: also those of these suites (scripts/suites)
	@TALLYGATE_TEST_KAFKA=127.0.0.1:$$(<$(RUN)/kafka/port) TALLYGATE_TEST_REDIS=127.0.0.1:$$(<$(RUN)/redis/port) \
	  PATH="$$(scripts/proxies.sh install):$$PATH" TALLYGATE_TEST_REQUIRE=1 $(if $(SUITES),TALLYGATE_TEST_NIGHTLY=$(SUITES)) go test $(E2EFLAGS) $(if $(ONLY),-run '$(ONLY)') -count=1 -p 3 -parallel 4 -timeout 40m $(TESTFLAGS) $(REAL)

nightly: export TALLYGATE_TEST_DEPTH = 10
nightly: ## all suites, with all of their steps, and races on real servers: before a tag, and each night
	@$(MAKE) test race adapters site snapshot
	@$(MAKE) e2e SUITES=1 E2EFLAGS=-race
	@RUNS=3 $(MAKE) chaos
	@RUNS=3 STRICT=1 $(MAKE) chaos
	@$(MAKE) simulate
	@$(MAKE) fuzz

chaos: ## plans of faults, compared with a model: make chaos SEED=1 RUNS=3 EVENTS=500000; all settings: scripts/chaos.sh
	@scripts/chaos.sh

soak: ## a steady load with everything that happens to an installation: make soak MINUTES=30
	@scripts/kafka.sh install >/dev/null; scripts/redis.sh install; redis=$$(scripts/redis.sh start $(RUN)/redis); \
	  TALLYGATE_TEST_KAFKA=own TALLYGATE_TEST_REDIS=$$redis TALLYGATE_TEST_REQUIRE=1 TALLYGATE_TEST_NIGHTLY=soak \
	  go test -v -count=1 -timeout 0 -run '^TestSoak$$' ./internal/testing/e2e -soak.minutes $(or $(MINUTES),30)

simulate: ## the protocol of strict limits against all that can fail: make simulate STEPS=100000000 SEED=1
	go test -v -count=1 -timeout 0 -run '^Test(Simulation|EachRuleIsNeeded)$$' ./pipeline/admit/protocol -sim.steps $(or $(STEPS),50000000) -sim.seed $(or $(SEED),0)

kafka-up: ## start a Kafka and a Redis in .run/, and print how tests find them
	@kafka=$$(scripts/kafka.sh start $(RUN)/kafka); echo "export TALLYGATE_TEST_KAFKA=$$kafka"
	@scripts/redis.sh install
	@redis=$$(scripts/redis.sh start $(RUN)/redis); echo "export TALLYGATE_TEST_REDIS=$$redis"

kafka-down: ## stop them
	scripts/kafka.sh stop $(RUN)/kafka
	scripts/redis.sh stop $(RUN)/redis

compose-check: ## docker-compose.yml and what it mounts, systemd units, what a release is made of
	go test -count=1 ./deploy/...

snapshot: ## a release's programs and packages in bin/dist, and a look into them; ONLY=1: for this machine only
	@ONLY=$(ONLY) scripts/snapshot.sh
	@TALLYGATE_TEST_DIST=1 go test -count=1 $(TESTFLAGS) -run '^TestPackage' ./deploy

fuzz: ## each fuzz target for FUZZTIME (default 30s)
	@grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do \
	  sed -nE 's/^func (Fuzz[A-Za-z0-9_]+).*/\1/p' "$$file" | while read -r target; do \
	    go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" </dev/null; done; done

bench: ## every benchmark, six times, for benchstat: go tool -modfile=tools/go.mod benchstat OLD NEW
	go test -run '^$$' -bench . -benchmem -count 6 ./...

measured: ## docs/measured.md and README's table, from the benchmarks: make measured ONLY=micro,latency QUICK=1
	@mkdir -p $(RUN)/bench && go build -C bench -o "$$(realpath $(RUN))/bench/" ./measured
	$(RUN)/bench/measured -only '$(ONLY)' $(if $(QUICK),-quick)

site: ## the pages as a site in .site/; fails when a link leads nowhere. To look at it: scripts/site.sh serve
	@scripts/site.sh

bench-%: ## bench-throughput, -latency, -writes, -enforce, -decision, -admit, beside what others use: pass ARGS=…; see scripts/bench.sh
	RUN=$(RUN) scripts/bench.sh $* $(ARGS)

mixin: ## deploy/alerts.yaml, deploy/dashboard.json and the runbooks' table, from deploy/mixin
	cd deploy/mixin && go run .
	cp deploy/alerts.yaml deploy/helm/tallygate/files/alerts.yaml

adapters: ## the middleware for gin, echo, fiber and chi, bench, deploy/mixin and the Helm chart, each a module of its own
	@for dir in adapters/*/ bench/ deploy/mixin/ deploy/helm/test/; do (cd "$$dir" && go vet ./... && go test $(TESTFLAGS) ./...); done

cover: ## the fast suite's coverage, by function, in cover.out
	go test -coverpkg=./... -coverprofile=cover.out ./... && go tool cover -func=cover.out | tail -1

MUTATED = ./windows ./rules/... ./pipeline/aggregate/shard ./pipeline/enforce/internal/index ./pipeline/kafkalog

mutants: ## would tests notice a mistake? make mutants PKG=./windows N=150 SEED=1; N=0 is all
	go run ./scripts/mutants -n $(or $(N),50) -seed $(or $(SEED),0) $(or $(PKG),$(MUTATED))
