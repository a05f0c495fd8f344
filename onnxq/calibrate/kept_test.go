package calibrate_test

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/onnxq/restyle"
	"onnxquant/spec"
)

// skewed returns numbers in blocks of very different sizes, most of them with few large numbers.
func skewed(r *rand.Rand, n, block int) []float32 {
	x := make([]float32, n)
	for i := range x {
		if i%block == 0 || i == 0 {
			continue
		}
		x[i] = float32(r.NormFloat64() * 0.008)
	}
	for from := 0; from < n; from += block {
		size := math.Pow(10, -8*r.Float64())
		for i := from; i < min(from+block, n); i++ {
			switch r.IntN(3) {
			case 0:
				x[i] = 0
			case 1:
				x[i] *= float32(size)
			}
		}
		x[from+r.IntN(min(block, n-from))] = float32(size * 15 * (r.Float64() - 0.5))
	}
	return x
}

// No algorithm makes a block 0 that rounding to nearest does not make 0. With data and zero points, codes may
// clip to 0: then only the scale is looked at.
func TestNoBlockIsLost(t *testing.T) {
	const rows, columns = 64, 16
	folder := t.TempDir()
	samples := filepath.Join(folder, "x.npy")
	for seed := range uint64(2) {
		r := rand.New(rand.NewPCG(seed, 1))
		first, second := modeltest.Floats("v", rows, rows), modeltest.Floats("w", rows, columns)
		copy(first.FloatData, skewed(r, rows*rows, 16))
		copy(second.FloatData, skewed(r, rows*columns, 16))
		m := modeltest.Model(modeltest.Tensors{first, second}, modeltest.Nodes{
			modeltest.Node("MatMul", "h", "x v"), modeltest.Node("Relu", "a", "h"), modeltest.Node("MatMul", "y", "a w"),
		})
		m.Proto.Graph.Input = m.Proto.Graph.Input[:1]
		path := modeltest.Write(t, m)
		if err := modeltest.WriteSamples(samples, 96, rows); err != nil {
			t.Fatal(err)
		}
		for _, format := range []spec.Format{spec.Int2, spec.Uint2, spec.Int4, spec.Uint4, spec.Int8, spec.Uint8, spec.NVFP4, spec.MXFP4, spec.MXFP8, spec.FP8E4M3, spec.NF4, "q4_0", "q4_k", "q6_k"} {
			opts := onnxq.Options{Format: format, Target: spec.ORT, Style: spec.DQ, ZeroPoint: format.Traits().Family == spec.Integer && !format.Signed(), AllowFallback: true}
			if format.Traits().Block == 0 {
				opts.Block = 16
			}
			plain := lostBlocks(t, path, folder, opts)
			for _, a := range spec.Algorithms() {
				opts.Algorithm, opts.Calibration = a, nil
				if a == spec.RTN || opts.Check() != nil && !a.NeedsData() {
					continue
				}
				withData := []bool{false, true}
				for _, calibrated := range withData {
					if calibrated != a.NeedsData() && !(calibrated && a.Calibrated()) {
						continue
					}
					if opts.Calibration = nil; calibrated {
						d := calibrate.New(path, calibrate.Options{Data: []string{samples}, Engine: "go"})
						if err := d.Open(t.Context()); err != nil {
							t.Fatal(err)
						}
						opts.Calibration = d
					}
					if opts.Check() != nil {
						continue
					}
					for block, where := range lostBlocks(t, path, folder, opts) {
						if _, ok := plain[block]; !ok {
							t.Errorf("seed %d, %s, %s, data %v: %s", seed, format, a, calibrated, where)
						}
					}
				}
			}
		}
	}
}

