package opset

import "math"

// A nonstandardOp is an operator that models use, and runtimes accept, in the domain
// ai.onnx at opsets that do not define it.
type nonstandardOp struct {
	until   int64   // opset that removed, defined or redefined it
	adapter adapter // for the step to until; nil: nodes stay unchanged
}

// anyOpset means that no opset defines the operator: the first step adapts it.
const anyOpset = math.MaxInt64

// nonstandard lists two kinds of operators: experimental ones of the first opsets, which opset 10 had
// removed or (two of them) defined, and additions of ONNX Runtime. Sources: the changelog up to onnx
// 1.4 for the first kind, the schemas of ONNX Runtime for both.
var nonstandard = map[string]nonstandardOp{
	"Affine":                       {10, affine},
	"ConstantFill":                 {10, constantFill},
	"Crop":                         {10, crop},
	"DynamicSlice":                 {10, dynamicSlice},
	"ImageScaler":                  {10, imageScaler},
	"LayerNormalization":           {17, nil},
	"MeanVarianceNormalization":    {9, varianceAxes},
	"ParametricSoftplus":           {10, parametricSoftplus},
	"Scale":                        {10, scale},
	"ScaledTanh":                   {10, scaledTanh},
	"SimplifiedLayerNormalization": {anyOpset, rootMeanSquare},
	"ThresholdedRelu":              {10, nil},
}

// definition returns the version of an operator at an opset: 0 if it is undefined, 1 if it is
// nonstandard.
func definition(op string, opset int64) int64 {
	if v := operators[op].at(opset); v != 0 || opset >= nonstandard[op].until {
		return v
	}
	return 1
}

// adapterOf returns the adapter of an operator for the step to an opset, or nil.
func adapterOf(op string, version int64) adapter {
	if g := nonstandard[op]; g.until == version || g.until == anyOpset {
		return g.adapter
	}
	return operators[op].adapters[version]
}
