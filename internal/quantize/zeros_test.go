package quantize_test

import (
	"fmt"
	"slices"
	"testing"

	"onnxquant/internal/recognize"
	"onnxquant/internal/rewrite"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/spec"
)

// MatMulNBits reads unsigned codes and zero points. Those of signed formats decode to the same
// values as in the style dq.
func TestStylesHaveTheSameValues(t *testing.T) {
	for _, kind := range []string{"mlp", "gemm_transb", "embedding"} {
		in := modeltest.Open(t, modeltest.Build(t, kind))
		for _, format := range []spec.Format{spec.Int2, spec.Uint2, spec.Int4, spec.Uint4, spec.Int8, spec.Uint8} {
			for _, zero := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/zero points %v", kind, format, zero), func(t *testing.T) {
					values := map[spec.Style][]float32{}
					for _, style := range []spec.Style{spec.DQ, spec.NBits} {
						opts := onnxq.Options{Format: format, Block: 16, ZeroPoint: zero, Style: style, Ops: []string{"all"}}
						r, out := modeltest.ConvertInTiles(t, in, opts, 100)
						if style == spec.NBits && !slices.ContainsFunc(r.Plan.Stages().Weights, isNBits) {
							t.Fatal("nothing is in the style nbits")
						}
						for _, w := range recognize.Weights(modeltest.Open(t, out).Graph()) {
							x := make([]float32, w.Elements())
							if err := w.Read(x, 0); err != nil {
								t.Fatal(err)
							}
							slices.Sort(x) // weights may be transposed
							values[style] = append(values[style], x...)
						}
					}
					if !slices.Equal(values[spec.DQ], values[spec.NBits]) {
						t.Error("other values in the style nbits")
					}
				})
			}
		}
	}
}

func isNBits(w rewrite.Weight) bool { return w.Choice.Style == spec.NBits }
