.POSIX:

GO        = go
LINTER    = GOWORK=off $(GO) tool -modfile=tools/go.mod -n golangci-lint
BENCHSTAT = GOWORK=off $(GO) tool -modfile=tools/go.mod benchstat
MODULES   = . cmd/redislock redislockotel redislockrueidis redislockvalkey torture bench

TARGETS = linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' Makefile

test: ## every spec; on real servers too, when redis-server is on PATH
	$(GO) test work

race: ## the same with the race detector
	$(GO) test -race work

lint: ## go vet and golangci-lint (the first run builds it: about a minute)
	@set -e; linter=$$($(LINTER)); for module in $(MODULES); do \
		echo "$$module"; (cd $$module && $(GO) vet ./... && "$$linter" run ./...); \
	done

fmt: ## format every Go file
	@set -e; linter=$$($(LINTER)); for module in $(MODULES); do (cd $$module && "$$linter" fmt ./...); done

bench: ## every benchmark six times, summed up; the runs are kept in bench.out
	$(GO) test -run '^$$' -bench . -benchmem -count=6 work | tee bench.out
	@! grep '^FAIL' bench.out
	$(BENCHSTAT) bench.out

peers: ## this library beside others, eight minutes; written to bench/results
	$(GO) -C bench run .

torture: ## faults and checkers for five minutes; see docs/torture.md
	$(GO) run ./torture

start: ## redislock run beside flock(1), from start to command
	bash bench/start.sh

demo: ## the demonstration of the command line tool
	$(GO) run ./cmd/redislock demo

release: ## the command line tool for Linux, macOS and Windows, with checksums, in dist/
	rm -rf dist && mkdir dist
	@set -e; for target in $(TARGETS); do \
		os=$${target%/*} arch=$${target#*/} end=; \
		if [ $$os = windows ]; then end=.exe; fi; \
		echo "dist/redislock_$${os}_$$arch$$end"; \
		CGO_ENABLED=0 GOOS=$$os GOARCH=$$arch $(GO) build -trimpath -ldflags "-s -w" \
			-o "dist/redislock_$${os}_$$arch$$end" ./cmd/redislock; \
	done
	cd dist && { sha256sum redislock_* || shasum -a 256 redislock_*; } >SHA256SUMS 2>/dev/null

ci: ## all that continuous integration checks
	bash .ci/run

.PHONY: help test race lint fmt bench peers torture start demo release ci
