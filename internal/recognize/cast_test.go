package recognize_test

import (
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/recognize"
	"onnxquant/internal/testing/modeltest"
)

// Scales behind a Cast are those that are stored only if the Cast changes no number: others could
// not be written back.
func TestCastOfScales(t *testing.T) {
	for _, c := range []struct {
		from, to dtype.DType
		stored   bool
	}{
		{dtype.Float16, dtype.Float32, true},
		{dtype.BFloat16, dtype.Float32, true},
		{dtype.Uint8, dtype.Float32, true},
		{dtype.Int8, dtype.Float16, true},
		{dtype.Float32, dtype.Float32, true},
		{dtype.Float32, dtype.Float16, false},
		{dtype.Float16, dtype.BFloat16, false},
		{dtype.Float64, dtype.Float32, false},
	} {
		m := modeltest.Model(modeltest.Tensors{modeltest.Zeros("q", dtype.Int4, 64, 32), modeltest.Zeros("c", c.from, 2, 32)}, modeltest.Nodes{
			modeltest.Node("Cast", "s", "c", modeltest.IntAttr("to", int64(c.to))),
			modeltest.Node("DequantizeLinear", "v", "q s", modeltest.IntAttr("axis", 0), modeltest.IntAttr("block_size", 32)),
			modeltest.Node("MatMul", "y", "x v"),
		})
		weights := recognize.Weights(modeltest.Open(t, modeltest.Write(t, m)).Graph())
		if len(weights) != 1 {
			t.Errorf("%v to %v: %d weights", c.from, c.to, len(weights))
			continue
		}
		if d := weights[0].Constant.Decoder; d.S.DType != c.to || (d.Scales != nil) != c.stored {
			t.Errorf("%v to %v: scales of type %v, stored ones known: %v", c.from, c.to, d.S.DType, d.Scales != nil)
		}
	}
}
