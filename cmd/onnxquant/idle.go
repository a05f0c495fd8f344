package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"onnxquant/onnxq"
	"onnxquant/spec"
)

// A selectiveFlag is about some weights only.
type selectiveFlag struct {
	name  string
	about func(*onnxq.TensorPlan) bool // reports whether it is about a quantized weight
	none  string                       // message: what no weight is, and how to get such weights
}

var selectiveFlags = []selectiveFlag{
	{"accuracy-level", hasLevel, "no weight becomes a MatMulNBits or QMoE; --style nbits makes these, or --target ort"},
	{"no-fold-bias", isMatMulNBits, "no weight becomes a MatMulNBits; --style nbits makes these, or --target ort"},
	{"scale-rule", func(t *onnxq.TensorPlan) bool { return t.Format.Traits().Family == spec.Microscaling }, "no weight gets mxfp4 or mxfp8"},
	{"conv-format", isConvolution, "no weight of a convolution is selected; --ops all selects them, if there are any"},
}

func isMatMulNBits(t *onnxq.TensorPlan) bool { return strings.HasPrefix(t.Form, "MatMulNBits") }

func hasLevel(t *onnxq.TensorPlan) bool { return isMatMulNBits(t) || t.Form == "QMoE" }

func isConvolution(t *onnxq.TensorPlan) bool {
	return slices.ContainsFunc(t.Consumers, func(reader string) bool {
		operator, _, _ := strings.Cut(reader, ":")
		return strings.Contains(operator, "Conv")
	})
}

// idleFlags name the flags that were given, and change nothing because the plan has no weight that
// they are about. A weight that is float because its format is float is one that flags are about.
func idleFlags(fs *pflag.FlagSet, p *onnxq.Plan) (warnings []string) {
	weights := slices.DeleteFunc(slices.Clone(p.Tensors), func(t onnxq.TensorPlan) bool {
		return t.Decision != onnxq.Quantize && t.Reason != onnxq.FormatFloat
	})
	for _, f := range selectiveFlags {
		if fs.Changed(f.name) && !slices.ContainsFunc(weights, func(t onnxq.TensorPlan) bool { return f.about(&t) }) {
			warnings = append(warnings, fmt.Sprintf("--%s changes nothing: %s", f.name, f.none))
		}
	}
	return warnings
}
