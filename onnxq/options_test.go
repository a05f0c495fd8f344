package onnxq_test

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/rules"
	"onnxquant/spec"
)

// Ranges are for integer formats.
func TestRangeOptions(t *testing.T) {
	mse, percentile := spec.Range{Kind: spec.RangeMSE}, spec.Range{Kind: spec.Percentile, Percent: 99.9}
	if err := (onnxq.Options{Range: mse, Format: spec.NVFP4}).Check(); err == nil {
		t.Error("nvfp4 has ranges")
	}
	for _, opts := range []onnxq.Options{{}, {Format: spec.NVFP4}, {Range: mse, Format: spec.Uint4}, {Range: percentile}, {Range: mse, Format: spec.Float}} {
		if err := opts.Check(); err != nil {
			t.Errorf("%+v: %v", opts, err)
		}
	}
}

// Options that a target supports for no weight are refused. If a precision_info asks for them, the
// weight stays in float.
func TestTargetRefuses(t *testing.T) {
	for _, c := range []struct {
		opts onnxq.Options
		want string // part of the message; empty: accepted
	}{
		{onnxq.Options{Target: spec.OpenVINO, Bits: 2}, "does not take int2, only int4"},
		{onnxq.Options{Target: spec.OpenVINO, ZeroPoint: true}, ""},
		{onnxq.Options{Target: spec.TensorRT, ZeroPoint: true}, "does not take uint4"},
		{onnxq.Options{Target: spec.TensorRT, Block: 32}, "takes int4 in blocks of 64 or 128 that divide the axis, not block 32"},
		{onnxq.Options{Target: spec.TensorRT, Block: spec.PerChannel}, "not per channel"},
		{onnxq.Options{Target: spec.TensorRT, Bits: 8, Block: 32}, "takes int8 in one scale per channel, not block 32"},
		{onnxq.Options{Target: spec.TensorRT, Bits: 8}, ""},
		{onnxq.Options{Target: spec.TensorRT, Format: spec.NF4}, "does not take nf4"},
		{onnxq.Options{Target: spec.TensorRT, Style: spec.NBits}, "no MatMulNBits"},
		{onnxq.Options{Target: "gpu"}, "known: portable, ort, ort-web, tensorrt, openvino"},
	} {
		err := c.opts.Check()
		switch {
		case c.want == "" && err != nil, c.want != "" && err == nil:
			t.Errorf("%+v: %v", c.opts, err)
		case err != nil && !strings.Contains(err.Error(), c.want):
			t.Errorf("%v does not say %q", err, c.want)
		}
	}

	in := modeltest.Build(t, "mlp")
	p, err := rules.ParsePrecision([]byte(`{"w0": 2, "w1": {"block": 48}, "w2": {"block": 64}}`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := onnxq.Convert(context.Background(), in, filepath.Join(t.TempDir(), "out.onnx"), onnxq.Options{Target: spec.OpenVINO, Precision: p})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]onnxq.TensorPlan{}
	for _, p := range r.Plan.Tensors {
		got[p.Name] = p
	}
	if w := got["w0"]; w.Decision != onnxq.Keep || !strings.Contains(w.Reason, "OpenVINO does not take int2") {
		t.Errorf("%+v", w)
	}
	if w := got["w1"]; w.Block != 32 || w.Note != "block 32, not block 48: OpenVINO takes powers of two that divide the axis" {
		t.Errorf("%+v", w)
	}
	if w := got["w2"]; w.Block != 64 || w.Note != "" {
		t.Errorf("%+v", w)
	}
}
