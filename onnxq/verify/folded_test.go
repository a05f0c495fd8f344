package verify_test

import (
	"path/filepath"
	"slices"
	"testing"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/verify"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// Folded outputs are sound, and IN folded in the same way computes what IN does. A changed bias fails, and so does a
// folded output of a model whose normalization is another one.
func TestFolded(t *testing.T) {
	node, floats := modeltest.Node, modeltest.Floats
	model := func(epsilon float32) *testmodels.Model {
		positive := floats("v", 8)
		for i := range positive.FloatData {
			positive.FloatData[i] = 1 + float32(i)/4
		}
		bn := node("BatchNormalization", "n", "p g b m v", &onnxpb.AttributeProto{Name: new("epsilon"), Type: onnxpb.AttributeProto_FLOAT.Enum(), F: &epsilon})
		m := modeltest.Model(modeltest.Tensors{floats("w", 8, 3, 3, 3), floats("g", 8), floats("b", 8), floats("m", 8), positive, floats("k", 8, 16), floats("s", 16), floats("c", 1)}, modeltest.Nodes{
			node("Conv", "p", "x w"), bn, node("Relu", "r", "n"), node("GlobalAveragePool", "a", "r"), node("Flatten", "f", "a"),
			node("MatMul", "q", "f k"), node("Add", "u", "q s"), node("Mul", "y", "u c"),
		})
		m.Proto.Graph.Input = m.Proto.Graph.Input[:1]
		shape := &onnxpb.TensorShapeProto{}
		for _, d := range []int64{1, 3, 8, 8} {
			shape.Dim = append(shape.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: d}})
		}
		m.Proto.Graph.Input[0].Type.GetTensorType().Shape = shape
		return m
	}
	in := modeltest.Write(t, model(1e-5))
	check := func(in, out string) *verify.Report {
		t.Helper()
		r, err := verify.Models(t.Context(), in, out, verify.Options{Engine: verify.Go})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, o := range []onnxq.Options{
		{Bits: 8, Block: spec.PerChannel, Ops: []string{"all"}},
		{Bits: 8, Block: spec.PerChannel, Ops: []string{"all"}, Provenance: &spec.Step{Tool: "test"}},
		{FloatType: spec.Float16},
		{Activations: spec.Dynamic, Ops: []string{"all"}},
	} {
		o.Fold = true
		out := filepath.Join(t.TempDir(), "out.onnx")
		modeltest.Convert(t, in, out, o)
		r := check(in, out)
		if !r.Passed || r.Structure.Folded != 2 || r.Execution.Folded < 80 {
			t.Errorf("%+v: %v; %d nodes are folded, %.1f dB", o, r.Failures, r.Structure.Folded, r.Execution.Folded)
		}
		other := modeltest.Write(t, model(0.5))
		if r := check(other, out); r.Passed {
			t.Errorf("%+v: another epsilon passes", o)
		}
		if o.FloatType != "" {
			continue
		}
		m := modeltest.Read(t, out)
		i := slices.IndexFunc(m.Graph.Initializer, func(t *onnxpb.TensorProto) bool { return t.GetName() == "w_bias" })
		if i < 0 {
			t.Fatal("no bias w_bias")
		}
		m.Graph.Initializer[i].RawData[3] ^= 0x80 // the sign
		m.MetadataProps = nil
		if r := check(in, modeltest.Write(t, &testmodels.Model{Proto: m})); r.Passed {
			t.Errorf("%+v: a negated bias passes", o)
		}
	}
}
