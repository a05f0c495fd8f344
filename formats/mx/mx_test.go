package mx

import (
	"math"
	"math/rand/v2"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
)

var (
	inf = float32(math.Inf(1))
	nan = float32(math.NaN())
)

func TestE8M0Codes(t *testing.T) {
	for code := range 255 {
		x := DecodeE8M0(byte(code))
		if want := math.Ldexp(1, code-127); float64(x) != want {
			t.Errorf("code %d is %v, want %v", code, x, want)
		}
		if got := ScaleByte(x); got != byte(code) {
			t.Errorf("the scale %v has code %d, want %d", x, got, code)
		}
		for _, r := range []Rounding{Up, Down, Nearest} {
			if got := EncodeE8M0(x, r, false); code > 0 && got != byte(code) {
				t.Errorf("%v has code %d, want %d", x, got, code)
			}
		}
	}
	if x := DecodeE8M0(NaN); x == x {
		t.Errorf("code 255 is %v", x)
	}
	if got := ScaleByte(nan); got != NaN {
		t.Errorf("the scale NaN has code %d", got)
	}
}

func TestEncodeE8M0(t *testing.T) {
	for _, c := range []struct {
		x                 float32
		up, down, nearest byte // saturating
	}{
		{1, 127, 127, 127}, {1.25, 128, 127, 127}, {1.5, 128, 127, 128}, {-1.75, 128, 127, 128},
		{0, 0, 0, 0}, {nan, 255, 255, 255}, {inf, 255, 255, 255}, {-inf, 255, 255, 255},
		{math.MaxFloat32, 254, 254, 254}, {0x1p127, 254, 254, 254},
		{0x1p-126, 1, 1, 1}, {0x1p-127, 1, 0, 0}, {0x1.8p-127, 1, 0, 1}, {math.SmallestNonzeroFloat32, 1, 0, 0},
	} {
		for r, want := range []byte{c.up, c.down, c.nearest} {
			if got := EncodeE8M0(c.x, Rounding(r), true); got != want {
				t.Errorf("%v, rounding %d: code %d, want %d", c.x, r, got, want)
			}
		}
	}
	for r, want := range []byte{NaN, 254, NaN} {
		if got := EncodeE8M0(math.MaxFloat32, Rounding(r), false); got != want {
			t.Errorf("the largest float32, rounding %d, not saturating: code %d, want %d", r, got, want)
		}
	}
}

func TestE2M1(t *testing.T) {
	for code := range byte(16) {
		if got := EncodeE2M1(DecodeE2M1(code)); got != code {
			t.Errorf("code %d became %d", code, got)
		}
	}
	for _, c := range []struct {
		x    float32
		want byte
	}{{0.25, 0}, {-0.25, 8}, {0.75, 2}, {2.5, 4}, {5, 6}, {5.0001, 7}, {-inf, 15}, {nan, 8}, {-nan, 0}} {
		if got := EncodeE2M1(c.x); got != c.want {
			t.Errorf("%v has code %d, want %d", c.x, got, c.want)
		}
	}
}

// The rules by their words, for every exponent and magnitudes near powers of two.
func TestScales(t *testing.T) {
	largest := map[Format]float64{MXFP4: 6, MXFP8E4M3: 448, MXFP8E5M2: 57344}
	emax := map[Format]int{MXFP4: 2, MXFP8E4M3: 8, MXFP8E5M2: 15}
	for _, format := range []Format{MXFP4, MXFP8E4M3, MXFP8E5M2} {
		for _, rule := range []Rule{Default, OCP, Reference} {
			c := Codec{Format: format, Rule: rule}
			for e := -126; e < 127; e++ {
				for _, m := range []float64{1, 1.01, 1.24, 1.49, 1.51, 1.74, 1.76, 1.99} {
					amax := float32(math.Ldexp(m, e))
					want := e - emax[format]
					if rule == Reference || rule == Default && format != MXFP4 {
						// The least exponent by which amax is within reach.
						for want = -127; float64(amax) > math.Ldexp(largest[format], want); {
							want++
						}
					}
					s := []float32{amax}
					if !c.Scales(s, nil, nil, s) || float64(s[0]) != math.Ldexp(1, max(want, -127)) {
						t.Fatalf("%s, rule %d: magnitude %v has the scale %v, want 2^%d", format, rule, amax, s[0], want)
					}
				}
			}
			for _, amax := range []float32{0, math.SmallestNonzeroFloat32} {
				s := []float32{amax}
				if c.Scales(s, nil, nil, s); s[0] != 0x1p-127 {
					t.Errorf("%s, rule %d: magnitude %v has the scale %v, want 2^-127", format, rule, amax, s[0])
				}
			}
		}
	}
}

// A quotient hardly above a power of two counts as it.
func TestReferenceRoundsLogarithm(t *testing.T) {
	c := Codec{Format: MXFP8E4M3}
	s := []float32{math.Nextafter32(448*0x1p20, inf)}
	if c.Scales(s, nil, nil, s); s[0] != 0x1p20 {
		t.Errorf("scale %v, want 2^20", s[0])
	}
}

// Even the largest weights stand for numbers.
func TestHugeIsFinite(t *testing.T) {
	for _, format := range []Format{MXFP4, MXFP8E4M3, MXFP8E5M2} {
		for _, rule := range []Rule{OCP, Reference} {
			for typ, largest := range map[dtype.DType]float32{
				dtype.Float32: math.MaxFloat32, dtype.Float16: 65504, dtype.BFloat16: 0x1.fep127,
			} {
				c := Codec{Format: format, Rule: rule, Type: typ}
				for _, v := range []float32{largest, c.Type.Round(largest * 0.99), c.Type.Round(largest * 0.97), largest / 2} {
					x, scale, q := []float32{v, -v, v / 4}, []float32{v}, make([]byte, 3)
					c.Scales(scale, nil, nil, scale)
					c.EncodeBlocks(q, x, scale, nil, 3, 3)
					y := make([]float32, 3)
					c.DecodeBlocks(y, q, scale, nil, 3, 3)
					for i := range y {
						if !kernels.IsFinite(y[i]) || math.Abs(float64(y[i]-x[i])) > 0.34*float64(v) {
							t.Errorf("%s, rule %d, %s: %v became %v", format, rule, typ, x, y)
						}
					}
				}
			}
		}
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []Codec{
		{Format: 3}, {Rule: 3}, {Type: dtype.Float64}, {Format: MXFP8E4M3, Type: dtype.Uint8},
	} {
		if c.Validate() == nil {
			t.Errorf("%+v: no error", c)
		}
	}
	for format := range formats {
		if err := (Codec{Format: Format(format)}).Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestUsualCeilLog2(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	usual := 0
	for i := range 200_000 {
		b := r.Uint32() >> 1
		if i%2 == 0 { // around where it begins to hold
			b = uint32(90+r.IntN(80))<<23 | uint32([]int{1 << 20, 1 << 5}[i/2%2]+r.IntN(64)-32)
		}
		for _, typ := range []dtype.DType{dtype.Float32, dtype.Float16, dtype.BFloat16} {
			q := typ.Round(math.Float32frombits(b))
			e, ok := Codec{Type: typ}.usualCeilLog2(q)
			if !ok {
				continue
			}
			usual++
			log := typ.Round(float32(math.Log2(float64(q))))
			if want := int(math.Ceil(float64(log))); e != want {
				t.Fatalf("ceil(log2(%v)) in %s is %d, want %d", q, typ, e, want)
			}
		}
	}
	if usual < 100_000 {
		t.Errorf("only %d numbers are usual", usual)
	}
}