// Codes by data may be farther from a small weight than 0 is: they make up for the errors of what is added to its
// product. Such a weight gets the codes of mse.
func TestSmallWeightBesideResidual(t *testing.T) {
	const n = 64
	r := rand.New(rand.NewPCG(1, 2))
	normal := func(n int, size float64) []float32 {
		x := make([]float32, n)
		for i := range x {
			x[i] = float32(size * r.NormFloat64())
		}
		return x
	}
	weights := modeltest.Tensors{modeltest.Floats("a", n, n), modeltest.Floats("w", n, n), modeltest.Floats("v", n, 32)}
	for i, size := range []float64{0.125, 0.0005, 0.1} {
		copy(weights[i].FloatData, normal(len(weights[i].FloatData), size))
	}
	m := modeltest.Model(weights, modeltest.Nodes{
		modeltest.Node("MatMul", "t", "x a"), modeltest.Node("Relu", "u", "t"), modeltest.Node("MatMul", "p", "u w"),
		modeltest.Node("Add", "q", "t p"), modeltest.Node("MatMul", "y", "q v"),
	})
	m.Proto.Graph.Input = m.Proto.Graph.Input[:1]
	path, folder := modeltest.Write(t, m), t.TempDir()
	if err := modeltest.WriteSamples(filepath.Join(folder, "x.npy"), 96, n); err != nil {
		t.Fatal(err)
	}
	data := calibrate.New(path, calibrate.Options{Data: []string{filepath.Join(folder, "x.npy")}, Engine: "go"})
	if err := data.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	made, err := onnxq.Convert(t.Context(), path, filepath.Join(folder, "out.onnx"), onnxq.Options{Bits: 2, Block: 16, Algorithm: spec.Best, Calibration: data})
	if err != nil {
		t.Fatal(err)
	}
	if len(made.Tensors) != 3 {
		t.Errorf("quantized %d weights, want 3; warnings %q", len(made.Tensors), made.Plan.Warnings)
	}
	for _, w := range made.Tensors {
		if w.Name == "w" && (w.SQNR < 6 || w.Note != "algorithm mse: the data would move it farther from its values than 0 is") {
			t.Errorf("SQNR of w %.1f dB, note %q", w.SQNR, w.Note)
		}
	}
}

// lostBlocks converts a model. It returns the blocks of its weights that became 0, and weights that stay in
// float.
func lostBlocks(t *testing.T, path, folder string, opts onnxq.Options) map[string]string {
	t.Helper()
	out, back := filepath.Join(folder, "out.onnx"), filepath.Join(folder, "back.onnx")
	made, err := onnxq.Convert(t.Context(), path, out, opts)
	if err != nil {
		t.Fatalf("%s, %s: %v", opts.Format, opts.Algorithm, err)
	}
	lost := map[string]string{}
	for _, w := range made.Plan.Tensors {
		if strings.Contains(w.Reason, "too small") {
			lost[w.Name] = w.Name + " stays in float: " + w.Reason
		}
	}
	if _, err := restyle.Dequantize(t.Context(), out, back, restyle.Options{}); err != nil {
		t.Fatal(err)
	}
	before, quantized, after := modeltest.Open(t, path), modeltest.Open(t, out), modeltest.Open(t, back)
	for _, name := range []string{"v", "w"} {
		a, b := floatsOf(t, before, name), floatsOf(t, after, name)
		n, block := len(a)/64, min(cmp.Or(opts.Format.Traits().Block, opts.Block), 64)
		var scales []float32
		if opts.ZeroPoint && lost[name] == "" {
			scales = floatsOf(t, quantized, name+"_scale")
		}
		for from := 0; from < 64; from += block {
			for j := range n {
				was, is := false, false
				for i := from; i < from+block; i++ {
					was, is = was || a[i*n+j] != 0, is || b[i*n+j] != 0
				}
				if scales != nil {
					is = scales[from/block*n+j] != 0 && (is || opts.Calibration != nil)
				}
				if was && !is {
					lost[fmt.Sprint(name, from, j)] = fmt.Sprintf("%s, rows from %d of column %d became 0", name, from, j)
				}
			}
		}
	}
	return lost
}

func floatsOf(t *testing.T, m *onnxq.Model, name string) []float32 {
	t.Helper()
	v, err := m.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	x, err := v.Floats()
	if err != nil {
		t.Fatal(err)
	}
	return x
}
