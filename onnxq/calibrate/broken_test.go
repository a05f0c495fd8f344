package calibrate_test

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/onnxq/calibrate"
	"onnxquant/spec"
	"onnxquant/testmodels"
)

// overflowing are samples on which calibrated codes make an output that is no number, where the models
// are compared at the end, in turn: float, calibrated, mse.
type overflowing struct {
	*calibrate.Data
	everywhere bool     // else on the first sample alone
	outputs    []string // of the model
	checks     int      // runs of the comparison
}

func (o *overflowing) Run(ctx context.Context, parts []onnxq.Part, wanted func(sample int) bool, do func(sample int, values [][]onnxq.Value) error) error {
	first, calibrated := true, false
	if len(parts) == 1 && slices.Equal(parts[0].Values, o.outputs) { // the check runs the float model, then the calibrated one
		o.checks++
		calibrated = o.checks == 2
	}
	return o.Data.Run(ctx, parts, wanted, func(sample int, values [][]onnxq.Value) error {
		if calibrated && (first || o.everywhere) {
			values[0][0].Data[0] = float32(math.NaN())
		}
		first = false
		return do(sample, values)
	})
}

// All get the codes of mse where calibrated ones break an output.
func TestBrokenOutputs(t *testing.T) {
	folder := t.TempDir()
	in, samples := filepath.Join(folder, "in.onnx"), filepath.Join(folder, "x.npy")
	if err := testmodels.MLP(1, 64, 64, 64).Write(in); err != nil {
		t.Fatal(err)
	}
	if err := modeltest.WriteSamples(samples, 40, 64); err != nil {
		t.Fatal(err)
	}
	var outputs []string
	for _, y := range modeltest.Open(t, in).Graph().File.Proto.GetGraph().GetOutput() {
		outputs = append(outputs, y.GetName())
	}
	for _, everywhere := range []bool{false, true} {
		data := calibrate.New(in, calibrate.Options{Data: []string{samples}, Engine: "go"})
		if err := data.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		opts := onnxq.Options{Block: 32, Algorithm: spec.Best, Calibration: &overflowing{Data: data, everywhere: everywhere, outputs: outputs}}
		r, err := onnxq.Convert(t.Context(), in, filepath.Join(folder, "out.onnx"), opts)
		if err != nil {
			t.Fatal(err)
		}
		if !r.Calibration.Refused || math.IsInf(r.Calibration.Output, 0) {
			t.Errorf("everywhere %v: %+v", everywhere, r.Calibration)
		}
	}
}
