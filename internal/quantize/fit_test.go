package quantize_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"onnxquant/internal/form"
	"onnxquant/onnxq"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// mse has a smaller error than rounding to nearest. The bytes of an algorithm depend neither on
// memory and threads nor on the order in which a weight is stored.
func TestAlgorithms(t *testing.T) {
	for _, opts := range []onnxq.Options{
		{Block: 32}, {Block: 33, ZeroPoint: true}, {Block: spec.PerChannel}, {Bits: 2, Block: 16, ZeroPoint: true}, {Block: 32, Style: spec.NBits}, {Bits: 8, ZeroPoint: true},
		{Block: 32, Style: spec.NBits, ZeroPoint: true},
	} {
		in := filepath.Join(t.TempDir(), "in.onnx")
		m := testmodels.MLP(3, 3301, 2)
		if opts.ZeroPoint {
			m = testmodels.Gemm(3, 3301, 2, true)
		}
		if err := m.Write(in); err != nil {
			t.Fatal(err)
		}
		sqErr := map[spec.Algorithm]float64{}
		for _, opts.Algorithm = range spec.Algorithms() {
			if opts.Algorithm == spec.Best {
				continue // depends on memory: see TestBest
			}
			if opts.Algorithm.NeedsData() || opts.Algorithm.Traits().NeedsZeroPoint && !opts.ZeroPoint {
				if err := opts.Check(); err == nil {
					t.Errorf("%+v: no error", opts)
				}
				continue
			}
			sqErr[opts.Algorithm] = convertAnyhow(t, in, opts)
		}
		if !(sqErr[spec.MSE] < sqErr[spec.RTN]) {
			t.Errorf("%+v: mse has the error %v, rtn %v", opts, sqErr[spec.MSE], sqErr[spec.RTN])
		}
	}
}

// In non-integer formats too, the search has a smaller error than the plain rule.
func TestSearchOfOthers(t *testing.T) {
	in := filepath.Join(t.TempDir(), "in.onnx")
	if err := testmodels.MLP(3, 3301, 2).Write(in); err != nil {
		t.Fatal(err)
	}
	for _, opts := range []onnxq.Options{
		{Format: spec.NF4}, {Format: spec.FP4, Block: 32, Target: spec.ORT}, {Format: spec.NVFP4}, {Format: spec.MXFP4}, {Format: spec.FP8E4M3, Block: spec.PerChannel}, {Format: "q4_0"}, {Format: "q4_k"},
	} {
		plain := convertAnyhow(t, in, opts)
		opts.Algorithm = spec.MSE
		if searched := convertAnyhow(t, in, opts); !(searched < plain) {
			t.Errorf("%+v: error %v, by the plain rule %v", opts, searched, plain)
		}
	}
}

// learned returns a model of two layers. The second has weights [300, 24] that are sums of a few
// vectors, as training produces. Optionally they are stored transposed.
func learned(transposed bool) *testmodels.Model {
	const k, n = 300, 24
	m := testmodels.MLP(70, 8, k, n)
	g := m.Proto.Graph
	var w []byte
	at := func(i, j float64) {
		v := 0.1*math.Sin(i*i+7*j) + math.Sin(i/5)*math.Cos(3*j) + math.Cos(i/9)*math.Sin(j*j)
		w = binary.LittleEndian.AppendUint32(w, math.Float32bits(float32(v)))
	}
	for a := range k * n {
		if transposed {
			at(float64(a%k), float64(a/k))
		} else {
			at(float64(a/n), float64(a%n))
		}
	}
	for _, t := range g.Initializer {
		if t.GetName() != "w1" {
			continue
		}
		if t.RawData = w; transposed {
			t.Dims = []int64{n, k}
		}
	}
	for _, node := range g.Node {
		if transposed && slices.Contains(node.Input, "w1") {
			node.OpType = new("Gemm")
			node.Attribute = append(node.Attribute, form.IntAttr("transB", 1))
		}
	}
	return m
}

// The bytes of algorithm best do not depend on the number of threads. A weight and its transpose
// give the same numbers. With too little memory, best falls back to mse and a note says so.
func TestBest(t *testing.T) {
	for _, opts := range []onnxq.Options{{Block: 32}, {Block: 16, Bits: 2, ZeroPoint: true}, {Block: spec.PerChannel}, {Block: 32, Style: spec.NBits, ZeroPoint: true}, {Format: spec.NF4}, {Format: spec.NVFP4}, {Format: spec.MXFP4}} {
		for _, m := range []*testmodels.Model{learned(false), learned(true)} {
			in := filepath.Join(t.TempDir(), "in.onnx")
			if err := m.Write(in); err != nil {
				t.Fatal(err)
			}
			convert := func(algorithm spec.Algorithm, threads int, memory int64) (string, []byte) {
				t.Helper()
				opts.Algorithm, opts.Threads, opts.Memory = algorithm, threads, memory
				out := filepath.Join(t.TempDir(), "out.onnx")
				opts.AllowFallback = true
				r, err := onnxq.Convert(context.Background(), in, out, opts)
				if err != nil {
					t.Fatalf("%+v: %v", opts, err)
				}
				data, err := os.ReadFile(out)
				if err != nil {
					t.Fatal(err)
				}
				return r.Tensors[1].Note, data
			}
			_, best := convert(spec.Best, 1, 1<<20)
			if _, again := convert(spec.Best, 5, 64<<20); !bytes.Equal(best, again) {
				t.Errorf("%+v: the bytes depend on memory and threads", opts)
			}
			_, mse := convert(spec.MSE, 1, 1<<20)
			if bytes.Equal(best, mse) {
				t.Errorf("%+v: best is mse", opts)
			}
			note, small := convert(spec.Best, 1, 100)
			if !bytes.Equal(small, mse) || note == "" {
				t.Errorf("%+v: in 100 bytes not as mse, or no note: %q", opts, note)
			}
		}
	}
}

// Weights whose squares underflow get the codes of mse.
func TestBestOfSmallWeights(t *testing.T) {
	m := learned(false)
	for _, w := range m.Proto.Graph.Initializer {
		for i := 0; i < len(w.RawData); i += 4 {
			v := math.Float32frombits(binary.LittleEndian.Uint32(w.RawData[i:]))
			binary.LittleEndian.PutUint32(w.RawData[i:], math.Float32bits(v*1e-21))
		}
	}
	in := filepath.Join(t.TempDir(), "in.onnx")
	if err := m.Write(in); err != nil {
		t.Fatal(err)
	}
	best := convertAnyhow(t, in, onnxq.Options{Block: 32, Algorithm: spec.Best})
	if mse := convertAnyhow(t, in, onnxq.Options{Block: 32, Algorithm: spec.MSE}); best != mse {
		t.Errorf("best has the error %v, mse %v", best, mse)
	}
}
