package main

import (
	"github.com/spf13/pflag"

	"onnxquant/internal/cli"
	"onnxquant/spec"
)

// unrecorded lists the flags that do not change the output of a command.
var unrecorded = []string{"threads", "memory", "no-verify", "strict", "allow-fallback", "min-coverage", "dry-run", "json", "quiet", "verbose", "no-provenance", "link", "force", "report", "resume", "calib-store", "gate", "attest"}

func defineNoProvenance(fs *pflag.FlagSet, no *bool) {
	fs.BoolVar(no, "no-provenance", false,
		"do not record in OUT's metadata what made it: the version, the\nflags and a hash of IN")
}

// step describes a command for the metadata of its output; nil with --no-provenance.
func step(command string, fs *pflag.FlagSet, no bool) *spec.Step {
	if no {
		return nil
	}
	return &spec.Step{Tool: "onnxquant", Version: buildVersion(), Command: command, Options: cli.FlagsText(fs, unrecorded)}
}
