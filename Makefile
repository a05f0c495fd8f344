# Needs Go, Python 3 with its venv module, and the network for packages.

export CGO_ENABLED = 0

PYTHON   ?= python3
JOBS     ?= auto
FUZZTIME ?= 60s

BIN     := bin/onnxquant
VENV    := .venv
STRUCTS := build/corpus/structures/INDEX.json
HOSTILE := build/corpus/hostile/INDEX.json
CORPUS  := testmodels/corpus

# References that may lie beside the project: the full golden data (the
# project carries a part of it) and real models.
GOLDEN := $(wildcard ../shared/golden)

.PHONY: help build test check test-go golden cross corpus oracle accuracy bench proto fuzz clean

help:
	@echo 'make build    bin/onnxquant'
	@echo 'make test     everything below down to oracle'
	@echo 'make check    gofmt, go vet'
	@echo 'make test-go  Go tests, with the full golden data where it exists'
	@echo 'make cross    compile, tests too, for linux, darwin, windows on amd64 and arm64'
	@echo 'make oracle   the command against onnx and ONNX Runtime, in Python'
	@echo 'make accuracy the table of accuracies in docs/formats.md'
	@echo 'make bench    speed and memory against onnxruntime (BENCH_LAYERS=24 is 4.3 GB)'
	@echo 'make proto    internal/onnxpb from its .proto'
	@echo 'make fuzz     every fuzz target for FUZZTIME=$(FUZZTIME)'
	@echo 'make clean    remove what the others made, but for the Python packages'

build:
	go build -trimpath -o $(BIN) ./cmd/onnxquant

test: check test-go cross oracle

check:
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi
	go vet ./...

test-go: golden
	go test ./...

golden:
ifneq ($(GOLDEN),)
	ONNXQUANT_GOLDEN=$(abspath $(GOLDEN)) go test -run Golden ./...
else
	@echo 'no ../shared/golden: only the golden data in testdata is compared'
endif

cross:
	@for os in linux darwin windows; do for arch in amd64 arm64; do \
		echo "go build and vet for $$os/$$arch"; \
		GOOS=$$os GOARCH=$$arch go build ./... && GOOS=$$os GOARCH=$$arch go vet ./... || exit 1; \
	done; done

# The virtual environment is remade when the pinned versions change.
$(VENV)/ready: oracle/requirements.txt
	$(PYTHON) -m venv --clear $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r oracle/requirements.txt
	@touch $@

corpus: $(STRUCTS) $(HOSTILE)

$(STRUCTS): $(CORPUS)/gen_structures.py $(CORPUS)/wire.py | $(VENV)/ready
	@mkdir -p build/corpus
	$(VENV)/bin/python $(CORPUS)/gen_structures.py --seed 11 --out $(@D) > build/corpus/structures.log
	@touch $@

$(HOSTILE): $(CORPUS)/gen_hostile.py $(CORPUS)/wire.py | $(VENV)/ready
	@mkdir -p build/corpus
	$(VENV)/bin/python $(CORPUS)/gen_hostile.py --seed 11 --out $(@D)

oracle: build corpus
	$(VENV)/bin/python -m pytest -n $(JOBS) oracle

accuracy: build $(VENV)/ready
	$(VENV)/bin/python oracle/accuracy.py

$(VENV)/bench: bench/requirements.txt | $(VENV)/ready
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r bench/requirements.txt
	@touch $@

bench: build $(VENV)/bench
	$(VENV)/bin/python bench/compare.py

# protoc comes with grpcio-tools, protoc-gen-go with go.mod.
proto:
	$(PYTHON) -m venv build/proto
	build/proto/bin/pip install --quiet --disable-pip-version-check grpcio-tools==1.85.1
	GOBIN=$(abspath build/proto/bin) go install google.golang.org/protobuf/cmd/protoc-gen-go
	build/proto/bin/python -m grpc_tools.protoc -I. --plugin=build/proto/bin/protoc-gen-go \
		--go_out=. --go_opt=module=onnxquant internal/onnxpb/onnx.proto

fuzz:
	@go test -list '^Fuzz' ./... | awk '/^Fuzz/ {f[n++] = $$1} /^ok/ {while (n) print $$2, f[--n]}' | \
	while read -r package target; do \
		echo "$$package $$target"; \
		go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) "$$package" || exit 1; \
	done

clean:
	rm -rf bin build
