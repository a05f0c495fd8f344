package quantize_test

import (
	"path/filepath"
	"testing"

	"onnxquant/onnxq"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// A searched range has a smaller error than min and max. The bytes do not depend on memory and
// threads.
func TestRanges(t *testing.T) {
	for _, opts := range []onnxq.Options{
		{Block: 32}, {Block: 32, ZeroPoint: true}, {Block: spec.PerChannel}, {Block: spec.PerChannel, ZeroPoint: true}, {Bits: 2, Block: 33}, {Block: 32, Style: spec.NBits},
	} {
		in := filepath.Join(t.TempDir(), "in.onnx")
		m := testmodels.MLP(3, 33001, 2) // more elements along K than the least chunk
		if opts.ZeroPoint {
			m = testmodels.Gemm(3, 33001, 2, true)
		}
		if err := m.Write(in); err != nil {
			t.Fatal(err)
		}
		sqErr := map[string]float64{}
		for _, method := range []string{"minmax", "mse", "percentile:99.9", "percentile:95"} {
			var err error
			if opts.Range, err = spec.ParseRange(method); err != nil {
				t.Fatal(err)
			}
			sqErr[method] = convertAnyhow(t, in, opts)
		}
		if sqErr["mse"] >= sqErr["minmax"] {
			t.Errorf("%+v: mse has the error %v, minmax %v", opts, sqErr["mse"], sqErr["minmax"])
		}
		if sqErr["percentile:95"] == sqErr["minmax"] || opts.Block == spec.PerChannel && sqErr["percentile:99.9"] == sqErr["minmax"] {
			t.Errorf("%+v: percentiles make no difference: %v", opts, sqErr)
		}
	}
}
