package onnxq_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// Weights that are quantized already stay unchanged, byte for byte.
func TestConvertTwice(t *testing.T) {
	for _, kind := range testmodels.Kinds() {
		if kind.Name == "nan" {
			continue
		}
		for _, opts := range []onnxq.Options{
			{Block: 32}, {Bits: 8, Block: spec.PerChannel, ZeroPoint: true}, {Block: 16, Style: spec.NBits}, {Format: spec.FP8E4M3},
			{Format: spec.NVFP4, Target: spec.ORT}, {Format: spec.MXFP8, Target: spec.ORT}, {Format: spec.NF4}, {Block: 32, Style: spec.QDQ},
		} {
			opts.Ops, opts.AllowFallback = []string{"all"}, true
			t.Run(fmt.Sprintf("%s/%d%s/%s", kind.Name, opts.Bits, opts.Format, opts.Style), func(t *testing.T) {
				once, twice := filepath.Join(t.TempDir(), "m.onnx"), filepath.Join(t.TempDir(), "m.onnx")
				if _, err := onnxq.Convert(context.Background(), modeltest.Build(t, kind.Name), once, opts); err != nil {
					t.Fatal(err)
				}
				r, err := onnxq.Convert(context.Background(), once, twice, opts)
				if err != nil {
					t.Fatal(err)
				}
				a, err := os.ReadFile(once)
				if err != nil {
					t.Fatal(err)
				}
				b, err := os.ReadFile(twice)
				if err != nil {
					t.Fatal(err)
				}
				if len(r.Tensors) != 0 || !bytes.Equal(a, b) {
					t.Errorf("%d weights are quantized again; the bytes are equal: %v", len(r.Tensors), bytes.Equal(a, b))
				}
			})
		}
	}
}

// The same holds in functions, also for codes that are looked up in a table.
func TestConvertFunctionTwice(t *testing.T) {
	for _, format := range []spec.Format{spec.Int4, spec.NF4} {
		in := modeltest.Write(t, modeltest.Model(nil, []*onnxpb.NodeProto{modeltest.Node("local.f", "y", "x")},
			modeltest.Function("f", "x", "y", modeltest.ConstantNode("v", modeltest.Floats("w", 256, 64)), modeltest.Node("MatMul", "y", "x v"))))
		opts := onnxq.Options{Format: format, Ops: []string{"all"}}
		once := filepath.Join(t.TempDir(), "m.onnx")
		if r, err := onnxq.Convert(context.Background(), in, once, opts); err != nil || len(r.Tensors) != 1 {
			t.Fatalf("%s: %v", format, err)
		}
		p, err := modeltest.Open(t, once).Plan(opts)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range p.Tensors {
			if w.Decision == onnxq.Quantize {
				t.Errorf("%s: %s is quantized again", format, w.Name)
			}
		}
	}
}
