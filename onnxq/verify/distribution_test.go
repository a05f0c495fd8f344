package verify

import (
	"math"
	"testing"

	"onnxquant/formats/dtype"
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
		{a: rows(t, "p", 2, .5, .5, .9, .1), b: rows(t, "p", 2, .5, .5, .9, .1), kind: probabilities, top1: 1},
		// KL((1/2, 1/2) from (1/4, 3/4)) = log(2/√3)
		{a: rows(t, "p", 2, .5, .5, .5, .5), b: rows(t, "p", 2, .25, .75, .5, .5), kind: probabilities, top1: .5,
			kl: KLDivergence{math.Log(2/math.Sqrt(3)) / 2, 0, math.Log(2 / math.Sqrt(3)), math.Log(2 / math.Sqrt(3)), math.Log(2 / math.Sqrt(3))}},
		{a: rows(t, "p", 2, half, half), b: rows(t, "p", 2, math.Log(.25), math.Log(.75)), kind: logProbabilities,
			kl: KLDivergence{math.Log(2 / math.Sqrt(3)), math.Log(2 / math.Sqrt(3)), math.Log(2 / math.Sqrt(3)), math.Log(2 / math.Sqrt(3)), math.Log(2 / math.Sqrt(3))}},
		// Adding a number to all logits changes nothing.
		{a: rows(t, "y", 3, 1, 5, 2), b: rows(t, "y", 3, 101, 105, 102), logits: true, kind: logits, top1: 1},
		{a: rows(t, "the_Logits", 3, 1, 5, 2), b: rows(t, "y", 3, 1, 5, 2), kind: logits, top1: 1},
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

// Outputs differ if classes change and the distributions are others, too.
func TestDiffers(t *testing.T) {
	for _, test := range []struct {
		a, b []float64
		want bool
	}{
		{[]float64{.9, .1, .1, .9}, []float64{.9, .1, .2, .8}, false},
		{[]float64{.9, .1, .1, .9}, []float64{.9, .1, .8, .2}, true},
		{[]float64{.51, .49, .49, .51}, []float64{.49, .51, .51, .49}, false}, // about as likely
		{[]float64{.99, .01, .01, .99}, []float64{.6, .4, .4, .6}, false},     // less sure of the same
	} {
		d := compareDistributions([][]*execute.Tensor{{rows(t, "p", 2, test.a...)}}, [][]*execute.Tensor{{rows(t, "p", 2, test.b...)}}, 0, false)
		if d.differs() != test.want {
			t.Errorf("%v and %v: %+v", test.a, test.b, d)
		}
	}
}
