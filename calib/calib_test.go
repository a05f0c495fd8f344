package calib

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func normal(n int, seed uint64) []float32 {
	r := rand.New(rand.NewPCG(seed, 7))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

func observe(t *testing.T, o Observer, batches ...[]float32) Range {
	t.Helper()
	for _, b := range batches {
		if err := o.Observe(b); err != nil {
			t.Fatal(err)
		}
		o.EndBatch()
	}
	r, err := o.Range()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestParams(t *testing.T) {
	for _, test := range []struct {
		scheme Scheme
		r      Range
		want   Params
	}{
		{Scheme{Bits: 8, Symmetric: true}, Range{-1, 2}, Params{float32(2.0 / 127), 0, -128, 127}},
		{Scheme{Bits: 4, Symmetric: true, Narrow: true}, Range{-7, 2}, Params{1, 0, -7, 7}},
		{Scheme{Bits: 8}, Range{-1, 3}, Params{float32(4.0 / 255), 64, 0, 255}},
		{Scheme{Bits: 4}, Range{1, 15}, Params{1, 0, 0, 15}},    // widened
		{Scheme{Bits: 4}, Range{-15, -1}, Params{1, 15, 0, 15}}, // widened
		{Scheme{Bits: 2}, Range{0, 0}, Params{1e-10, 0, 0, 3}},
		{Scheme{Bits: 16, Symmetric: true}, Range{-1, 1}, Params{float32(1.0 / 32767), 0, -32768, 32767}},
		{Scheme{Bits: 8}, Range{-math.MaxFloat32, math.MaxFloat32}, Params{float32(2 * float64(math.MaxFloat32) / 255), 128, 0, 255}},
	} {
		if got := test.scheme.Params(test.r); got != test.want {
			t.Errorf("%+v %v: %+v, want %+v", test.scheme, test.r, got, test.want)
		}
	}
}

// Within the range no value is off by more than half a step; 0 is exact; beyond it the
// last code holds.
func TestCodes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, s := range []Scheme{{Bits: 2}, {Bits: 3, Symmetric: true}, {Bits: 4}, {Bits: 8, Symmetric: true, Narrow: true}, {Bits: 16}} {
		for range 100 {
			rng := Range{-r.ExpFloat64(), r.ExpFloat64()}
			p := s.Params(rng)
			if p.Dequantize(p.Quantize(0)) != 0 {
				t.Fatalf("%+v: 0 became %v", p, p.Dequantize(p.Quantize(0)))
			}
			for range 100 {
				x := float32(rng.Min + r.Float64()*(rng.Max-rng.Min))
				limit := float64(p.Scale)/2*(1+1e-3) + 1e-6
				if !s.Symmetric {
					limit += float64(p.Scale) / 2 // the zero point is rounded, too
				}
				if e := math.Abs(float64(x) - float64(p.Dequantize(p.Quantize(x)))); e > limit {
					t.Fatalf("%+v: %v is off by %v", p, x, e)
				}
			}
			if p.Quantize(float32(math.Inf(1))) != p.Hi || p.Quantize(float32(math.Inf(-1))) != p.Lo || p.Quantize(float32(math.NaN())) != p.ZeroPoint {
				t.Fatalf("%+v: infinite values and NaN", p)
			}
		}
	}
}

func TestMinMax(t *testing.T) {
	if got := observe(t, &MinMax{}, []float32{2, 3}, nil, []float32{1.5}); got != (Range{1.5, 3}) {
		t.Error(got)
	}
}

func TestMovingAverage(t *testing.T) {
	m, err := NewMovingAverage(0.25)
	if err != nil {
		t.Fatal(err)
	}
	m.EndBatch()
	if _, err := m.Range(); !errors.Is(err, ErrEmpty) {
		t.Error(err)
	}
	if got := observe(t, m, []float32{-1, 1}, []float32{-5, 2}, nil); got != (Range{-2, 1.25}) {
		t.Error(got)
	}
	m.Observe([]float32{6})
	if got, _ := m.Range(); got != (Range{0, 2.4375}) {
		t.Errorf("with a batch at hand: %v", got)
	}
}

func TestPercentile(t *testing.T) {
	var x []float32
	for i := range 1000 {
		x = append(x, float32(i*7%1000))
	}
	for p, want := range map[float64]Range{100: {0, 999}, 99: {9, 990}, 90: {99, 900}, 50: {499, 500}} {
		c, err := NewPercentile(p)
		if err != nil {
			t.Fatal(err)
		}
		if got := observe(t, c, x[:10], x[10:]); got != want {
			t.Errorf("%v: %v, want %v", p, got, want)
		}
	}
	for _, p := range []float64{49, 101, math.NaN()} {
		if _, err := NewPercentile(p); err == nil {
			t.Errorf("%v: no error", p)
		}
	}
}

// A histogram finds what sorting does, off by half a bucket at most, whatever the
// order, and its parts merge.
func TestHistogram(t *testing.T) {
	x := normal(20000, 3)
	for i := range x[:5000] {
		x[i] *= float32(math.Pow(10, float64(i%60-30)))
	}
	x[7], x[8] = 0, float32(math.Copysign(0, -1))
	sorted := slices.Clone(x)
	slices.Sort(sorted)
	for _, precision := range []int{1, 7, 12, 16} {
		h, err := NewHistogram(precision)
		if err != nil {
			t.Fatal(err)
		}
		g, _ := NewHistogram(precision)
		if err := errors.Join(h.Observe(x[:9000]), g.Observe(x[9000:])); err != nil {
			t.Fatal(err)
		}
		h.Merge(g)
		if h.Count() != int64(len(x)) {
			t.Fatalf("%d values", h.Count())
		}
		for i, want := range sorted {
			if i%371 != 0 && i < len(sorted)-2 {
				continue
			}
			got, want := h.At(int64(i)), float64(want)
			if math.Abs(got-want) > math.Abs(want)*math.Ldexp(1, -precision-1)*(1+1e-6) {
				t.Fatalf("%d bits: value %d is %v, want %v", precision, i, got, want)
			}
		}
		for _, p := range []float64{100, 99.9, 90} {
			c, _ := NewPercentile(p)
			want := observe(t, c, x)
			got, err := h.Percentile(p)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range [][2]float64{{got.Min, want.Min}, {got.Max, want.Max}} {
				if math.Abs(v[0]-v[1]) > math.Abs(v[1])*math.Ldexp(1, -precision-1)*(1+1e-6) {
					t.Errorf("%d bits: percentile %v is %v, want %v", precision, p, got, want)
				}
			}
		}
	}
}

// A list of few values has the buckets that pages have, and parts of both kinds merge.
func TestFewValues(t *testing.T) {
	x := append(normal(3000, 6), 0, float32(math.Copysign(0, -1)), 1e-45, math.MaxFloat32, -1e-3, -1e-3)
	for _, n := range []int{1, mostFew, len(x)} {
		want, _ := NewHistogram(9)
		want.spread()
		observe(t, want, x[len(x)-n:])
		for _, cut := range []int{0, 1, n / 2, n} {
			h, _ := NewHistogram(9)
			g, _ := NewHistogram(9)
			if err := errors.Join(h.Observe(x[len(x)-n:][:cut]), g.Observe(x[len(x)-n:][cut:])); err != nil {
				t.Fatal(err)
			}
			h.Merge(g)
			if (h.pages != nil) != (n > mostFew) || !slices.Equal(slices.Collect(h.buckets()), slices.Collect(want.buckets())) {
				t.Errorf("%d values, the first %d of them merged with the others: other buckets", n, cut)
			}
		}
	}
}

func TestAbove(t *testing.T) {
	h, _ := NewHistogram(12)
	observe(t, h, []float32{-3, -1, 0, 1, 2, 5})
	if got := h.Above(1.5); got != 0.5 {
		t.Error(got)
	}
}

// MSE's range is as good as the best of a fine grid, on the values themselves.
func TestMSE(t *testing.T) {
	x := append(normal(20000, 4), 9, -7.5)
	for _, s := range []Scheme{{Bits: 2, Symmetric: true}, {Bits: 4, Symmetric: true}, {Bits: 4}, {Bits: 8, Symmetric: true}, {Bits: 8}} {
		h, _ := NewHistogram(12)
		whole := observe(t, h, x)
		got, err := h.MSE(s)
		if err != nil {
			t.Fatal(err)
		}
		e := func(r Range) (sum float64) {
			p := s.Params(r)
			for _, v := range x {
				d := float64(v - p.Dequantize(p.Quantize(v)))
				sum += d * d
			}
			return sum
		}
		least := math.Inf(1)
		for f := 1.0; f > 0.04; f -= 0.01 {
			least = min(least, e(Range{whole.Min * f, whole.Max * f}))
		}
		if e(got) > least*1.001 {
			t.Errorf("%+v: %v has the error %v, least is %v", s, got, e(got), least)
		}
		if s.Bits == 4 && e(got) > 0.7*e(whole) {
			t.Errorf("%+v: %v has the error %v, the whole range %v", s, got, e(got), e(whole))
		}
	}
}

// Without outliers entropy keeps nearly all; a lone outlier it leaves out.
func TestEntropy(t *testing.T) {
	s := Scheme{Bits: 8, Symmetric: true}
	r := rand.New(rand.NewPCG(9, 9))
	uniform := make([]float32, 50000)
	for i := range uniform {
		uniform[i] = r.Float32()*2 - 1
	}
	h, _ := NewHistogram(12)
	observe(t, h, uniform)
	if got, err := h.Entropy(s); err != nil || got.Max < 0.95 {
		t.Errorf("uniform: %v, %v", got, err)
	}
	h, _ = NewHistogram(12)
	observe(t, h, normal(50000, 5), []float32{40})
	if got, err := h.Entropy(s); err != nil || got.Max > 10 || got.Max < 2.5 {
		t.Errorf("an outlier: %v, %v", got, err)
	}
	if _, err := h.Entropy(Scheme{Bits: 9}); err == nil {
		t.Error("9 bits: no error")
	}
	h, _ = NewHistogram(12)
	observe(t, h, make([]float32, 10))
	if got, err := h.Entropy(s); err != nil || got != (Range{}) {
		t.Errorf("zeros: %v, %v", got, err)
	}
}

func TestMethods(t *testing.T) {
	for text, want := range map[string]string{"minmax": "", "percentile": "percentile:99.9", "percentile:99": "", "moving-average": "moving-average:0.1", "moving-average:0.5": "", "entropy": "", "mse": ""} {
		if want == "" {
			want = text
		}
		m, err := ParseMethod(text)
		if err != nil || m.String() != want {
			t.Errorf("%s: %s, %v", text, m, err)
		}
		o, err := m.Observer(Scheme{Bits: 8}, 10)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.Range(); !errors.Is(err, ErrEmpty) {
			t.Errorf("%s: %v", text, err)
		}
		for _, v := range []float32{float32(math.NaN()), float32(math.Inf(-1))} {
			if err := o.Observe([]float32{1, v}); !errors.Is(err, ErrNotFinite) {
				t.Errorf("%s: %v: %v", text, v, err)
			}
		}
	}
	for _, text := range []string{"", "max", "mse:1", "percentile:x", "percentile:101", "moving-average:0", "percentile:"} {
		if _, err := ParseMethod(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
	if _, err := (Method{Name: "mse"}).Observer(Scheme{Bits: 17}, 10); err == nil {
		t.Error("17 bits: no error")
	}
	if _, err := (Method{Name: "mse"}).Observer(Scheme{Bits: 8}, 17); err == nil {
		t.Error("precision 17: no error")
	}
}
