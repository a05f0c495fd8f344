package rewrite_test

import (
	"strings"
	"testing"

	"onnxquant/internal/discover"
	"onnxquant/internal/target"
	"onnxquant/internal/testing/graphtext"
	"onnxquant/spec"
)

// Before opset 21, ONNX Runtime fuses per-channel int8 codes behind a Transpose only if they have
// zero points. Therefore zero points are stored, once for equal shapes. This happens only for ONNX
// Runtime, and only where MatMulNBits cannot hold the weight.
func TestStoredZeros(t *testing.T) {
	ort, portable := target.Of(spec.ORT), target.Of(spec.Portable)
	const turned = `
		v = Transpose<perm=[1,0]>(w)
		h = MatMul(x, v)
		u = Transpose<perm=[1,0]>(t)
		k = MatMul(x, u)
		y = Mul(h, k)`
	for _, c := range []struct {
		name    string
		opset   int64
		columns string
		nodes   string
		options discover.Options
		inputs  int // of DequantizeLinear; 0: there is none
	}{
		{"opset 20", 20, "300", turned, discover.Options{Target: ort}, 3},
		{"opset 13", 13, "300", turned, discover.Options{Target: ort}, 3},
		{"opset 21", 21, "300", turned, discover.Options{Target: ort}, 2},
		{"short rows", 20, "256", turned, discover.Options{Target: ort}, 0},
		{"portable", 20, "300", turned, discover.Options{Target: portable}, 2},
		{"style dq", 20, "300", turned, discover.Options{Target: ort, Style: spec.DQ}, 2},
		{"no product", 20, "300", `
			v = Transpose<perm=[1,0]>(w)
			y = Einsum<equation="ij,jk->ik">(x, v)`, discover.Options{Target: ort, Ops: []string{"Einsum"}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.options.Bits, c.options.Block = 8, spec.PerChannel
			values := "x:float w:float[512,C]=1,-2,3 t:float[512,C]=1,-2,3"
			g := quantized(t, graphtext.Model(t, c.opset, strings.ReplaceAll(values, "C", c.columns), c.nodes, "y"), c.options).Copy.Proto.Graph
			inputs, zeros := 0, map[string]bool{}
			for _, n := range g.Node {
				if n.GetOpType() == "DequantizeLinear" {
					inputs = len(n.Input)
					for _, name := range n.Input[2:] {
						zeros[name] = true
					}
				}
			}
			if inputs != c.inputs || len(zeros) != max(c.inputs-2, 0) {
				t.Errorf("DequantizeLinear has %d inputs, want %d; zero points %v", inputs, c.inputs, zeros)
			}
			for _, z := range g.Initializer {
				if zeros[z.GetName()] && string(z.RawData) != string(make([]byte, 512)) {
					t.Errorf("zero points %v", z.RawData)
				}
			}
		})
	}
}
