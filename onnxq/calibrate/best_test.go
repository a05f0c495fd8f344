package calibrate_test

import (
	"errors"
	"path/filepath"
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// On the held-out rows of a layer, best is never worse than gptq: columns take the better codes of the two. With
// one row held out, gptq is better by chance for some.
func TestBestIsNotWorseThanGPTQ(t *testing.T) {
	folder := t.TempDir()
	in, samples := filepath.Join(folder, "in.onnx"), filepath.Join(folder, "x.npy")
	var simpler int64
	for seed := range uint64(6) {
		if err := errors.Join(testmodels.MLP(seed, 64, 256).Write(in), modeltest.WriteSamples(samples, 10, 64)); err != nil {
			t.Fatal(err)
		}
		convert := func(a spec.Algorithm) *onnxq.Calibrated {
			data := calibrate.New(in, calibrate.Options{Data: []string{samples}, Engine: "go"})
			if err := data.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			r, err := onnxq.Convert(t.Context(), in, filepath.Join(folder, "out.onnx"), onnxq.Options{Block: 32, Algorithm: a, Calibration: data})
			if err != nil {
				t.Fatal(err)
			}
			return r.Calibration
		}
		best, gptq := convert(spec.Best), convert(spec.GPTQ)
		if best.Error > gptq.Error || gptq.Columns != 0 || best.Columns != 256 {
			t.Errorf("seed %d: errors %v with best, %v with gptq; %d columns", seed, best.Error, gptq.Error, best.Columns)
		}
		simpler += best.GPTQ
	}
	if simpler == 0 {
		t.Error("no column has the codes of gptq")
	}
}
