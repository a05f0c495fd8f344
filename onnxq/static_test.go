package onnxq_test

import (
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/rules"
	"onnxquant/spec"
)

// Beside static activations, a weight can have 4-bit blocks if an entry of the precision_info asks
// for them.
func TestWeightsBesideStatic(t *testing.T) {
	m := modeltest.Open(t, modeltest.Write(t, modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 64, 64), modeltest.Floats("v", 64, 64)},
		modeltest.Nodes{modeltest.Node("MatMul", "h", "x w"), modeltest.Node("MatMul", "y", "h v")})))
	ranges, err := rules.ParseRanges([]byte(`{"version": 1, "tensors": {"x": {"min": -1, "max": 1}, "h": {"min": -1, "max": 1}, "y": {"min": -1, "max": 1}}}`))
	if err != nil {
		t.Fatal(err)
	}
	bits, block := 4, 32
	precision, err := rules.NewPrecision(rules.PrecisionEntry{Pattern: "v", Override: spec.Override{Bits: &bits, Block: &block}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := m.Plan(onnxq.Options{Activations: spec.Static, Ranges: ranges, Precision: precision})
	if err != nil {
		t.Fatal(err)
	}
	for _, tensor := range p.Tensors {
		want := map[string]spec.Format{"w": spec.Int8, "v": spec.Int4}[tensor.Name]
		if tensor.Decision != onnxq.Quantize || tensor.Format != want {
			t.Errorf("%s: %s %s, want %s: %s", tensor.Name, tensor.Decision, tensor.Format, want, tensor.Reason)
		}
	}
}
