package quantize_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"

	"onnxquant/onnxq"
	"onnxquant/onnxq/spec"
	"onnxquant/testmodels"
)

// The search for the least error has less than rounding to nearest, and no algorithm's bytes
// depend on memory, threads or the order in which a weight is stored.
func TestAlgorithms(t *testing.T) {
	for _, opts := range []onnxq.Options{
		{Block: 32}, {Block: 33, ZeroPoint: true}, {Block: spec.PerChannel}, {Bits: 2, Block: 16, ZeroPoint: true}, {Block: 32, Style: spec.NBits}, {Bits: 8, ZeroPoint: true},
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
			if opts.Algorithm == spec.KQuant && !opts.ZeroPoint {
				if err := opts.Check(); err == nil {
					t.Errorf("%+v: no error", opts)
				}
				continue
			}
			var first []byte
			for i, threads := range []int{1, 3} {
				opts.Threads, opts.Memory = threads, int64(1+i*64<<20)
				out := filepath.Join(t.TempDir(), "out.onnx")
				r, err := onnxq.Convert(context.Background(), in, out, opts)
				if err != nil {
					t.Fatalf("%+v: %v", opts, err)
				}
				sqErr[opts.Algorithm] = r.Tensors[0].MSE
				got, err := os.ReadFile(out)
				if err != nil {
					t.Fatal(err)
				}
				if first == nil {
					first = got
				}
				if !bytes.Equal(got, first) {
					t.Errorf("%+v: the bytes depend on memory and threads", opts)
				}
			}
		}
		if !(sqErr[spec.LeastAngle] < sqErr[spec.RTN]) {
			t.Errorf("%+v: mse has the error %v, rtn %v", opts, sqErr[spec.LeastAngle], sqErr[spec.RTN])
		}
	}
}
