package inspect_test

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/inspect"
	"onnxquant/spec"
)

// What is told of a model before and after its conversion.
func TestInspect(t *testing.T) {
	in, out := modeltest.Build(t, "external"), filepath.Join(t.TempDir(), "out.onnx")
	before := inspect.Model(modeltest.Open(t, in), onnxq.Options{Block: 32})
	if before.IR != 10 || len(before.Opsets) != 1 || before.Opsets[0] != (inspect.OpsetVersion{Version: 21}) || before.Producer != "onnxquant/testmodels" || before.Graph != "mlp" {
		t.Errorf("%+v", before)
	}
	if before.Inputs[0] != (inspect.NamedType{Name: "x", Type: "FLOAT [batch 64]"}) || before.Outputs[0] != (inspect.NamedType{Name: "y", Type: "FLOAT [batch 16]"}) {
		t.Errorf("%v, %v", before.Inputs, before.Outputs)
	}
	if before.Nodes != 8 || before.Operators["MatMul"] != 3 || before.Subgraphs != 0 || before.Functions != 0 {
		t.Errorf("%+v", before)
	}
	float := inspect.TypeShare{DType: "FLOAT", Tensors: 6, Bytes: 4 * (64*96 + 96 + 96*64 + 64 + 64*16 + 16)}
	if !slices.Equal(before.Types, []inspect.TypeShare{float}) {
		t.Errorf("%+v", before.Types)
	}
	if len(before.External) == 0 || before.External[0].Used == 0 || before.External[0].Tensors == 0 || before.Bytes != before.FileBytes+before.External[0].Bytes {
		t.Errorf("%d of %d bytes, %+v", before.FileBytes, before.Bytes, before.External)
	}
	if len(before.Quantized) != 0 || before.Plan == nil || quantized(before.Plan) != 4*(64*96+96*64+64*16) || len(before.Hazards) != 0 {
		t.Errorf("%+v", before)
	}

	if _, err := onnxq.Convert(context.Background(), in, out, onnxq.Options{Block: 32, ExternalData: spec.ExternalNever}); err != nil {
		t.Fatal(err)
	}
	after := inspect.Model(modeltest.Open(t, out), onnxq.Options{Block: 32})
	if len(after.Quantized) != 3 || quantized(after.Plan) != 0 || len(after.External) != 0 || after.FileBytes != after.Bytes || after.Bytes != before.Plan.OutBytes {
		t.Errorf("%+v", after)
	}
}

// quantized returns the bytes of the tensors that a plan quantizes.
func quantized(p *onnxq.Plan) int64 {
	_, n := p.Stages().FloatBytes()
	return n
}

// A conversion that is impossible leaves the rest to be told.
func TestInspectWithoutPlan(t *testing.T) {
	m := modeltest.Open(t, modeltest.Build(t, "mlp"))
	for _, opts := range []onnxq.Options{{Bits: 3}, {Include: []string{"nothing"}}} {
		if in := inspect.Model(m, opts); in.Plan != nil || in.NoPlan == "" || in.Nodes != 8 {
			t.Errorf("%+v: %+v", opts, in)
		}
	}
}

// Graphs within graphs and functions count.
func TestInspectGraphs(t *testing.T) {
	inner := func() *onnxpb.AttributeProto {
		return modeltest.GraphAttr("then_branch", nil, modeltest.Node("Identity", "z", "x"))
	}
	call := modeltest.Function("f", "x", "o", modeltest.Node("If", "o", "x", inner()))
	m := modeltest.Model(nil, modeltest.Nodes{modeltest.Node("If", "p", "i", modeltest.GraphAttr("then_branch", nil, modeltest.Node("If", "q", "i", inner()))), modeltest.Node("local.f", "y", "x")}, call)
	in := inspect.Model(modeltest.Open(t, modeltest.Write(t, m)), onnxq.Options{})
	if in.Subgraphs != 3 || in.Functions != 1 || in.Nodes != 6 || in.Operators["local.f"] != 1 || in.Operators["If"] != 3 {
		t.Errorf("%+v", in)
	}
}
