package onnxq_test

import (
	"context"
	"path/filepath"
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/analyze"
	"onnxquant/onnxq/compare"
	"onnxquant/onnxq/diff"
	"onnxquant/onnxq/ggufmodel"
	"onnxquant/onnxq/restyle"
	"onnxquant/onnxq/verify"
	"onnxquant/spec"
)

// A nil context is an error, and so is a nil or zero model or plan.
func TestNothingGiven(t *testing.T) {
	in := modeltest.Write(t, modeltest.Model(modeltest.Tensors{modeltest.Floats("w", 64, 32)}, modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")}))
	m := modeltest.Open(t, in)
	plan, err := m.Plan(onnxq.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, out := context.Background(), filepath.Join(t.TempDir(), "out.onnx")
	var none context.Context
	second := func(_ any, err error) error { return err }
	models := func(ctx context.Context, m, other *onnxq.Model) map[string]error {
		return map[string]error{
			"analyze":    second(analyze.Model(ctx, m, analyze.Options{})),
			"compare":    second(compare.MatchWeights(ctx, other, m, nil, nil)),
			"diff":       second(diff.Models(ctx, m, other, nil)),
			"dequantize": second(restyle.DequantizeModel(ctx, m, out, restyle.Options{})),
		}
	}
	failed := map[string]map[string]error{"nil context": models(none, m, m)}
	for name, err := range map[string]error{
		"Convert":  second(onnxq.Convert(none, in, out, onnxq.Options{})),
		"Plan":     second(plan.Convert(none, out)),
		"restyle":  second(restyle.Restyle(none, in, out, spec.NBits, restyle.Options{})),
		"verify":   second(verify.Models(none, in, in, verify.Options{})),
		"gguf":     second((&ggufmodel.Plan{}).Write(ctx, out)),
		"gguf out": (*ggufmodel.Plan)(nil).CheckOutput(out),
		"no plan":  onnxq.ConvertAll(ctx, []onnxq.Output{{Path: out}})[0].Err,
		"nil plan": second((*onnxq.Plan)(nil).OutputSize(out)),
	} {
		failed["nil context"][name] = err
	}
	for name, closed := range map[string]*onnxq.Model{"nil model": nil, "zero model": {}} {
		failed[name] = models(ctx, closed, m)
		for op, err := range map[string]error{
			"Plan":    second(closed.Plan(onnxq.Options{})),
			"Tensor":  second(closed.Tensor("w")),
			"Tensors": second(closed.Tensors()),
			"Close":   closed.Close(),
			"gguf":    second(ggufmodel.NewPlan(closed, ggufmodel.Options{})),
			"weights": second(ggufmodel.ReadWeights(closed, in, nil)),
		} {
			failed[name][op] = err
		}
	}
	for given, errs := range failed {
		for op, err := range errs {
			if err == nil {
				t.Errorf("%s, %s: no error", given, op)
			}
		}
	}
	if got := (&onnxq.Report{}).Worst(-1); len(got) != 0 {
		t.Errorf("Worst(-1): %v", got)
	}
}
