package analyze_test

import (
	"context"
	"fmt"
	"testing"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
	"onnxquant/spec"
)

// The weights of one MoE get one format, so that a QMoE can read them.
func TestExpertsShareTheirFormat(t *testing.T) {
	var tensors []*onnxpb.TensorProto
	var nodes []*onnxpb.NodeProto
	last := "x"
	for i := range 3 {
		fc1, fc2, gate, routed, out := fmt.Sprint("a", i), fmt.Sprint("b", i), fmt.Sprint("g", i), fmt.Sprint("r", i), fmt.Sprint("m", i)
		if i == 2 {
			out = "y"
		}
		wide := modeltest.Floats(fc1, 4, 128, 64)
		for k := range wide.FloatData {
			wide.FloatData[k] = float32((k*k*31+k*7)%(101+50*i)) - 50 // each has another error
		}
		tensors = append(tensors, wide, modeltest.Floats(fc2, 4, 64, 128), modeltest.Floats(gate, 64, 4))
		nodes = append(nodes, modeltest.Node("MatMul", routed, last+" "+gate),
			modeltest.Node("com.microsoft.MoE", out, fmt.Sprintf("%s %s %s _ %s", last, routed, fc1, fc2), modeltest.IntAttr("normalize_routing_weights", 1)))
		last = out
	}
	m := modeltest.Open(t, modeltest.Write(t, modeltest.Model(tensors, nodes)))
	formats := map[string]bool{}
	for _, size := range []int64{115_000, 140_000, 170_000, 200_000, 230_000} {
		opts := analyze.Options{Options: onnxq.Options{Ops: []string{"all"}, Target: spec.ORT, MinElements: 1}, MaxSize: size}
		a, err := analyze.Model(context.Background(), m, opts)
		if err != nil {
			t.Fatal(err)
		}
		if a.OutBytes > size {
			t.Errorf("%d bytes, want at most %d", a.OutBytes, size)
		}
		chosen := map[string]spec.Candidate{}
		for _, w := range a.Weights {
			chosen[w.Name] = w.Recommended
		}
		for i := range 3 {
			fc1, fc2 := chosen[fmt.Sprint("a", i)], chosen[fmt.Sprint("b", i)]
			if fc1 != fc2 {
				t.Errorf("within %d bytes: %s and %s in one node", size, fc1, fc2)
			}
			formats[fc1.String()] = true
		}
		opts.Options.Precision = a.Precision
		p, err := m.Plan(opts.Options)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range p.Tensors {
			if w.Decision == onnxq.Quantize && len(w.Shape) == 3 && w.Form != "QMoE" {
				t.Errorf("within %d bytes, %s is %s: %s", size, w.Name, w.Form, w.Note)
			}
		}
	}
	if len(formats) < 2 {
		t.Errorf("only %v", formats)
	}
}
