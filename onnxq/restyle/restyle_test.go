package restyle_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/lazy"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/packing"
	"onnxquant/internal/recognize"
	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/restyle"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// decodedAll are the values of a quantized weight.
func decodedAll(t *testing.T, w *recognize.Weight) []float32 {
	t.Helper()
	x := make([]float32, w.Elements())
	if err := w.Read(x, 0); err != nil {
		t.Fatal(err)
	}
	return x
}

// matrix are the values of a weight as those who multiply by it see them.
func matrix(t *testing.T, w *recognize.Weight) []float32 {
	x := decodedAll(t, w)
	if !w.Transposed {
		return x
	}
	y := make([]float32, len(x))
	packing.Transpose(y, x, int(w.Shape[0]), int(w.Shape[1]))
	return y
}

func operators(m *onnxq.Model) []string {
	var ops []string
	graph.WalkGraphs(m.Graph().File.Proto.Graph, func(g *onnxpb.GraphProto) {
		for _, n := range g.Node {
			ops = append(ops, graph.Operator(n))
		}
	})
	slices.Sort(ops)
	return ops
}

// What dequantize writes is the float model with the values that the weights stood
// for, whatever their form.
func TestDequantize(t *testing.T) {
	for _, kind := range testmodels.Kinds() {
		for _, opts := range []onnxq.Options{
			{Block: 32}, {Format: spec.Uint8, Block: 16}, {Format: spec.NVFP4}, {Format: spec.NF4, Target: spec.ORT}, {Block: 32, Style: spec.NBits}, {Block: 16, Style: spec.QDQ},
		} {
			t.Run(fmt.Sprintf("%s/%s%s", kind.Name, opts.Format, opts.Style), func(t *testing.T) {
				folder := t.TempDir()
				in, q, back := modeltest.Build(t, kind.Name), filepath.Join(folder, "q.onnx"), filepath.Join(folder, "back.onnx")
				opts.Ops, opts.NoVerify = []string{"all"}, true
				opts.AllowFallback = true
				if _, err := onnxq.Convert(context.Background(), in, q, opts); err != nil {
					t.Fatal(err)
				}
				r, err := restyle.Dequantize(context.Background(), q, back, restyle.Options{Memory: 1 << 20})
				if err != nil {
					t.Fatal(err)
				}
				before, quant, after := modeltest.Open(t, in), modeltest.Open(t, q), modeltest.Open(t, back)
				if left := recognize.Weights(after.Graph()); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
				for i, w := range recognize.Weights(quant.Graph()) {
					checkFolded(t, after, w, r.Weights[i])
				}
				if opts.Style == spec.NBits {
					if o := after.Graph().File.Proto.OpsetImport; len(o) != 1 {
						t.Errorf("imports: %v", o)
					}
					return // a Gemm does not come back
				}
				if got, want := operators(after), operators(before); kind.Name != "opset11" && !slices.Equal(got, want) {
					t.Errorf("operators %v, want %v", got, want)
				}
				if got, want := len(after.Graph().Values), len(before.Graph().Values); kind.Name != "opset11" && got != want {
					t.Errorf("%d tensors, want %d", got, want)
				}
			})
		}
	}
}

func checkFolded(t *testing.T, m *onnxq.Model, w *recognize.Weight, r restyle.Weight) {
	t.Helper()
	for _, v := range m.Graph().Values {
		if v.Name != r.Became {
			continue
		}
		if got := dtype.DType(v.Tensor.GetDataType()).String(); got != w.DType {
			t.Errorf("%s: type %s, want %s", v.Name, got, w.DType)
		}
		got := make([]float32, w.Elements())
		p, err := m.Graph().File.Payload(v.Tensor)
		if err != nil {
			t.Fatal(err)
		}
		if err := lazy.Stored(dtype.DType(v.Tensor.GetDataType()), v.Tensor.GetDims(), p).ReadAll(&lazy.Arena{}, got, 0); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, matrix(t, w)) {
			t.Errorf("%s: other values", v.Name)
		}
		return
	}
	t.Errorf("no tensor %s", r.Became)
}

// Restyled there and back, weights stand for the same values.
func TestRestyleThereAndBack(t *testing.T) {
	for _, kind := range testmodels.Kinds() {
		for _, opts := range []onnxq.Options{
			{Block: 32}, {Block: 16, ZeroPoint: true}, {Bits: 8, Block: 32}, {Bits: 8, Block: 16, ZeroPoint: true},
			{Bits: 2, Block: 16}, {Bits: 2, Block: 16, ZeroPoint: true}, {Block: spec.PerChannel}, {Bits: 8, Block: spec.PerChannel, ZeroPoint: true},
		} {
			t.Run(fmt.Sprintf("%s/%d bits/block %d/%v", kind.Name, opts.Bits, opts.Block, opts.ZeroPoint), func(t *testing.T) {
				opts.Ops, opts.NoVerify = []string{"MatMul", "Gemm", "Gather"}, true
				checkThereAndBack(t, kind.Name, opts)
			})
		}
	}
}

func checkThereAndBack(t *testing.T, kind string, opts onnxq.Options) {
	folder := t.TempDir()
	path := func(name string) string { return filepath.Join(folder, name) }
	opts.AllowFallback = true
	if _, err := onnxq.Convert(context.Background(), modeltest.Build(t, kind), path("dq"), opts); err != nil {
		t.Fatal(err)
	}
	opts.Style = spec.NBits
	opts.AllowFallback = true
	if _, err := onnxq.Convert(context.Background(), modeltest.Build(t, kind), path("converted"), opts); err != nil {
		t.Fatal(err)
	}
	there, err := restyle.Restyle(context.Background(), path("dq"), path("nbits"), spec.NBits, restyle.Options{Memory: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	back, err := restyle.Restyle(context.Background(), path("nbits"), path("back"), spec.DQ, restyle.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	dq, nbits, again := modeltest.Open(t, path("dq")), modeltest.Open(t, path("nbits")), modeltest.Open(t, path("back"))
	if got, want := operators(nbits), operators(modeltest.Open(t, path("converted"))); !slices.Equal(got, want) {
		t.Errorf("operators %v, a conversion has %v", got, want)
	}
	first, second, third := recognize.Weights(dq.Graph()), recognize.Weights(nbits.Graph()), recognize.Weights(again.Graph())
	if len(first) != len(second) || len(first) != len(third) || len(there.Weights) != len(first) || len(back.Weights) != len(first) {
		t.Fatalf("%d, then %d, then %d weights", len(first), len(second), len(third))
	}
	values := func(m *onnxq.Model, list []*recognize.Weight) map[string]int {
		all := map[string]int{}
		for _, w := range list {
			x := matrix(t, w)
			y := make([]float32, len(x))
			rows := int64(len(x)) / w.Shape[len(w.Shape)-1]
			if w.Transposed {
				rows = w.Shape[1]
			}
			packing.Transpose(y, x, int(rows), len(x)/max(int(rows), 1)) // [K, N] and [N, K] are one weight here
			key := min(fmt.Sprint(x), fmt.Sprint(y))
			all[key]++
		}
		return all
	}
	want := values(dq, first)
	for i, list := range []map[string]int{values(nbits, second), values(again, third)} {
		if fmt.Sprint(list) != fmt.Sprint(want) {
			t.Errorf("values differ after step %d", i+1)
		}
	}
}
