// Package othertools has names of other tools, and what to write for them here. Its tables are for hints
// in messages; nothing is accepted because it is listed.
package othertools

// What several names mean.
const (
	block    = "--block N is the number of weights that share a scale"
	keep     = "--exclude GLOB keeps weights in float"
	only     = "--include GLOB quantizes only these weights"
	weights  = "--format NAME is the format of weights"
	half     = "--float16 makes float16 what stays in float"
	brain    = "--bfloat16 makes bfloat16 what stays in float"
	paths    = "IN and OUT are the two arguments"
	size     = "--auto SIZE makes OUT at most this large"
	data     = "--calib DATA finds codes by samples of inputs"
	ops      = "--ops LIST names the operators whose weights are quantized"
	external = "--external-data always writes tensors to OUT.data"
	active   = "--activations dynamic, or static with --ranges FILE"
)

// Flags maps flags of other tools to ours, if the nearest name would be misleading. A hint that
// begins with a flag is for commands that have it.
var Flags = map[string]string{
	"asymmetric":               "--zero-point gives asymmetric codes",
	"asym":                     "--zero-point gives asymmetric codes",
	"awq":                      "--algorithm awq, with --calib DATA",
	"bf16":                     brain,
	"block-size":               block,
	"blocksize":                block,
	"bnb4":                     "--format nf4 --style nbits",
	"budget":                   size,
	"calibrate":                data,
	"calibration-data":         data,
	"calibration-dataset":      data,
	"dataset":                  data,
	"dtype":                    "--format NAME is the format of weights; --float16 and --bfloat16 are for what stays in float",
	"dynamic":                  "--activations dynamic quantizes activations when the model runs",
	"float":                    keep,
	"float32":                  keep,
	"fp16":                     half,
	"fp32":                     keep,
	"fp8":                      "--format fp8-e4m3 or fp8-e5m2",
	"gptq":                     "--algorithm gptq, with --calib DATA",
	"group-size":               block,
	"groupsize":                block,
	"half":                     half,
	"high-precision-dtype":     half,
	"i":                        paths,
	"ignore":                   keep,
	"ignored-scope":            keep,
	"input":                    paths,
	"input-model":              paths,
	"keep":                     keep,
	"list-formats":             "--format NAME: onnxquant help format lists the formats",
	"max-size":                 size,
	"method":                   "--algorithm NAME is how codes are found",
	"mode":                     active,
	"model":                    paths,
	"mxfp":                     "--format mxfp4 or mxfp8",
	"nodes-to-exclude":         keep,
	"nodes-to-include":         only,
	"nodes-to-quantize":        only,
	"o":                        paths,
	"onnx-path":                paths,
	"op-types":                 ops,
	"op-types-to-quantize":     ops,
	"opset":                    "--bits 8 --block -1 keeps the opset, which rises only if a format needs it",
	"out":                      paths,
	"output":                   paths,
	"output-model":             paths,
	"output-path":              paths,
	"overwrite":                "--force replaces what is read-only or no model; a model is replaced without it",
	"per-channel":              "--block -1 gives one scale per channel",
	"per-tensor":               "--activations dynamic has one scale per tensor; for weights alone, the coarsest is --block -1, one per channel",
	"precision":                "--bits N or --format NAME; --float16 for what stays in float",
	"qdq":                      "--style qdq",
	"quant-method":             "--algorithm NAME is how codes are found",
	"quant-type":               weights,
	"quantize-mode":            weights,
	"ratio":                    size,
	"size":                     size,
	"skip":                     keep,
	"static":                   "--activations static quantizes activations by ranges from data",
	"sym":                      "--zero-point makes codes asymmetric; without it they are symmetric",
	"symmetric":                "--zero-point makes codes asymmetric; without it they are symmetric",
	"target-size":              size,
	"type":                     weights,
	"use-external-data":        external,
	"use-external-data-format": external,
	"w4a16":                    "--bits 4 quantizes weights alone",
	"w8a8":                     active,
	"weight-format":            weights,
	"weight-type":              weights,
}

// Formats maps formats of other tools, and types that are no formats of weights, to what they are here.
var Formats = map[string]string{
	"bf16":     brain,
	"bfloat16": brain,
	"float":    keep,
	"float16":  half,
	"float32":  keep,
	"fp16":     half,
	"fp32":     keep,
	"fp8":      Flags["fp8"],
	"half":     half,
	"awq":      Flags["awq"],
	"gptq":     Flags["gptq"],
	"bnb4":     Flags["bnb4"],
	"w4a16":    Flags["w4a16"],
	"w8a8":     Flags["w8a8"],
}

// Operators maps layers of frameworks to the operators that they become.
var Operators = map[string]string{
	"linear":    "MatMul",
	"dense":     "MatMul",
	"embedding": "Gather",
	"conv1d":    "Conv",
	"conv2d":    "Conv",
	"conv3d":    "Conv",
}

// Commands explains commands of other tools that may mean one of several here.
var Commands = map[string]string{
	"check":   "verify IN OUT compares a quantized model with its float model; inspect MODEL lists known problems",
	"compare": "verify IN OUT measures how much a quantized model differs; diff A B lists all differences",
	"man":     "onnxquant help man prints a manual page",
	"preset":  "onnxquant --preset NAME IN OUT",
	"list":    "onnxquant inspect MODEL lists what a model holds",
	"formats": "onnxquant help format lists the formats",
	"eval":    "verify IN OUT measures how much a quantized model differs",
	"test":    "verify IN OUT measures how much a quantized model differs",
}
