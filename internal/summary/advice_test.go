package summary

import (
	"strings"
	"testing"

	"onnxquant/onnxq"
)

// Experts that stay in float are worth a warning, unless most weights have codes.
func TestLeftExperts(t *testing.T) {
	p := &onnxq.Plan{Coverage: 0.01, Tensors: []onnxq.TensorPlan{
		{Name: "router", Bytes: 1 << 10, Decision: onnxq.Quantize},
		{Name: "fc1", Bytes: 2 << 20, Reason: onnxq.Unselected + "com.microsoft.MoE"},
		{Name: "table", Bytes: 1 << 20, Reason: onnxq.Unselected + "Gather", Shape: []int64{512, 512}},
	}}
	if got := LeftExperts(p); len(got) != 1 || !strings.Contains(got[0], "experts stay in float, 2.0 MiB: --ops MatMul,Gemm,MoE selects") {
		t.Errorf("%q", got)
	}
	p.Tensors = append(p.Tensors, onnxq.TensorPlan{Name: "stack", Bytes: 1 << 20, Reason: onnxq.Unselected + "GatherND", Shape: []int64{4, 256, 256}})
	if got := LeftExperts(p); len(got) != 1 || !strings.Contains(got[0], "experts stay in float, 3.0 MiB: --ops MatMul,Gemm,MoE,GatherND selects") {
		t.Errorf("%q", got)
	}
	if p.Coverage = 0.9; LeftExperts(p) != nil {
		t.Error("most weights have codes")
	}
}
