package opset

import "math"

// A guest is an operator that models use, and runtimes take, in the domain of
// ai.onnx at opsets that do not define it.
type guest struct {
	until   int64   // opset that retired, defined or redefined it
	adapter adapter // for that step; nil: it takes the node as it is
}

// anyOpset as the end of a guest says that no opset defines it: it is adapted
// by the first step that is taken.
const anyOpset = math.MaxInt64

// guests are the experimental operators of the first opsets, which opset 10
// took back or (two) had made real, and those that ONNX Runtime adds. What the
// former do is in the changelog up to onnx 1.4, and in the schemas of ONNX
// Runtime for both.
var guests = map[string]guest{
	"Affine":                       {10, affine},
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

// definition returns the version of an operator in force at an opset: 0 if
// there is none, 1 for a guest.
func definition(op string, opset int64) int64 {
	if v := operators[op].at(opset); v != 0 || opset >= guests[op].until {
		return v
	}
	return 1
}

// adapterOf returns the adapter of an operator for the step to an opset, or nil.
func adapterOf(op string, version int64) adapter {
	if g := guests[op]; g.until == version || g.until == anyOpset {
		return g.adapter
	}
	return operators[op].adapters[version]
}
