package synth

import (
	"math"
	"math/cmplx"
	"math/rand/v2"
	"testing"

	"onnxquant/formats/dtype"
)

// A spectrum has the magnitudes of the Fourier transform of the voice, by definition.
func TestSpectra(t *testing.T) {
	const rows, bins = 3, 129
	const n, hop = 2 * (bins - 1), (bins - 1) / 2
	in := &input{subject: &subject{kind: spectrum, typ: dtype.Float32}, dims: []int64{1, rows, bins}}
	got := in.spectra(rand.New(rand.NewPCG(1, 2)), 7, 0)
	if len(got) != rows*bins {
		t.Fatalf("%d values, want %d", len(got), rows*bins)
	}
	sound := speech{7}.wave(rand.New(rand.NewPCG(1, 2)), lead, rows*hop+n)
	for i, v := range got {
		row, b := i/bins, i%bins
		sum := complex128(0)
		for k, x := range sound[row*hop : row*hop+n] {
			sum += complex(x, 0) * cmplx.Rect(1, -2*math.Pi*float64(b*k)/n)
		}
		if want := cmplx.Abs(sum); math.Abs(v-want) > 1e-9 {
			t.Fatalf("row %d, bin %d: %g, want %g", row, b, v, want)
		}
	}
}
