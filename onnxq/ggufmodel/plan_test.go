package ggufmodel_test

import (
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/formats/gguf"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/ggufmodel"
	"onnxquant/rules"
	"onnxquant/testmodels"
)

func TestNewPlanRefuses(t *testing.T) {
	model, _ := reader("MatMul", dtype.Float32, 40, 32)
	m := modeltest.Open(t, modeltest.Write(t, model))
	names, err := rules.ParseNames([]byte(`{"v*": "a"}`))
	if err != nil {
		t.Fatal(err)
	}
	out, err := rules.ParseNames([]byte(`{"*": null}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		opts ggufmodel.Options
		want string
	}{
		{ggufmodel.Options{Mix: "Q9"}, `mix "Q9" is not known`},
		{ggufmodel.Options{TensorTypes: []ggufmodel.TypeRule{{Pattern: "w", Type: "Q9"}}}, `type "Q9"`},
		{ggufmodel.Options{OutputType: "Q9"}, `type "Q9"`},
		{ggufmodel.Options{TensorTypes: []ggufmodel.TypeRule{{Pattern: "v", Type: "F16"}}}, `no tensor and no node is called "v"`},
		{ggufmodel.Options{TensorTypes: []ggufmodel.TypeRule{{Pattern: "w", Type: "Q8_0"}}}, "rows of 40 elements are not made of blocks of 32"},
		{ggufmodel.Options{TensorTypes: []ggufmodel.TypeRule{{Pattern: "w", Type: "F64"}}}, "F64 is only for float64"},
		{ggufmodel.Options{Threads: -1}, "-1 threads"},
		{ggufmodel.Options{Names: names}, `line 1, column 2: "v*" matches no tensor`},
		{ggufmodel.Options{Names: out}, "the model has no float weights"},
		{ggufmodel.Options{Metadata: []gguf.KeyValue{{Key: "general.alignment", Value: uint32(3)}}}, "want a power of two"},
		{ggufmodel.Options{Importance: &rules.Importance{Source: "im", Columns: map[string][]float32{"v": nil}}, TensorTypes: nil, Mix: "Q8_0"}, ""},
	} {
		_, err := ggufmodel.NewPlan(m, c.opts)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: %v, want %q", c.opts, err, c.want)
		}
	}
}

// A model whose weights are all quantized is told what to do first.
func TestNewPlanQuantized(t *testing.T) {
	model, _ := reader("MatMul", dtype.Float32, 64, 32)
	quantized := filepath.Join(t.TempDir(), "q.onnx")
	if _, err := onnxq.Convert(t.Context(), modeltest.Write(t, model), quantized, onnxq.Options{Block: 32, MinElements: 1}); err != nil {
		t.Fatal(err)
	}
	_, err := ggufmodel.NewPlan(modeltest.Open(t, quantized), ggufmodel.Options{})
	if err == nil || !strings.HasSuffix(err.Error(), "run onnxquant dequantize first") {
		t.Errorf("got %v", err)
	}
}

// The structure of a model, and not only its names, tells what weights do.
func TestNewPlanRoles(t *testing.T) {
	m := modeltest.Open(t, modeltest.Write(t, testmodels.Embedding(1, 512, 256)))
	p, err := ggufmodel.NewPlan(m, ggufmodel.Options{EmbeddingType: "q8_0"})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, w := range p.Tensors {
		got[w.Name] = w.Type
	}
	if got["table"] != "Q8_0" || got["head"] != "Q6_K" {
		t.Errorf("types %v, want Q8_0 of the table and Q6_K of the head", got)
	}
}
