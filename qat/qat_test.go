package qat

import (
	"encoding/json"
	"math"
	"os"
	"testing"

	"onnxquant/calib"
)

type goldenCase struct {
	Name         string
	Channels     int
	Scale        []float32
	Zero         []int32
	Lo, Hi       int32
	X, Y, DY, DX []float32
}

// PyTorch's values and gradients, bit for bit; but where x/s and x·(1/s), which PyTorch
// takes, round to different integers, they are those of that product.
func TestGoldenTorch(t *testing.T) {
	raw, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var golden struct{ Cases []goldenCase }
	if err := json.Unmarshal(raw, &golden); err != nil {
		t.Fatal(err)
	}
	if len(golden.Cases) != 18 {
		t.Fatalf("%d cases", len(golden.Cases))
	}
	compared, apart := 0, 0
	for _, c := range golden.Cases {
		f := FakeQuantizer{Bits: 8, Gradient: Clamped}
		if c.Channels > 1 {
			f.Granularity, f.Channels = calib.PerChannel, c.Channels
		}
		var params []calib.Params
		for i, s := range c.Scale {
			params = append(params, calib.Params{Scale: s, ZeroPoint: c.Zero[i], Lo: c.Lo, Hi: c.Hi})
		}
		if err := f.SetParams(len(c.X), params...); err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		y, dx := make([]float32, len(c.X)), make([]float32, len(c.X))
		if err := f.Forward(y, c.X); err != nil {
			t.Fatal(err)
		}
		if err := f.Backward(dx, c.DY, c.X); err != nil {
			t.Fatal(err)
		}
		for i, x := range c.X {
			p := params[i/(len(c.X)/c.Channels)]
			quotient := math.RoundToEven(float64(x / p.Scale))
			product := math.RoundToEven(float64(x * (1 / p.Scale)))
			wantY, wantDX := c.Y[i], c.DX[i]
			if quotient != product {
				apart++
				// What PyTorch has must be the product's code, what we have the quotient's.
				code := func(q float64) (y, dx float32) {
					q += float64(p.ZeroPoint)
					if q >= float64(p.Lo) && q <= float64(p.Hi) {
						dx = c.DY[i]
					}
					return p.Dequantize(int32(min(max(q, float64(p.Lo)), float64(p.Hi)))), dx
				}
				if y, dx := code(product); y != wantY || dx != wantDX {
					t.Errorf("%s: %v: PyTorch has %v and %v, the product %v and %v", c.Name, x, wantY, wantDX, y, dx)
				}
				wantY, wantDX = code(quotient)
			}
			compared++
			if y[i] != wantY || dx[i] != wantDX {
				t.Errorf("%s: %v became %v, gradient %v; want %v and %v", c.Name, x, y[i], dx[i], wantY, wantDX)
			}
		}
	}
	if apart > compared/20 {
		t.Errorf("quotient and product differ for %d of %d values", apart, compared)
	}
	t.Logf("%d values, the reciprocal makes a difference for %d", compared, apart)
}

func TestSelfCalibration(t *testing.T) {
	f := FakeQuantizer{Bits: 4, Symmetric: true}
	if err := f.Backward(nil, nil, nil); err == nil {
		t.Error("not calibrated: no error")
	}
	y := make([]float32, 3)
	if err := f.Forward(y, []float32{-14, 3, 7}); err != nil {
		t.Fatal(err)
	}
	if y[0] != -14 || y[1] != 4 || y[2] != 8 { // 3/2 and 7/2 are ties
		t.Errorf("%v", y)
	}
	if p := f.Params(); len(p) != 1 || p[0].Scale != 2 || p[0].Lo != -7 {
		t.Errorf("%+v", p)
	}
	// It stays calibrated.
	if err := f.Forward(y[:2], []float32{100, 2}); err != nil || y[0] != 14 || y[1] != 2 {
		t.Errorf("%v, %v", y, err)
	}
	if err := (&FakeQuantizer{Bits: 4}).Forward(y, []float32{float32(math.NaN())}); err == nil {
		t.Error("NaN: no error")
	}
}

func TestGranularity(t *testing.T) {
	x := []float32{1, 0.5, 100, 50, 7, 3}
	for _, test := range []struct {
		f    FakeQuantizer
		want []float32 // largest of each range
	}{
		{FakeQuantizer{Bits: 8, Symmetric: true}, []float32{100}},
		{FakeQuantizer{Bits: 8, Symmetric: true, Granularity: calib.PerChannel, Channels: 3}, []float32{1, 100, 7}},
		{FakeQuantizer{Bits: 8, Symmetric: true, Granularity: calib.PerGroup, Group: 4}, []float32{100, 7}},
	} {
		y := make([]float32, len(x))
		if err := test.f.Forward(y, x); err != nil {
			t.Fatal(err)
		}
		p := test.f.Params()
		if len(p) != len(test.want) {
			t.Fatalf("%d scales, want %d", len(p), len(test.want))
		}
		for i, want := range test.want {
			if p[i].Scale != want/127 {
				t.Errorf("scale %v, want %v", p[i].Scale, want/127)
			}
		}
		if test.f.Granularity != "" {
			if err := test.f.Forward(y, x[:3]); err == nil {
				t.Error("fewer values: no error")
			}
		}
	}
}

func TestGradients(t *testing.T) {
	x, dy := []float32{-1000, 0, 1000, float32(math.NaN())}, []float32{1, 2, 3, 4}
	for gradient, want := range map[Gradient][]float32{"": {1, 2, 3, 4}, StraightThrough: {1, 2, 3, 4}, Clamped: {0, 2, 0, 0}} {
		f := FakeQuantizer{Bits: 8, Gradient: gradient}
		if err := f.Calibrate([]float32{-1, 1}); err != nil {
			t.Fatal(err)
		}
		dx := make([]float32, 4)
		if err := f.Backward(dx, dy, x); err != nil {
			t.Fatal(err)
		}
		for i := range dx {
			if dx[i] != want[i] {
				t.Errorf("%q: %v, want %v", gradient, dx, want)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	x := make([]float32, 4)
	for _, f := range []FakeQuantizer{
		{}, {Bits: 17}, {Bits: 4, Granularity: "row"}, {Bits: 4, Granularity: calib.PerChannel, Channels: 3}, {Bits: 4, Granularity: calib.PerGroup}, {Bits: 4, Gradient: "none"},
	} {
		if err := f.Forward(x, x); err == nil {
			t.Errorf("%+v: no error", f)
		}
	}
	f := FakeQuantizer{Bits: 4}
	if f.Forward(x[:3], x) == nil || f.SetParams(4) == nil || f.SetParams(4, calib.Params{}) == nil || f.Calibrate(nil) == nil {
		t.Error("no error")
	}
}
