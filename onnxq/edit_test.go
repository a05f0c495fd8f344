package onnxq_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/rules"
	"onnxquant/spec"
)

// A plan with edited tensors makes the same file as the equivalent precision_info. The report says
// what was written.
func TestEditedPlan(t *testing.T) {
	for _, c := range []struct {
		name      string
		edit      func(t *onnxq.TensorPlan) // of w1
		precision string
		opts      onnxq.Options
	}{
		{"keep", func(t *onnxq.TensorPlan) { t.Decision = onnxq.Keep }, `{"w1": {"format": "float"}}`, onnxq.Options{Block: 32}},
		{"format", func(t *onnxq.TensorPlan) { t.Format = spec.Int8 }, `{"w1": {"format": "int8"}}`, onnxq.Options{Block: 32}},
		{"own block", func(t *onnxq.TensorPlan) { t.Format = spec.NVFP4 }, `{"w1": {"format": "nvfp4"}}`, onnxq.Options{Block: 32}},
		{"block", func(t *onnxq.TensorPlan) { t.Block = 16 }, `{"w1": {"block": 16}}`, onnxq.Options{Block: 32}},
		{"block over an entry", func(t *onnxq.TensorPlan) { t.Block = 16 }, `{"w1": {"bits": 8, "block": 16}}`,
			onnxq.Options{Block: 32, Precision: entries(t, `{"w1": 8}`)}},
		{"quantize after all", func(t *onnxq.TensorPlan) { t.Decision = onnxq.Quantize }, `{}`,
			onnxq.Options{Block: 32, Precision: entries(t, `{"w1": {"format": "float"}}`)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := modeltest.Build(t, "mlp")
			m := modeltest.Open(t, in)
			p, err := m.Plan(c.opts)
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(p.Tensors, func(t onnxq.TensorPlan) bool { return t.Name == "w1" })
			c.edit(&p.Tensors[i])
			folder := t.TempDir()
			edited, asked := filepath.Join(folder, "edited.onnx"), filepath.Join(folder, "asked.onnx")
			report, err := p.Convert(context.Background(), edited)
			if err != nil {
				t.Fatal(err)
			}
			opts := c.opts
			opts.Precision = entries(t, c.precision)
			want := modeltest.Convert(t, in, asked, opts)
			got, err := os.ReadFile(edited)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Error("the edited plan and the precision_info give different files")
			}
			if got, want := report.Plan.Tensors[i], p.Tensors[i]; got.Decision != want.Decision || want.Decision == onnxq.Quantize && want.Format != "" && got.Format != want.Format {
				t.Errorf("the report says %v, the plan %v", got, want)
			}
			quantized := slices.ContainsFunc(report.Tensors, func(r onnxq.TensorReport) bool { return r.Name == "w1" })
			if quantized != (p.Tensors[i].Decision == onnxq.Quantize) {
				t.Errorf("w1 quantized: %v", quantized)
			}
		})
	}
}

// Impossible edits are refused and nothing is written.
func TestEditRefused(t *testing.T) {
	for _, c := range []struct {
		name, kind string
		edit       func(p *onnxq.Plan)
		message    string
	}{
		{"unknown format", "mlp", func(p *onnxq.Plan) { p.Tensors[0].Format = "int3" }, `the plan was edited: "w0": format "int3" is not known`},
		{"unknown decision", "mlp", func(p *onnxq.Plan) { p.Tensors[0].Decision = "maybe" }, "maybe"},
		{"a fact", "mlp", func(p *onnxq.Plan) { p.Tensors[0].Bytes++ }, "only Decision, Format, Block and Axis"},
		{"renamed", "mlp", func(p *onnxq.Plan) { p.Tensors[0].Name = "other" }, "rename"},
		{"removed", "mlp", func(p *onnxq.Plan) { p.Tensors = p.Tensors[1:] }, "tensors"},
		{"bias", "mlp", func(p *onnxq.Plan) {
			i := slices.IndexFunc(p.Tensors, func(t onnxq.TensorPlan) bool { return t.Decision == onnxq.Keep })
			p.Tensors[i].Decision = onnxq.Quantize
		}, "decision quantize is not possible, only keep: "},
		{"not selected", "embedding", func(p *onnxq.Plan) {
			i := slices.IndexFunc(p.Tensors, func(t onnxq.TensorPlan) bool { return t.Name == "table" })
			p.Tensors[i].Decision = onnxq.Quantize
		}, "operator not selected: Gather"},
		{"fixed block", "mlp", func(p *onnxq.Plan) { p.Tensors[0].Format, p.Tensors[0].Block = spec.MXFP4, 16 }, "block"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := modeltest.Open(t, modeltest.Build(t, c.kind)).Plan(onnxq.Options{Block: 32})
			if err != nil {
				t.Fatal(err)
			}
			c.edit(p)
			out := filepath.Join(t.TempDir(), "out.onnx")
			_, err = p.Convert(context.Background(), out)
			if !errors.Is(err, onnxq.ErrEdit) || !strings.Contains(err.Error(), c.message) {
				t.Errorf("%v, want an error with %q", err, c.message)
			}
			if files, _ := filepath.Glob(out + "*"); len(files) > 0 {
				t.Errorf("%v was written", files)
			}
		})
	}
}

func entries(t *testing.T, document string) *rules.Precision {
	t.Helper()
	p, err := rules.ParsePrecision([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	return p
}
