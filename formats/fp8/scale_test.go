package fp8

import (
	"math"
	"testing"

	"onnxquant/formats/dtype"
)

// The scale fits amax as well as its type allows, and no code overflows.
func TestScaleFor(t *testing.T) {
	for _, c := range []struct {
		dtype   dtype.DType
		largest float32
		steps   float64 // of relative size that a scale has at least
	}{{dtype.Float32, math.MaxFloat32, 0x1p24}, {dtype.Float16, 65504, 0x1p11}, {dtype.BFloat16, 0x1.fep127, 0x1p8}} {
		for _, top := range []float32{1, 6, 7, 240, 448, 57344} {
			for amax := c.largest; amax > 0; amax = c.dtype.Round(amax / 2.37) {
				s := scaleFor(c.dtype, amax, top)
				if s != c.dtype.Round(s) {
					t.Fatalf("%s: the scale %v of %v is not of that type", c.dtype, s, amax)
				}
				if y := c.dtype.Round(top * s); y <= 0 || math.IsInf(float64(y), 0) {
					t.Fatalf("%s: %v times the scale %v of %v is %v", c.dtype, top, s, amax, y)
				}
				exact, least := float64(amax)/float64(top), 0x1p-126
				if c.dtype == dtype.Float16 {
					least = 0x1p-14
				}
				off := (float64(s) - exact) / exact
				switch {
				case exact >= least && math.Abs(off) > 1/c.steps && amax < c.largest/2:
					t.Fatalf("%s: the scale of %v is %v, want %v", c.dtype, amax, s, exact)
				case exact < least && c.dtype == dtype.Float16 && (off < 0 || float64(s)-exact >= 0x1p-24):
					t.Fatalf("%s: the scale of %v is %v, want %v rounded up", c.dtype, amax, s, exact)
				case exact < least && c.dtype != dtype.Float16 && s != 0x1p-126:
					t.Fatalf("%s: the scale of %v is %v, want 2^-126", c.dtype, amax, s)
				}
			}
			if s := scaleFor(c.dtype, 0, top); s != 1 {
				t.Errorf("%s: the scale of 0 is %v", c.dtype, s)
			}
		}
	}
}
