package onnxq_test

import (
	"strings"
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/rules"
	"onnxquant/spec"
)

// formatsOf returns the plan of a model, and the plan of each weight by name.
func formatsOf(t *testing.T, in string, opts onnxq.Options) (*onnxq.Plan, map[string]onnxq.TensorPlan) {
	t.Helper()
	p, err := modeltest.Open(t, in).Plan(opts)
	if err != nil {
		t.Fatal(err)
	}
	weights := map[string]onnxq.TensorPlan{}
	for _, w := range p.Tensors {
		weights[w.Name] = w
	}
	return p, weights
}

// Convolutions get 8 bits unless their format is requested.
func TestConvolutions(t *testing.T) {
	const why = "int8, not int4: 4 bits are too few for convolutions; see --conv-format"
	named, err := rules.ParsePrecision([]byte(`{"w0": 4}`))
	if err != nil {
		t.Fatal(err)
	}
	in, all := modeltest.Build(t, "conv"), []string{"all"}
	for name, c := range map[string]struct {
		opts     onnxq.Options
		format   spec.Format
		block    int
		fallback string
	}{
		"default":             {onnxq.Options{Ops: all}, spec.Int8, 32, why},
		"by name":             {onnxq.Options{Ops: []string{"Conv"}}, spec.Int8, 32, why},
		"block size":          {onnxq.Options{Ops: all, Block: 16}, spec.Int8, 16, why},
		"zero points":         {onnxq.Options{Ops: all, ZeroPoint: true}, spec.Uint8, 32, strings.ReplaceAll(why, "int", "uint")},
		"2 bits":              {onnxq.Options{Ops: all, Bits: 2}, spec.Int8, 32, "int8, not int2: 2 bits are too few for convolutions; see --conv-format"},
		"nf4":                 {onnxq.Options{Ops: all, Format: spec.NF4, Block: 64}, spec.Int8, 32, strings.ReplaceAll(why, "int4", "nf4")},
		"8 bits":              {onnxq.Options{Ops: all, Bits: 8}, spec.Int8, 32, ""},
		"q5_0, in 8 bits":     {onnxq.Options{Ops: all, Format: "q5_0"}, "q5_0", 32, ""},
		"tensorrt":            {onnxq.Options{Ops: all, Target: spec.TensorRT}, spec.Int8, spec.PerChannel, why},
		"asked for":           {onnxq.Options{Ops: all, ConvFormat: spec.Int4}, spec.Int4, 128, ""},
		"asked for, nf4":      {onnxq.Options{Ops: all, ConvFormat: spec.NF4, ZeroPoint: true, Block: 32}, spec.NF4, 64, ""},
		"asked for, fp8":      {onnxq.Options{Ops: all, ConvFormat: spec.FP8E4M3, Block: 32}, spec.FP8E4M3, 32, ""},
		"asked for by itself": {onnxq.Options{Ops: all, Precision: named}, spec.Int4, 128, ""},
	} {
		_, weights := formatsOf(t, in, c.opts)
		w := weights["w0"]
		if w.Format != c.format || w.Block != c.block || w.Fallback != c.fallback || !strings.HasPrefix(w.Note, w.Fallback) {
			t.Errorf("%s: %s, block %d, %q, %q; want %s, %d, %q", name, w.Format, w.Block, w.Fallback, w.Note, c.format, c.block, c.fallback)
		}
	}
	if _, weights := formatsOf(t, in, onnxq.Options{Ops: all, ConvFormat: spec.Float}); weights["w0"].Reason != "its format is float" {
		t.Errorf("float: %+v", weights["w0"])
	}
	for _, c := range []struct {
		opts onnxq.Options
		want string
	}{
		{onnxq.Options{ConvFormat: "int5"}, `convolutions: format "int5" is not known`},
		{onnxq.Options{ConvFormat: "q4_k", Target: spec.OpenVINO}, "convolutions: target openvino does not take q4_k"},
		{onnxq.Options{ConvFormat: "nvfp4", Style: spec.QDQ}, "convolutions: style qdq"},
	} {
		if err := c.opts.Check(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v does not say %q", err, c.want)
		}
	}
}

// A ggml format falls back to int8 if int8 is smaller, unless a setting names the weight.
func TestSmallWeights(t *testing.T) {
	in := modeltest.Build(t, "mlp")
	for _, format := range spec.BlockwiseFormats() {
		f := format.Format
		named, err := rules.NewPrecision(rules.PrecisionEntry{Pattern: "*", Override: spec.Override{Format: &f}})
		if err != nil {
			t.Fatal(err)
		}
		usual, weights := formatsOf(t, in, onnxq.Options{Format: f})
		asked, same := formatsOf(t, in, onnxq.Options{Precision: named})
		changed := false
		for name, w := range weights {
			if w.Decision == onnxq.Quantize && w.Format != f {
				changed = true
				if want := "int8, not " + string(f) + ": it is smaller with so few elements"; w.Fallback != want {
					t.Errorf("%s: %q, want %q", name, w.Fallback, want)
				}
			}
			if got := same[name]; got.Decision == onnxq.Quantize && got.Format != f {
				t.Errorf("%s: asked for %s, got %s", name, f, got.Format)
			}
		}
		if f == "q4_k" && !changed {
			t.Error("nothing is smaller as int8 than as q4_k")
		}
		if changed != (usual.OutBytes < asked.OutBytes) || usual.OutBytes > asked.OutBytes {
			t.Errorf("%s: %d bytes, %d without int8", f, usual.OutBytes, asked.OutBytes)
		}
	}
}
