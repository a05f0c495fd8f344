package restyle_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/recognize"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/restyle"
	"onnxquant/spec"
)

// A weight that no product reads has no form for ONNX Runtime's operators: it stays.
func TestNBitsTakesOnlyProducts(t *testing.T) {
	codes, scale, scales := modeltest.Zeros("q", dtype.Int8, 4, 2), modeltest.Floats("s"), modeltest.Floats("s", 4)
	for name, m := range map[string]struct {
		tensors modeltest.Tensors
		nodes   modeltest.Nodes
		op      string
	}{
		"one scale":        {modeltest.Tensors{codes, scale}, modeltest.Nodes{modeltest.Node("DequantizeLinear", "w", "q s"), modeltest.Node("Mul", "y", "x w")}, "Mul"},
		"scale per axis":   {modeltest.Tensors{codes, scales}, modeltest.Nodes{modeltest.Node("DequantizeLinear", "w", "q s", modeltest.IntAttr("axis", 0)), modeltest.Node("Mul", "y", "x w")}, "Mul"},
		"added position":   {modeltest.Tensors{codes, scale}, modeltest.Nodes{modeltest.Node("DequantizeLinear", "w", "q s"), modeltest.Node("Add", "y", "x w")}, "Add"},
		"added first":      {modeltest.Tensors{codes, scale}, modeltest.Nodes{modeltest.Node("DequantizeLinear", "w", "q s"), modeltest.Node("Add", "h", "x w"), modeltest.Node("MatMul", "y", "h w")}, "Add"},
		"multiplied first": {modeltest.Tensors{codes, scale}, modeltest.Nodes{modeltest.Node("DequantizeLinear", "w", "q s"), modeltest.Node("MatMul", "h", "x w"), modeltest.Node("Mul", "y", "h w")}, "Mul"},
	} {
		t.Run(name, func(t *testing.T) {
			in, out := modeltest.Write(t, modeltest.Model(m.tensors, m.nodes)), filepath.Join(t.TempDir(), "out.onnx")
			r, err := restyle.Restyle(context.Background(), in, out, spec.NBits, restyle.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Weights) != 1 || r.Weights[0].Changed || !strings.Contains(r.Weights[0].Reason, m.op) {
				t.Errorf("%+v, want one that stays because of %s", r.Weights, m.op)
			}
			if got := operators(modeltest.Open(t, out)); strings.Join(got, " ") != strings.Join(operators(modeltest.Open(t, in)), " ") {
				t.Errorf("operators %v", got)
			}
		})
	}
}

// The codes of a weight of one column are already in the order of MatMulNBits.
func TestNBitsOfOneColumn(t *testing.T) {
	for _, k := range []int64{32, 48, 64} {
		for _, opts := range []onnxq.Options{{Block: 16}, {Block: 16, ZeroPoint: true}, {Bits: 8, Block: spec.PerChannel}, {Bits: 2, Block: 32}} {
			folder := t.TempDir()
			in := modeltest.Write(t, modeltest.Model(modeltest.Tensors{modeltest.Floats("w", k, 1)}, modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")}))
			dq, nbits := filepath.Join(folder, "dq.onnx"), filepath.Join(folder, "nbits.onnx")
			opts.MinElements = 1
			modeltest.Convert(t, in, dq, opts)
			r, err := restyle.Restyle(context.Background(), dq, nbits, spec.NBits, restyle.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Weights) != 1 || !r.Weights[0].Changed {
				t.Fatalf("[%d, 1]: %+v", k, r.Weights)
			}
			before, after := modeltest.Open(t, dq), modeltest.Open(t, nbits)
			want, got := recognize.Weights(before.Graph()), recognize.Weights(after.Graph())
			if len(want) != 1 || len(got) != 1 {
				t.Fatalf("[%d, 1]: %d weights became %d", k, len(want), len(got))
			}
			a, b := decodedAll(t, want[0]), decodedAll(t, got[0])
			for i := range a {
				if a[i] != b[i] {
					t.Fatalf("[%d, 1]: element %d became %v from %v", k, i, b[i], a[i])
				}
			}
		}
	}
}
