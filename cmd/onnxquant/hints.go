package main

import (
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"onnxquant/spec"
)

// flagHints maps flags of other tools to ours, if the nearest name would be misleading. A hint that
// begins with a flag is for commands that have it.
var flagHints = map[string]string{
	"asymmetric":    "--zero-point gives asymmetric codes",
	"awq":           "--algorithm awq, with --calib DATA",
	"bf16":          "--bfloat16 makes bfloat16 what stays in float",
	"block-size":    "--block N is the number of weights that share a scale",
	"blocksize":     "--block N is the number of weights that share a scale",
	"bnb4":          "--format nf4 --style nbits",
	"dtype":         "--format NAME is the format of weights; --float16 and --bfloat16 are for what stays in float",
	"float":         "--exclude GLOB keeps weights in float",
	"float32":       "--exclude GLOB keeps weights in float",
	"fp16":          "--float16 makes float16 what stays in float",
	"fp32":          "--exclude GLOB keeps weights in float",
	"fp8":           "--format fp8-e4m3 or fp8-e5m2",
	"gptq":          "--algorithm gptq, with --calib DATA",
	"group-size":    "--block N is the number of weights that share a scale",
	"groupsize":     "--block N is the number of weights that share a scale",
	"half":          "--float16 makes float16 what stays in float",
	"i":             "IN and OUT are the two arguments",
	"input":         "IN and OUT are the two arguments",
	"mxfp":          "--format mxfp4 or mxfp8",
	"o":             "IN and OUT are the two arguments",
	"op-types":      "--ops LIST names the operators whose weights are quantized",
	"out":           "IN and OUT are the two arguments",
	"output":        "IN and OUT are the two arguments",
	"per-channel":   "--block -1 gives one scale per channel",
	"per-tensor":    "--activations dynamic has one scale per tensor; for weights alone, the coarsest is --block -1, one per channel",
	"qdq":           "--style qdq",
	"skip":          "--exclude GLOB keeps weights in float",
	"symmetric":     "--zero-point makes codes asymmetric; without it they are symmetric",
	"type":          "--format NAME is the format of weights",
	"w4a16":         "--bits 4 quantizes weights alone",
	"w8a8":          "--activations dynamic, or static with --ranges FILE",
	"weight-format": "--format NAME is the format of weights",
	"weight-type":   "--format NAME is the format of weights",
}

// aliases are other names of commands; "" is the conversion.
var aliases = map[string]string{"convert": "", "quantize": "", "quantise": "", "info": "inspect"}

// commandHints explain commands of other tools that may mean one of several here.
var commandHints = map[string]string{
	"check":   "verify IN OUT compares a quantized model with its float model; inspect MODEL lists known problems",
	"compare": "verify IN OUT measures how much a quantized model differs; diff A B lists all differences",
	"man":     "onnxquant help man prints a manual page",
}

// otherMeaning suggests a flag for an unknown name that is no flag of another tool.
func otherMeaning(fs *pflag.FlagSet, name string) string {
	if slices.Contains([]string{"o", "out", "output"}, name) && fs.Lookup("html") != nil {
		return "--html FILE names the page; IN and OUT are the first arguments"
	}
	if fs.Lookup("format") != nil && slices.Contains(codedFormats(), spec.Format(name)) {
		return "it is --format " + name
	}
	if digits := strings.Trim(strings.TrimSuffix(name, "bit"), "-"); fs.Lookup("bits") != nil && slices.Contains([]string{"2", "4", "8"}, digits) {
		return "it is --bits " + digits
	}
	return ""
}

// codedFormats lists all formats except float.
func codedFormats() []spec.Format {
	var names []spec.Format
	for _, f := range spec.Formats() {
		if f != spec.Float {
			names = append(names, f)
		}
	}
	return names
}
