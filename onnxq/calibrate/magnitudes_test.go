package calibrate

import (
	"testing"

	"onnxquant/calib"
)

func TestTypical(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []float32
		min    float64
		max    float64
		want   float64 // 0: none
	}{
		{"even", []float32{1, 2, 3, 4, 5, 6, 7, 8}, 0, 8, 3},
		{"outlier", []float32{-0.6, 0.5, 0.7, 0.9, 0.55, 1000}, -0.6, 1000, 0.75},
		{"masked", []float32{1, -2, 1.5, -1e9, -1e9, -1e9, -1e9}, -1e9, 1.5, 1.5},
		{"mask", []float32{0, -1e9, 0}, -1e9, 0, 0},
		{"zeros", []float32{0, 0}, 0, 0, 0},
		{"a range that cuts", []float32{0.25, 0.3, 0.26, 1000}, 0, 2, 0.375},
	} {
		var m magnitudes
		m.count(c.values)
		got, ok := m.typical(calib.Range{Min: c.min, Max: c.max})
		if got != c.want || ok != (c.want != 0) {
			t.Errorf("%s: %v, %v; want %v", c.name, got, ok, c.want)
		}
	}
}
