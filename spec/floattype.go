package spec

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"onnxquant/formats/dtype"
)

// FloatType is the type to which float32 values of a model are converted.
type FloatType string

const (
	FloatAsIs FloatType = ""         // as in the model
	Float16   FloatType = "float16"  // IEEE 754 binary16, up to 65504
	BFloat16  FloatType = "bfloat16" // the upper half of float32
)

// DType returns the element type, or 0 for FloatAsIs. An unknown type is an error.
func (t FloatType) DType() (dtype.DType, error) {
	switch t {
	case FloatAsIs:
		return 0, nil
	case Float16:
		return dtype.Float16, nil
	case BFloat16:
		return dtype.BFloat16, nil
	}
	return 0, fmt.Errorf("float type %q: want float16 or bfloat16", string(t))
}

// FloatOps lists the operators that compute in float32 although all other operators compute in
// half: float16 loses too much precision there, or ONNX Runtime does not run them with float16, or computes
// wrongly. Operators of domain ai.onnx.ml also compute in float32.
func FloatOps() []string { return slices.Clone(floatOps()) }

var floatOps = sync.OnceValue(func() []string {
	ops := []string{
		"CumSum", "Max", "Min", "NonMaxSuppression", "Range", "RoiAlign", "TopK", "Upsample", // imprecise
		"com.microsoft.MoE", // zeros in ONNX Runtime 1.31
	}
	for line := range strings.Lines(floatOpsORT) {
		if !strings.HasPrefix(line, "#") {
			ops = append(ops, strings.TrimSpace(line))
		}
	}
	slices.Sort(ops)
	return ops
})

// floatOpsORT has the operators that ONNX Runtime runs with float32 but not with float16.
//
//go:embed float_ops_ort.txt
var floatOpsORT string
