package quality

import (
	"encoding/json"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"onnxquant/calib"
)

func near(a, b, part float64) bool { return math.Abs(a-b) <= part*math.Abs(b) }

// Sums are right to the last bits where plain ones, and float32 all the more, are not:
// compared with rational arithmetic.
func TestSumsAreSound(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	x, y := make([]float32, 30000), make([]float32, 30000)
	for i := range x {
		x[i] = float32(r.NormFloat64() * math.Pow(10, float64(r.IntN(30)-15)))
		y[i] = x[i] * (1 + float32(r.NormFloat64())*1e-3)
	}
	x[0], y[0] = 1e18, 1.001e18
	sqErr, absErr, sq := new(big.Rat), new(big.Rat), new(big.Rat)
	rat := func(v float64) *big.Rat { return new(big.Rat).SetFloat64(v) }
	for i, v := range x {
		e := rat(float64(v) - float64(y[i]))
		sqErr.Add(sqErr, new(big.Rat).Mul(e, e))
		absErr.Add(absErr, e.Abs(e))
		sq.Add(sq, new(big.Rat).Mul(rat(float64(v)), rat(float64(v))))
	}
	float := func(r *big.Rat) float64 { f, _ := r.Float64(); return f }
	var s Sums
	for at := 0; at < len(x); at += 1000 {
		var part Sums
		part.Add(x[at:at+1000], y[at:at+1000])
		s.Merge(&part)
	}
	got := s.Stats()
	n := float64(len(x))
	for _, v := range [][2]float64{
		{got.MSE, float(sqErr) / n}, {got.MAE, float(absErr) / n}, {got.RMSE, math.Sqrt(float(sqErr) / n)},
		{got.SQNR, 10 * math.Log10(float(sq)/float(sqErr))}, {s.Noise(), float(sqErr) / float(sq)},
	} {
		if !near(v[0], v[1], 4e-16) {
			t.Errorf("%v, want %v", v[0], v[1])
		}
	}
}

// A million errors of 1e-4 in values near 1 come out right; in float32 their sum of
// squares would be a few percent off.
func TestSmallErrors(t *testing.T) {
	x, y := make([]float32, 1<<20), make([]float32, 1<<20)
	for i := range x {
		y[i] = 0x1p-14
	}
	if got := Measure(x, y, 0); got.MSE != 0x1p-28 || got.MAE != 0x1p-14 || got.MaxError != 0x1p-14 || !math.IsInf(got.SQNR, -1) {
		t.Errorf("%+v", got)
	}
	if got := Measure([]float32{1}, []float32{1 + 0x1p-23}, 0); got.MSE != 0x1p-46 {
		t.Errorf("one place: %+v", got)
	}
	if got := Measure([]float32{math.SmallestNonzeroFloat32}, []float32{0}, 0); got.MSE == 0 || got.SQNR != 0 {
		t.Errorf("the least number: %+v", got)
	}
}

func TestStats(t *testing.T) {
	got := Measure([]float32{3, 0, -4, 0}, []float32{2, 0, -4, 3}, 0.5)
	want := Stats{N: 4, MSE: 2.5, MAE: 1, RMSE: math.Sqrt(2.5), MaxError: 3, SQNR: 10 * math.Log10(2.5), Outliers: 0.5}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if s := Measure(nil, nil, 0); !math.IsNaN(s.SQNR) || s.N != 0 {
		t.Errorf("of nothing: %+v", s)
	}
	if s := Measure([]float32{1, float32(math.NaN())}, []float32{1, 1}, 0); !math.IsNaN(s.MSE) || !math.IsNaN(s.MaxError) {
		t.Errorf("NaN: %+v", s)
	}
	for _, s := range []Stats{{SQNR: math.Inf(1)}, {SQNR: math.Inf(-1)}, {SQNR: math.NaN()}, {SQNR: 5}} {
		if _, err := json.Marshal(s); err != nil {
			t.Error(err)
		}
	}
}

func TestByChannelAndGroup(t *testing.T) {
	x, y := []float32{1, 2, 3, 4, 5, 6}, []float32{1, 2, 3, 4, 5, 8}
	rows, err := ByChannel(x, y, 3, 0)
	if err != nil || len(rows) != 3 || rows[0].MSE != 0 || rows[2].MSE != 2 {
		t.Errorf("%+v, %v", rows, err)
	}
	groups, err := ByGroup(x, y, 4, 0)
	if err != nil || len(groups) != 2 || groups[1].N != 2 || groups[1].MaxError != 2 {
		t.Errorf("%+v, %v", groups, err)
	}
	for _, channels := range []int{0, 4} {
		if _, err := ByChannel(x, y, channels, 0); err == nil {
			t.Errorf("%d channels: no error", channels)
		}
	}
	if _, err := ByGroup(x, y[:5], 2, 0); err == nil {
		t.Error("5 values for 6: no error")
	}
}

