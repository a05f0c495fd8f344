package onnxq_test

import (
	"math"
	"path/filepath"
	"strings"
	"testing"

	"onnxquant/internal/testing/modeltest"
	"onnxquant/onnxq"
	"onnxquant/spec"
)

// A weight whose scales do not fit the requested type gets another type, and a note names it.
func TestScalesThatDoNotFit(t *testing.T) {
	for _, c := range []struct {
		what       string
		rows, cols int64
		size       func(column int) float64
		asked      spec.ScaleType
		note       string
	}{
		{"small", 640, 50, func(int) float64 { return 1e-30 }, spec.ScaleFloat16, "scales of type float32, not float16: the largest is"},
		{"large", 640, 50, func(int) float64 { return 1e30 }, spec.ScaleFloat16, "scales of type float32, not float16: the largest is"},
		{"different", 640, 50, func(column int) float64 { return math.Pow(10, float64(column%5)) }, spec.ScaleInt8, "scales of type float16, not int8"},
		{"different and few", 64, 50, func(column int) float64 { return math.Pow(10, float64(column%5)) }, spec.ScaleInt8, "scales of type float32, not int8"},
		{"usual", 640, 50, func(int) float64 { return 1 }, spec.ScaleInt8, ""},
	} {
		w := modeltest.Floats("w", c.rows, c.cols)
		for i := range w.FloatData {
			w.FloatData[i] = float32(math.Sin(float64(i*i)) * c.size(i%int(c.cols)))
		}
		in := modeltest.Write(t, modeltest.Model(modeltest.Tensors{w}, modeltest.Nodes{modeltest.Node("MatMul", "y", "x w")}))
		r, err := onnxq.Convert(t.Context(), in, filepath.Join(t.TempDir(), "out.onnx"), onnxq.Options{Block: 32, ScaleType: c.asked})
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range r.Tensors {
			if w.Decision != onnxq.Quantize || !strings.HasPrefix(w.Note, c.note) || c.note == "" && w.Note != "" {
				t.Errorf("%s: %s, reason %q, note %q, want %q", c.what, w.Decision, w.Reason, w.Note, c.note)
			}
		}
	}
}
