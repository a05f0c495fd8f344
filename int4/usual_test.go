package int4

import (
	"math"
	"math/rand/v2"
	"testing"

	"onnxquant/internal/kernels"
)

// Usual blocks are many, and have the scales and zero points of all others.
func TestUsualBlocks(t *testing.T) {
	for c := range codecs {
		r := rand.New(rand.NewPCG(3, 4))
		u := c.usual()
		count := 0
		check := func(lo, hi float32) {
			lo, hi = c.Type.Round(lo), c.Type.Round(hi)
			if !kernels.IsFinite(lo) || !kernels.IsFinite(hi) {
				return
			}
			if !c.ZeroPoint {
				lo = 0
			}
			s, z, ok := u.scale(lo, hi)
			var alone [1]float32
			if u.plain(alone[:], []float32{hi}) == 1 && (!ok || alone[0] != s) {
				t.Fatalf("%v: %v alone has scale %v, want %v, %t", c, hi, alone[0], s, ok)
			}
			if !ok {
				return
			}
			count++
			if wantS, wantZ := c.scale(lo, hi); s != wantS || z != wantZ {
				t.Fatalf("%v: %v … %v has scale %v and zero point %d, want %v and %d", c, lo, hi, s, z, wantS, wantZ)
			}
		}
		for e := range uint32(255) { // ranges of every exponent
			for range 100 {
				hi := math.Float32frombits(e<<23 | r.Uint32()>>9)
				check(-hi*r.Float32(), hi)
				check(-hi, hi*r.Float32())
				check(-hi*float32(math.Exp2(-20*r.Float64())), hi)
				check(0, hi)
				check(-hi, 0)
			}
		}
		// Ties of zero points, and what is next to them.
		for i := range 1 << c.Bits {
			lo := -(float32(i) + 0.5) / 16
			hi := float32(int(1)<<c.Bits-1)/16 + lo
			check(math.Nextafter32(lo, 0), max(hi, 0))
			check(lo, max(hi, 0))
			check(math.Nextafter32(lo, -1000), max(hi, 0))
		}
		if count < 1000 {
			t.Errorf("%v: only %d usual blocks", c, count)
		}
	}
}

// Weights as models have them, and blocks of zeros, which are not usual.
func TestWhatIsUsual(t *testing.T) {
	for c := range codecs {
		u := c.usual()
		lo, hi := c.Type.Round(-0.02), c.Type.Round(0.05)
		if !c.ZeroPoint {
			lo = 0
		}
		if _, _, ok := u.scale(lo, hi); !ok {
			t.Errorf("%v: a range of %v … %v is not usual", c, lo, hi)
		}
		if _, _, ok := u.scale(0, 0); ok {
			t.Errorf("%v: zeros are usual", c)
		}
	}
}
