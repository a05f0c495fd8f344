package verify

import (
	"math"
	"testing"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/distribution"
	"onnxquant/internal/run/execute"
)

func rows(t *testing.T, name string, classes int64, values ...float64) *execute.Tensor {
	t.Helper()
	x, err := execute.FromFloat64s(dtype.Float64, []int64{int64(len(values)) / classes, classes}, values)
	if err != nil {
		t.Fatal(err)
	}
	x.Name = name
	return x
}

func TestDistributions(t *testing.T) {
	half := math.Log(0.5)
	for _, test := range []struct {
		a, b   *execute.Tensor
		logits bool
		kind   string
		top1   float64
		kl     KLDivergence
	}{
		{a: rows(t, "p", 2, .5, .5, .9, .1), b: rows(t, "p", 2, .5, .5, .9, .1), kind: distribution.Probabilities, top1: 1},
		// KL((1/2, 1/2) from (1/4, 3/4)) = log(2/√3)
		{a: rows(t, "p", 2, .5, .5, .5, .5), b: rows(t, "p", 2, .25, .75, .5, .5), kind: distribution.Probabilities, top1: .5,
			kl: KLDivergence{math.Log(2/math.Sqrt(3)) / 2, 0, math.Log(2 / math.Sqrt(3)), math.Log(2 / math.Sqrt(3)), math.Log(2 / math.Sqrt(3))}},
		{a: rows(t, "p", 2, half, half), b: rows(t, "p", 2, math.Log(.25), math.Log(.75)), kind: distribution.LogProbabilities,
			kl: KLDivergence{math.Log(2 / math.Sqrt(3)), math.Log(2 / math.Sqrt(3)), math.Log(2 / math.Sqrt(3)), math.Log(2 / math.Sqrt(3)), math.Log(2 / math.Sqrt(3))}},
		// Adding a number to all logits changes nothing.
		{a: rows(t, "y", 3, 1, 5, 2), b: rows(t, "y", 3, 101, 105, 102), logits: true, kind: distribution.Logits, top1: 1},
		{a: rows(t, "the_Logits", 3, 1, 5, 2), b: rows(t, "y", 3, 1, 5, 2), kind: distribution.Logits, top1: 1},
		{a: rows(t, "y", 3, 1, 5, 2), b: rows(t, "y", 3, 1, 5, 2)},
		{a: rows(t, "logits", 1, 1, 5, 2), b: rows(t, "logits", 1, 1, 5, 2)},
		{a: rows(t, "logits", 2, 1, math.NaN()), b: rows(t, "logits", 2, 1, 2)},
	} {
		d := compareDistributions([][]*execute.Tensor{{test.a}}, [][]*execute.Tensor{{test.b}}, 0, test.logits)
		if test.kind == "" {
			if d != nil {
				t.Errorf("%v is taken for %s", test.a.Float64s(), d.Kind)
			}
			continue
		}
		if d == nil || d.Kind != test.kind || d.Top1 != test.top1 {
			t.Fatalf("%s: %+v, want %s, %v", test.a.Name, d, test.kind, test.top1)
		}
		for i, pair := range [][2]float64{{d.KLDivergence.Mean, test.kl.Mean}, {d.KLDivergence.Median, test.kl.Median}, {d.KLDivergence.P90, test.kl.P90}, {d.KLDivergence.P99, test.kl.P99}, {d.KLDivergence.Max, test.kl.Max}} {
			if math.Abs(pair[0]-pair[1]) > 1e-12 {
				t.Errorf("%s: number %d of %+v, want %+v", test.a.Name, i, d.KLDivergence, test.kl)
			}
		}
	}
}

// An output is poor if the error is near to what tells its rows apart.
func TestPoor(t *testing.T) {
	chance := func(kind string, information float64) *Distribution {
		return &Distribution{Kind: kind, Rows: 100, Information: information}
	}
	for _, test := range []struct {
		o           Output
		made, given bool // poor, on inputs that verify made, and on those of the user
	}{
		{Output{SQNR: 20, Varying: 12, Rows: 100}, true, true},
		{Output{SQNR: 20, Varying: 14, Rows: 100}, false, false},
		{Output{SQNR: 20, Varying: 14, Rows: 100, Relative: 1.1}, true, true},
		{Output{SQNR: 30, Varying: -999, Rows: 1}, false, false}, // one row shows nothing
		{Output{SQNR: 5.6, Varying: -999, Rows: 1}, true, true},
		{Output{SQNR: 30, Varying: 5, Rows: 100}, false, false}, // the rows hardly differ
		{Output{SQNR: 28, Varying: 5, Rows: 100}, true, true},   // they differ enough
		{Output{SQNR: 20, Varying: 8, Rows: 100, State: true}, false, false},
		{Output{SQNR: 10, Varying: 5, Rows: 100, State: true}, true, true},
		{Output{SQNR: 15, Varying: 5, Rows: 100, Distribution: chance(distribution.Logits, 1)}, true, true},
		{Output{SQNR: 15, Varying: 5, Rows: 100, Distribution: chance(distribution.Probabilities, 1)}, false, true},
		{Output{SQNR: 15, Varying: 2, Rows: 100, Distribution: chance(distribution.YesOrNo, 1)}, true, true},
		{Output{SQNR: 15, Varying: 2, Rows: 100, Distribution: chance(distribution.YesOrNo, 0.001)}, false, false}, // always the same answer
	} {
		o := test.o
		for _, inputs := range [][]string{nil, {"data.npz"}} {
			v := &verifier{opts: Options{Inputs: inputs}}
			want := test.made
			if inputs != nil {
				want = test.given
			}
			if got := v.poor(&o); got != "" != want {
				t.Errorf("%+v, inputs %v: %q", o, inputs, got)
			}
			least := 1.0
			if v.opts.MinOutputSQNR = &least; v.poor(&o) != "" {
				t.Errorf("%+v: the user's limit does not hold", o)
			}
		}
	}
}

// What differs between rows is compared with the error, and the rest left out.
func TestVarying(t *testing.T) {
	run := func(values ...float64) [][]*execute.Tensor { return [][]*execute.Tensor{{rows(t, "y", 2, values...)}} }
	a := run(10, 20, 11, 20, 9, 20)   // the first column differs by 1 from its mean, twice
	b := run(10.1, 20, 11, 20, 9, 20) // Σ error² is 0.01
	if got := varyingSQNR(a, b, 0); math.Abs(got-10*math.Log10(2/0.01)) > 0.01 {
		t.Errorf("%.2f dB", got)
	}
	if got := varyingSQNR(run(1, 2, 1, 2), run(1, 2, 1, 3), 0); got != -999 {
		t.Errorf("rows that are equal: %.2f dB", got)
	}
	if got := varyingSQNR(a, a, 0); got != 999 {
		t.Errorf("exact: %.2f dB", got)
	}
}
