package main

import (
	"cmp"

	"onnxquant/internal/cli"
)

// version overrides the version that the Go tool records:
//
//	go build -ldflags "-X main.version=v1.2.3" ./cmd/onnxquant
var version string

func buildVersion() string { return cmp.Or(version, cli.BuildVersion()) }
