package onnxq_test

import (
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/proto"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/spec"
)

// Nodes with float16 scales compute in float, unless the caller wants another level: ONNX Runtime may compute
// zeros, and wrongly where nodes share scales.
func TestLevelOfSharedScales(t *testing.T) {
	one := modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")}
	two := append(modeltest.Nodes{modeltest.Node("MatMul", "z", "x w")}, one...)
	for _, c := range []struct {
		nodes modeltest.Nodes
		float spec.FloatType
		asked spec.AccuracyLevel
		want  int64
	}{
		{one, spec.Float16, spec.AccuracyDefault, 1},
		{two, "", spec.AccuracyDefault, 4},
		{two, spec.Float16, spec.AccuracyDefault, 1},
		{two, spec.Float16, spec.AccuracyInt8, 4},
	} {
		in := modeltest.Write(t, modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 64, 32)}, c.nodes))
		m := new(onnxpb.ModelProto)
		made := modeltest.Convert(t, in, filepath.Join(t.TempDir(), "out.onnx"), onnxq.Options{Bits: 4, Block: 32, Style: spec.NBits, FloatType: c.float, AccuracyLevel: c.asked})
		if err := proto.Unmarshal(made, m); err != nil {
			t.Fatal(err)
		}
		products := 0
		for _, n := range m.Graph.Node {
			if n.GetOpType() != "MatMulNBits" {
				continue
			}
			products++
			if got := graph.IntAttribute(n, "accuracy_level"); got != c.want {
				t.Errorf("%d products, %q: level %d, want %d", len(c.nodes), c.float, got, c.want)
			}
		}
		if products != len(c.nodes) {
			t.Errorf("%d products of %d", products, len(c.nodes))
		}
	}
}