// Whatever the weights and the setting, theory's bound holds, finer settings have less
// error, and uniform values have the SQNR that theory has for them.
func TestSuite(t *testing.T) {
	weights := SuiteWeights(1)
	results, err := Suite(weights)
	if err != nil {
		t.Fatal(err)
	}
	if len(results) != 4*12 {
		t.Fatalf("%d results", len(results))
	}
	of := map[string]map[Setting]Comparison{}
	for _, r := range results {
		if !r.WithinBounds {
			t.Errorf("%s, %v: an error beyond theory's bound", r.Weights, r.Setting)
		}
		if of[r.Weights] == nil {
			of[r.Weights] = map[Setting]Comparison{}
		}
		of[r.Weights][r.Setting] = r.Comparison
	}
	for name, found := range of {
		for s, c := range found {
			if s.Bits == 4 {
				finer := s
				finer.Bits = 8
				if found[finer].Stats.MSE >= c.Stats.MSE {
					t.Errorf("%s: %v has the MSE %v, %v %v", name, s, c.Stats.MSE, finer, found[finer].Stats.MSE)
				}
			}
			if s.Granularity == calib.PerTensor {
				group := Setting{s.Scheme, calib.PerGroup, 32}
				if found[group].Stats.MSE >= c.Stats.MSE {
					t.Errorf("%s: %v is better than %v", name, s, group)
				}
			}
		}
	}
	// Full-range uniform values: steps of a/127 over ±a, SQNR = 20·log10(2·127) dB.
	uniform := of["uniform"][Setting{calib.Scheme{Bits: 8, Symmetric: true}, calib.PerTensor, 0}]
	if want := 20 * math.Log10(2*127.0); math.Abs(uniform.Stats.SQNR-want) > 0.3 {
		t.Errorf("uniform at 8 bits: %v dB, want %v", uniform.Stats.SQNR, want)
	}
	if want := 32.0 * 4096 / (4096*8 + 32); uniform.Compression != want {
		t.Errorf("compression %v, want %v", uniform.Compression, want)
	}
	best := BestBySQNR(results)
	least := BestByMSE(results)
	sorted := ByEfficiency(results)
	for i, r := range results {
		if r.Stats.SQNR > best.Stats.SQNR || r.Stats.MSE < least.Stats.MSE || i > 0 && sorted[i].Efficiency() > sorted[i-1].Efficiency() {
			t.Errorf("%s, %v: better than the best", r.Weights, r.Setting)
		}
	}
}

func TestWithinBounds(t *testing.T) {
	p := calib.Params{Scale: 1, Lo: -8, Hi: 7}
	for _, test := range []struct {
		x, y float32
		want bool
	}{{0.5, 0, true}, {0.51, 0, false}, {9, 7, true}, {9, 6, false}, {-8.4, -8, true}, {float32(math.NaN()), 0, false}} {
		if got := WithinBounds([]float32{test.x}, []float32{test.y}, p); got != test.want {
			t.Errorf("%v for %v: %v", test.y, test.x, got)
		}
	}
}

func TestOutlierImpact(t *testing.T) {
	s := calib.Scheme{Bits: 8, Symmetric: true}
	for _, w := range SuiteWeights(2) {
		got, err := OutlierImpact(Values(w.Values), s, 99)
		if err != nil {
			t.Fatal(err)
		}
		switch w.Name {
		case "outliers":
			if got < 20 {
				t.Errorf("outliers: %v", got)
			}
		case "uniform":
			if math.Abs(got-1) > 0.1 {
				t.Errorf("uniform: %v", got)
			}
		}
		// The same from a histogram, in bounded memory.
		h, err := calib.NewHistogram(12)
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Observe(w.Values); err != nil {
			t.Fatal(err)
		}
		if rough, err := OutlierImpact(h.All(), s, 99); err != nil || !near(rough, got, 0.02) {
			t.Errorf("%s: %v from a histogram, %v from values, %v", w.Name, rough, got, err)
		}
	}
	for _, p := range []float64{0, 101, math.NaN()} {
		if _, err := OutlierImpact(Values([]float32{1}), s, p); err == nil {
			t.Errorf("percentile %v: no error", p)
		}
	}
}

// Noise goes with the square of the step: half as much again is 2.25 times the MSE. Values
// cut off turn it the other way.
func TestScaleSensitivity(t *testing.T) {
	w := SuiteWeights(3)[1]
	s := calib.Scheme{Bits: 6, Symmetric: true}
	up, err := ScaleSensitivity(Values(w.Values), s, 0.5)
	if err != nil || math.Abs(up-2.5) > 0.15 {
		t.Errorf("half as much again: %v, %v", up, err)
	}
	down, err := ScaleSensitivity(Values(w.Values), s, -0.2)
	if err != nil || down > -1 {
		t.Errorf("20%% less: %v, %v", down, err)
	}
	for _, change := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if _, err := ScaleSensitivity(Values(w.Values), s, change); err == nil {
			t.Errorf("change %v: no error", change)
		}
	}
	if _, err := ScaleSensitivity(Values(nil), s, 0.1); err == nil {
		t.Error("no values: no error")
	}
}

func TestRefused(t *testing.T) {
	x := make([]float32, 12)
	for _, s := range []Setting{
		{calib.Scheme{Bits: 1}, calib.PerTensor, 0}, {calib.Scheme{Bits: 4}, "row", 0}, {calib.Scheme{Bits: 4}, calib.PerGroup, 0},
	} {
		if _, err := Compare(x, 3, s); err == nil {
			t.Errorf("%v: no error", s)
		}
	}
	if _, err := CompareBits(x, 5, Setting{calib.Scheme{}, calib.PerTensor, 0}); err == nil {
		t.Error("5 channels of 12 values: no error")
	}
	if _, err := CompareBits([]float32{float32(math.Inf(1))}, 1, Setting{calib.Scheme{}, calib.PerTensor, 0}); err == nil {
		t.Error("infinity: no error")
	}
	if _, err := AccuracyRetention(0, 1); err == nil {
		t.Error("accuracy 0: no error")
	}
}
