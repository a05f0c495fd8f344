package calibrate_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// Codes that operators compute with are rounded to nearest, whatever the algorithm, and say so.
func TestDynamicIsNotCalibrated(t *testing.T) {
	folder := t.TempDir()
	in, samples := filepath.Join(folder, "in.onnx"), filepath.Join(folder, "x.npy")
	if err := errors.Join(testmodels.MLP(1, 64, 64).Write(in), modeltest.WriteSamples(samples, 40, 64)); err != nil {
		t.Fatal(err)
	}
	for _, a := range []spec.Algorithm{spec.MSE, spec.GPTQ, spec.Best} {
		o := onnxq.Options{Activations: spec.Dynamic, Block: spec.PerChannel, Algorithm: a, AllowFallback: true}
		if a != spec.MSE {
			data := calibrate.New(in, calibrate.Options{Data: []string{samples}, Engine: "go"})
			if err := data.Open(t.Context()); err != nil {
				t.Fatal(err)
			}
			o.Calibration = data
		}
		r, err := onnxq.Convert(t.Context(), in, filepath.Join(folder, "out.onnx"), o)
		if err != nil {
			t.Fatalf("%s: %v", a, err)
		}
		for _, w := range r.Tensors {
			if w.Decision == onnxq.Quantize && !strings.HasPrefix(w.Note, "rounded to nearest: ") {
				t.Errorf("%s: note %q of %s", a, w.Note, w.Name)
			}
		}
	}
}
