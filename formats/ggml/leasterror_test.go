package ggml_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"onnxquant/formats/ggml"
)

// No block gets a larger error by the search than without it, most get a smaller one, and the
// bytes do not depend on the number of workers.
func TestLeastError(t *testing.T) {
	const columns, rows = 512, 12
	r := rand.New(rand.NewPCG(6, 7))
	x, importance := make([]float32, columns*rows), make([]float32, columns)
	for i := range x {
		x[i] = float32(0.1 * r.NormFloat64())
		switch i / columns {
		case 0:
			x[i] = 0
		case 1:
			x[i] = 0.25
		case 2:
			x[i] *= 0x1p-60
		case 3:
			x[i] *= 0x1p17 // few scales are in the range of float16
		case 4:
			x[i] *= 0x1p60 // none is
		case 5:
			x[i] *= x[i] * x[i]
		case 6:
			x[i] = max(x[i], 0)
		}
	}
	for i := range importance {
		importance[i] = float32(r.ExpFloat64())
	}
	clear(importance[100:140])
	for _, e := range ggml.All() {
		if e.Form == nil {
			continue
		}
		for _, p := range [][]float32{nil, importance} {
			before, after := encoded(t, e, x, columns, p, 1), encoded(t, e.LeastError(), x, columns, p, 1)
			if !bytes.Equal(after, encoded(t, e.LeastError(), x, columns, p, 3)) {
				t.Errorf("%s: bytes depend on the number of workers", e)
			}
			worse, better := 0, 0
			a, b := errorsOf(t, e, before, x, columns, p), errorsOf(t, e, after, x, columns, p)
			for i := range a {
				if b[i] > a[i] || a[i] == a[i] && b[i] != b[i] {
					worse++
				} else if b[i] < a[i] {
					better++
				}
			}
			if worse > 0 || better < len(a)/20 && e.Name != "TERNARY" { // which has no search
				t.Errorf("%s, importance %v: of %d blocks %d are worse, %d better", e, p != nil, len(a), worse, better)
			}
		}
	}
}

func encoded(t *testing.T, e *ggml.Encoding, x []float32, columns int, importance []float32, workers int) []byte {
	t.Helper()
	dst := make([]byte, len(x)/e.Elements*e.Bytes)
	if err := e.Quantize(dst, x, columns, importance, workers); err != nil {
		t.Fatal(err)
	}
	return dst
}

// errorsOf returns the weighted squared error of each block, NaN where it does not represent numbers.
func errorsOf(t *testing.T, e *ggml.Encoding, src []byte, x []float32, columns int, importance []float32) []float64 {
	t.Helper()
	y := make([]float32, len(x))
	if err := e.Dequantize(y, src, columns, 1); err != nil {
		t.Fatal(err)
	}
	sums := make([]float64, len(x)/e.Elements)
	for i, v := range x {
		d, w := float64(v)-float64(y[i]), 1.0
		if importance != nil {
			w = float64(importance[i%columns])
		}
		if e == ggml.Q2_K {
			w *= math.Abs(float64(v))
		}
		if math.IsInf(d, 0) {
			d = math.NaN()
		}
		sums[i/e.Elements] += w * d * d
	}
	return sums
}
