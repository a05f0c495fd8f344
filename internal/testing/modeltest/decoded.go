package modeltest

import (
	"math"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
	"onnxquant/internal/lazy"
	"onnxquant/internal/recognize"
	"onnxquant/onnxq"
)

// Numbers are those of a tensor of a model, by its path.
func Numbers(t testing.TB, m *onnxq.Model, path string) *lazy.Tensor {
	t.Helper()
	x := m.Graph()
	for _, v := range x.Values {
		if v.Path == path {
			p, err := x.File.Payload(v.Tensor)
			if err != nil {
				t.Fatal(err)
			}
			return lazy.Stored(dtype.DType(v.Tensor.GetDataType()), v.Tensor.GetDims(), p)
		}
	}
	t.Fatalf("no tensor %s", path)
	return nil
}

// CheckErrors checks that a weight decodes to values whose errors are those in a report.
func CheckErrors(t testing.TB, float *lazy.Tensor, w *recognize.Weight, want onnxq.TensorReport) {
	t.Helper()
	a, n := &lazy.Arena{}, float.Size()
	before, after := make([]float32, n), make([]float32, n)
	if err := float.ReadAll(a, before, 0); err != nil {
		t.Fatal(err)
	}
	// In two steps that begin anywhere.
	if err := w.Read(after[:n/3], 0); err != nil {
		t.Fatal(err)
	}
	if err := w.Read(after[n/3:], n/3); err != nil {
		t.Fatal(err)
	}
	sqErr, _, maxAbs := kernels.Errors(before, after)
	if mse := sqErr / float64(n); maxAbs != want.MaxError || math.Abs(mse-want.MSE) > 1e-12*want.MSE {
		t.Errorf("%s: errors %g and %g, want %g and %g", w.Name, maxAbs, mse, want.MaxError, want.MSE)
	}
	if err := w.Read(after, 1); err == nil {
		t.Errorf("%s: read beyond its end", w.Name)
	}
}
