package quantize_test

import (
	"math"
	"strings"
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/verify"
	"onnxquant/spec"
)

// Codes of a weight that becomes half have errors against the float32 elements, not the rounded ones. A warning names what
// half makes 0.
func TestErrorsBeforeRounding(t *testing.T) {
	const step = 0x1p-24 // the least float16 above 0
	for _, shape := range [][]int64{{64, 32}, {32, 64}} {
		w := modeltest.Floats("w", shape...)
		rest, all := 0.0, 0.0 // squares of what rounding takes, and of the elements
		for i := range w.FloatData {
			w.FloatData[i] = []float32{step, 0.4 * step, -1.25 * step, 0}[i%4]
			all += math.Pow(float64(w.FloatData[i]), 2)
			rest += math.Pow(float64(w.FloatData[i])-math.RoundToEven(float64(w.FloatData[i])/step)*step, 2)
		}
		node, in := modeltest.Node("MatMul", "y", "x w"), ""
		if shape[0] == 32 {
			node = modeltest.Node("Gemm", "y", "x w", modeltest.IntAttr("transB", 1))
		}
		in = modeltest.Write(t, modeltest.Model(modeltest.Tensors{w}, modeltest.Nodes{node}))
		want := 10 * math.Log10(all/rest)
		for _, o := range []onnxq.Options{{Bits: 8}, {Bits: 4, Block: 32}, {Bits: 4, Block: 32, Algorithm: spec.MSE}, {Format: "q4_1"}} {
			o.FloatType = spec.Float16
			for _, limit := range []int64{100, modeltest.LargestTile} {
				r, out := modeltest.ConvertInTiles(t, modeltest.Open(t, in), o, limit)
				if text := strings.Join(r.Plan.Warnings, "\n"); !strings.Contains(text, `"w": 25% of its elements became 0: they are too small for float16`) {
					t.Errorf("%+v: warnings %q", o, text)
				}
				if o.Format != "" {
					continue // its scales are too coarse for such numbers: the weight stays
				}
				if len(r.Tensors) != 1 || math.Abs(r.Tensors[0].SQNR-want) > 0.01 {
					t.Errorf("%+v: %+v, want %.2f dB", o, r.Tensors, want)
					continue
				}
				v, err := verify.Models(t.Context(), in, out, verify.Options{Engine: verify.Go})
				if err != nil || len(v.Weights) != 1 || math.Abs(v.Weights[0].SQNR-want) > 0.01 {
					t.Errorf("%+v: %v, verify has %+v, want %.2f dB", o, err, v.Weights, want)
				}
			}
		}
	}
}
