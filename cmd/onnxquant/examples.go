package main

import (
	"slices"

	"github.com/spf13/pflag"
)

// examples has a value for each flag that takes one, with other flags that it needs. A key is
// the name of a flag, or a command and the name. Flags without a value are here only if they
// need others.
var examples = map[string]string{
	"accuracy-level":       "1 --style nbits",
	"activations":          "dynamic",
	"algorithm":            "best",
	"bits":                 "8",
	"block":                "32",
	"calib":                "samples.npz --algorithm gptq",
	"conv-format":          "float --ops all",
	"exclude":              "'lm_head*'",
	"external-data":        "always",
	"external-data-name":   "model.onnx_data --external-data always",
	"float-ops":            "Softmax --float16",
	"format":               "nvfp4",
	"imatrix":              "imatrix.dat --format q4_k",
	"include":              "'layers.*'",
	"memory":               "256MiB",
	"min-coverage":         "95%",
	"min-elements":         "1024",
	"names":                "names.json --imatrix imatrix.dat",
	"ops":                  "MatMul,Gemm,Gather",
	"precision-info":       "settings.json",
	"preset":               "sherpa-onnx",
	"range":                "percentile:99.9",
	"samples":              "32 --calib samples.npz --algorithm best",
	"scale-rule":           "ceil --format mxfp8",
	"scale-type":           "float16",
	"shard-size":           "2GB --external-data always",
	"style":                "nbits",
	"target":               "ort",
	"threads":              "4",
	"weights-from":         "weights.gguf",
	"clamp":                "--float16",
	"keep-io-types":        "--float16",
	"reduce-range":         "--activations dynamic",
	"analyze scale-rule":   "ceil",
	"candidates":           "int4:32:zp,int8:channel,nf4",
	"emit":                 "settings.json",
	"max-error":            "0.05",
	"max-size":             "100MiB",
	"auto":                 "100MiB",
	"axis":                 "1",
	"data":                 "data.npz",
	"calibrate out":        "ranges.json --data data.npz",
	"calibrate bits":       "8 --data data.npz",
	"calibrate range":      "percentile:99.9 --data data.npz",
	"calibrate json":       "--data data.npz",
	"calibrate quiet":      "--data data.npz",
	"calibrate samples":    "32 --data data.npz",
	"calibrate imatrix":    "imatrix.gguf --data data.npz",
	"calibrate names":      "names.json --imatrix imatrix.gguf --data data.npz",
	"calibrate length":     "64 --data self",
	"analyze calib":        "self --max-size 100MiB",
	"analyze samples":      "32 --calib data.npz --max-size 100MiB",
	"analyze length":       "64 --calib self --max-size 100MiB",
	"analyze seed":         "7 --calib self --max-size 100MiB",
	"analyze engine":       "ort --calib data.npz --max-size 100MiB",
	"analyze ort-lib":      "libonnxruntime.so --calib data.npz --max-size 100MiB",
	"calibrate zero-point": "--data data.npz",
	"calibrate seed":       "7 --data self",
	"calibrate engine":     "ort --data data.npz",
	"calibrate ort-lib":    "libonnxruntime.so --data data.npz",
	"name":                 "input",
	"dim":                  "batch=4",
	"engine":               "ort",
	"inputs":               "inputs.npz",
	"min-cosine":           "0.99",
	"min-output-sqnr":      "20",
	"min-sqnr":             "15",
	"ort-lib":              "libonnxruntime.so",
	"seed":                 "7",
	"timeout":              "10m",
	"html":                 "page.html",
	"logits":               "scores",
	"report":               "page.html",

	"activation-type":       "int8 --activations static --ranges ranges.json",
	"ranges":                "ranges.json --activations static",
	"symmetric-activations": "--activations static --ranges ranges.json",

	"metadata":             "general.architecture=str:llama",
	"mix":                  "Q4_K_M",
	"output-tensor-type":   "Q6_K",
	"tensor-type":          "'*ffn_down*=Q6_K'",
	"token-embedding-type": "Q8_0",
	"gguf imatrix":         "imatrix.dat",
	"gguf names":           "names.json",
}

// exampleOf is a command line with the flag.
func (cmd command) exampleOf(f *pflag.Flag) string {
	value, ok := examples[cmd.name+" "+f.Name]
	if !ok {
		value = examples[f.Name]
	}
	words := "--" + f.Name
	if f.NoOptDefVal == "" || value != "" {
		words += " " + value
	}
	return cmd.line(words + " " + cmd.exampleFiles(f))
}

// exampleFiles are the arguments of an example with the flag.
func (cmd command) exampleFiles(f *pflag.Flag) string {
	switch {
	case cmd.name == "calibrate" && slices.Contains(arrayFlags, f.Name):
		return "data.npz"
	case f.Name == "preset" || f.Name == "link":
		return "folder new-folder"
	}
	return cmd.example
}
