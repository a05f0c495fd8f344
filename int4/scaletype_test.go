package int4_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/int4"
	"onnxquant/internal/blocks"
)

// smallScales are codecs whose scales have another type than the weights.
func smallScales() (all []int4.Codec) {
	for _, scale := range []dtype.DType{dtype.Float16, dtype.Int8, dtype.Uint8} {
		for _, c := range []int4.Codec{{Bits: 4, Signed: true}, {Bits: 4, ZeroPoint: true}, {Bits: 2, ZeroPoint: true}, {Bits: 8, Signed: true}} {
			c.Scale = scale
			if c.Stepped() {
				c = c.WithStep(0.9)
			}
			all = append(all, c)
		}
	}
	return all
}

// TestSmallScales checks that every way to find scales finds ones that can be stored, and codes that
// suit these: the nearest are not better. LeastAngle is not worse than Nearest.
func TestSmallScales(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range smallScales() {
		fitters := map[string]blocks.Fitter{"nearest": c.Nearest(), "least angle": c.LeastAngle(c.Scale == dtype.Uint8)}
		if c.ZeroPoint {
			fitters["k_quant"] = c.KQuant(32)
		}
		if c.ZeroPoint || c.Scale != dtype.Uint8 {
			fitters["signed extreme"] = c.SignedExtreme()
		}
		for name, f := range fitters {
			for range 50 {
				x := make([]float32, 32)
				size := math.Exp(r.NormFloat64())
				for i := range x {
					x[i] = float32(r.NormFloat64() * size)
				}
				q := make([]byte, len(x))
				scale, zero := f.Fit(q, x)
				if stored := c.RoundScale(scale); stored != scale {
					t.Fatalf("%v, %s: scale %v is not stored as it is, but as %v", c, name, scale, stored)
				}
				got := squared(c, q, x, scale, zero)
				again := make([]byte, len(x))
				if name == "least angle" {
					scale, zero = c.Nearest().Fit(again, x)
				} else {
					c.EncodeBlocks(again, x, []float32{scale}, []byte{zero}, len(x), len(x))
				}
				if want := squared(c, again, x, scale, zero); got > 1.001*want {
					t.Errorf("%v, %s: squared error %v, but %v with the nearest codes", c, name, got, want)
				}
			}
		}
	}
}

func squared(c int4.Codec, q []byte, x []float32, scale float32, zero byte) (sum float64) {
	y := make([]float32, len(x))
	c.DecodeBlocks(y, q, []float32{scale}, []byte{zero}, len(x), len(x))
	for i := range x {
		d := float64(x[i]) - float64(y[i])
		sum += d * d
	}
	return sum
}

func TestScaleSteps(t *testing.T) {
	for _, scale := range []dtype.DType{dtype.Int8, dtype.Uint8} {
		for _, largest := range []float32{1, 0.3, 1e-30, 0x1p-126, 0x1.fffffep127, 0} {
			c := int4.Codec{Bits: 4, Signed: true, Scale: scale}.WithStep(largest)
			most := float32(math.MaxUint8)
			if scale == dtype.Int8 {
				most = math.MaxInt8
			}
			if c.Step < 0x1p-126 || c.Step > 0x1p-126 && most*c.Step > largest {
				t.Errorf("%s: %v steps of %v are more than %v", scale, most, c.Step, largest)
			}
			for n := float32(1); n <= most; n++ {
				s := n * c.Step
				var steps [1]byte
				c.ScaleSteps(steps[:], []float32{s})
				if c.RoundScale(s) != s || steps[0] != byte(n) {
					t.Fatalf("%s, step %v: %v steps become %v, stored as %d", scale, c.Step, n, c.RoundScale(s), steps[0])
				}
			}
			if s := c.RoundScale(0); s != c.Step {
				t.Errorf("%s: scale 0 becomes %v, not one step of %v", scale, s, c.Step)
			}
		}
	}
	c := int4.Codec{Bits: 4, Signed: true, Scale: dtype.Int8}.WithStep(127)
	var steps [2]byte
	c.ScaleSteps(steps[:], []float32{-3, c.RoundScale(-1000)})
	if int8(steps[0]) != -3 || int8(steps[1]) != -127 {
		t.Errorf("negative scales are stored as %d", steps)
	}
}

func TestScaleTypes(t *testing.T) {
	for _, c := range []int4.Codec{
		{Bits: 4, Scale: dtype.BFloat16}, {Bits: 4, Scale: dtype.Int4}, {Bits: 4, Type: dtype.Float16, Scale: dtype.Uint8},
	} {
		if c.Validate() == nil {
			t.Errorf("%+v is valid", c)
		}
	}
	c := int4.Codec{Bits: 4, Signed: true, Scale: dtype.Float16}
	for s, want := range map[float32]float32{1e6: 65504, -1e6: -65504, 1e-12: 0x1p-24, 0.1: 0.099975586} {
		if got := c.RoundScale(s); got != want {
			t.Errorf("scale %v becomes %v, want %v", s, got, want)
		}
	}
}

// Float32 as the type of scales changes nothing, whatever the type of the weights.
func TestFloat32Scales(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, typ := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
		usual := int4.Codec{Bits: 4, ZeroPoint: true, Type: typ}
		named := usual
		named.Scale = dtype.Float32
		for name, fit := range map[string]func(int4.Codec) blocks.Fitter{
			"nearest":        int4.Codec.Nearest,
			"least angle":    func(c int4.Codec) blocks.Fitter { return c.LeastAngle(false) },
			"signed extreme": func(c int4.Codec) blocks.Fitter { return c.SignedExtreme() },
			"k_quant":        func(c int4.Codec) blocks.Fitter { return c.KQuant(32) },
		} {
			differ := 0
			for range 500 {
				x := make([]float32, 32)
				for i := range x {
					x[i] = typ.Round(float32(r.NormFloat64()))
				}
				q, want := make([]byte, len(x)), make([]byte, len(x))
				scale, zero := fit(named).Fit(q, x)
				wantScale, wantZero := fit(usual).Fit(want, x)
				if scale != wantScale || zero != wantZero || !bytes.Equal(q, want) {
					differ++
				}
			}
			if differ > 0 {
				t.Errorf("%s, %s: %d blocks differ", typ, name, differ)
			}
		}
	}
}
