package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"onnxquant/internal/nearest"
	"onnxquant/onnxq/spec"
)

// flagHints says what flags of other tools are called here, where the nearest name would be
// another thing. If it begins with a flag, it is for the commands that have it.
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

// otherNames maps words that other tools have for values of flags.
var otherNames = map[string]string{
	"matmulnbits":     "nbits",
	"minmax":          "rtn",
	"onnxruntime":     "ort",
	"onnxruntime-web": "ort-web",
	"round":           "rtn",
	"trt":             "tensorrt",
	"wasm":            "ort-web",
	"webgpu":          "ort-web",
}

// nearestFlag says what an unknown flag may have meant.
func nearestFlag(fs *pflag.FlagSet, name string) string {
	if text := hint(fs, name); text != "" {
		return "; " + text
	}
	if near, ok := nearest.Name(plainName(name), flagNames(fs)); ok {
		return "; did you mean --" + near + "?"
	}
	return ""
}

// hint says what a name that is none of fs means in other tools, or in other commands.
func hint(fs *pflag.FlagSet, name string) string {
	name = plainName(name)
	if fs.Lookup(name) != nil {
		return "it is --" + name
	}
	if slices.Contains([]string{"o", "out", "output"}, name) && fs.Lookup("html") != nil {
		return "--html FILE names the page; IN and OUT are the first arguments"
	}
	if text, ok := flagHints[name]; ok {
		flag, _, _ := strings.Cut(text, " ")
		if !strings.HasPrefix(flag, "--") || lookup(fs, flag) != nil {
			return text
		}
	}
	if fs.Lookup("format") != nil && slices.Contains(codedFormats(), spec.Format(name)) {
		return "it is --format " + name
	}
	if digits := strings.Trim(strings.TrimSuffix(name, "bit"), "-"); fs.Lookup("bits") != nil && slices.Contains([]string{"2", "4", "8"}, digits) {
		return "it is --bits " + digits
	}
	var others []string
	for _, cmd := range allCommands() {
		if lookup(cmd.flags(), name) != nil {
			others = append(others, cmd.line(""))
		}
	}
	if most := 2; len(others) > most+1 {
		others = append(others[:most:most], fmt.Sprintf("%d other commands", len(others)-most))
	}
	if len(others) > 0 {
		return "it is a flag of " + oneAnd(others)
	}
	return ""
}

// plainName is a name as flags here have theirs.
func plainName(name string) string { return strings.ReplaceAll(strings.ToLower(name), "_", "-") }

// aliases are other names of commands; "" is the conversion.
var aliases = map[string]string{"convert": "", "quantize": "", "quantise": "", "info": "inspect"}

// commandHints are about commands that other tools have, and that may mean one of several
// here.
var commandHints = map[string]string{
	"check":   "verify IN OUT compares a quantized model with its float model; inspect MODEL lists known problems",
	"compare": "verify IN OUT measures how much a quantized model differs; diff A B lists all differences",
	"man":     "onnxquant help man prints a manual page",
}
