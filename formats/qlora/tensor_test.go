package qlora

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func gaussian(n int) []float32 {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64()) * 0.02
	}
	return x
}

// No element is farther off than half the widest gap between two values of its block.
func TestTensor(t *testing.T) {
	widest := map[Kind]float64{KindNF4: (1 - 0.6961928009986877) / 2, KindFP4: 4.0 / 12 / 2, KindLinear: 0.5}
	for _, n := range []int{0, 1, 63, 64, 65, 1000} {
		x := gaussian(n)
		for k, gap := range widest {
			q, err := Quantize(k, x)
			if err != nil {
				t.Fatal(err)
			}
			y := q.Decode()
			scales := q.Scales.Decode()
			if len(y) != n || len(scales) != (n+63)/64 || len(q.Codes) != (n+1)/2 {
				t.Fatalf("%s of %d: %d values, %d scales, %d bytes", k, n, len(y), len(scales), len(q.Codes))
			}
			for i := range x {
				if e := math.Abs(float64(x[i] - y[i])); e > gap*float64(scales[i/64])*(1+1e-5) {
					t.Errorf("%s of %d: %v became %v, scale %v", k, n, x[i], y[i], scales[i/64])
				}
			}
			if n%2 == 1 && q.Codes[n/2]&15 != 0 {
				t.Errorf("%s of %d: unused bits %x", k, n, q.Codes[n/2])
			}
		}
	}
}

// The crate's rule, by hand: high half first, ties away from 0, two's complement.
func TestLinear(t *testing.T) {
	q, err := Quantize(KindLinear, []float32{7, -7, 2.5, -2.5, 0.4, 0, -1})
	if err != nil {
		t.Fatal(err)
	}
	if want := []byte{0x79, 0x3d, 0x00, 0xf0}; !slices.Equal(q.Codes, want) || q.Scales.Decode()[0] != 1 {
		t.Errorf("% x, scale %v; want % x", q.Codes, q.Scales, want)
	}
	if got, want := q.Decode(), []float32{7, -7, 3, -3, 0, 0, -1}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	zeros, err := Quantize(KindLinear, make([]float32, 65))
	if err != nil || slices.Max(zeros.Decode()) != 0 {
		t.Errorf("zeros: %v", err)
	}
}

func TestCompression(t *testing.T) {
	q, err := Quantize(KindNF4, gaussian(64*512))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := q.Bytes(), 32*512+4*512; got != want || q.Compression() != 4*64*512/float64(want) {
		t.Errorf("%d bytes, want %d", got, want)
	}
	scales := q.Scales.Decode()
	for _, s := range []Scales{DoubleLinear(scales), DoubleDynamic(scales)} {
		q.Scales = s
		if got := q.Bytes(); got < 32*512+512+8 || got > 32*512+512+12 {
			t.Errorf("%T: %d bytes", s, got)
		}
	}
	if (&Tensor{Scales: Plain{}}).Compression() != 1 {
		t.Error("of nothing")
	}
}

// Each scale is off by half a step at most: of 255 a super-block; of the map's widest gap,
// 9/640 of the largest distance from the mean, or 1/128 at its lower end.
func TestDoubleQuantization(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for _, n := range []int{0, 1, 255, 256, 257, 1000} {
		scales := make([]float32, n)
		for i := range scales {
			scales[i] = float32(r.ExpFloat64())
		}
		linear, dynamic := DoubleLinear(scales), DoubleDynamic(scales)
		a, b := linear.Decode(), dynamic.Decode()
		if len(a) != n || len(b) != n || len(linear.Supers) != (n+255)/256 || len(dynamic.Supers) != (n+255)/256 {
			t.Fatalf("%d scales: %d and %d", n, len(a), len(b))
		}
		for i, s := range scales {
			if e := math.Abs(float64(a[i] - s)); e > float64(linear.Supers[i/256])/510*(1+1e-5) {
				t.Errorf("linear: %v became %v", s, a[i])
			}
			if e := math.Abs(float64(b[i] - s)); e > float64(dynamic.Supers[i/256])*0.0071*(1+1e-4) {
				t.Errorf("dynamic: %v became %v, super %v", s, b[i], dynamic.Supers[i/256])
			}
		}
	}
	if got := DoubleDynamic([]float32{2, 2}).Decode(); !slices.Equal(got, []float32{2, 2}) {
		t.Errorf("equal scales became %v", got)
	}
	if got := DoubleLinear([]float32{0, 0}).Decode(); !slices.Equal(got, []float32{0, 0}) {
		t.Errorf("zeros became %v", got)
	}
}

func TestDynamicMap(t *testing.T) {
	m := DynamicMap()
	if !slices.IsSorted(m[:]) || m[127] != 0 || m[255] != 1 || m[254] != 0.99296875 || m[0] != -0.99296875 || m[128] != 5.5e-7 {
		t.Errorf("%v", m)
	}
	for i := range 127 {
		if m[i] != -m[254-i] {
			t.Errorf("%v and %v", m[i], m[254-i])
		}
	}
	for i, v := range m {
		if nearestDynamic(v) != byte(i) {
			t.Errorf("%v has code %d, not %d", v, nearestDynamic(v), i)
		}
	}
}

func TestRefused(t *testing.T) {
	if _, err := Quantize(3, nil); err == nil {
		t.Error("kind 3: no error")
	}
	if _, err := Quantize(KindNF4, []float32{float32(math.NaN())}); err == nil {
		t.Error("NaN: no error")
	}
}
