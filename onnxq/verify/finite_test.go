package verify

import (
	"math"
	"testing"

	"onnxquant/internal/run/execute"
)

// Samples without a finite output were not compared: a few are a warning, many a failure on the user's inputs.
func TestNotFinite(t *testing.T) {
	nan := math.NaN()
	runs := func(bad int) (all [][]*execute.Tensor) {
		for i := range 20 {
			v := 1.
			if i >= 20-bad {
				v = nan
			}
			all = append(all, []*execute.Tensor{rows(t, "y", 2, v, v)})
		}
		return all
	}
	batch := rows(t, "y", 2, 1, nan, nan, nan, math.Inf(1), math.Inf(-1), 4, 5)
	for _, c := range []struct {
		name           string
		inputs, want   [][]*execute.Tensor
		samples, first int
		given, failed  bool
	}{
		{"all are finite", runs(0), runs(0), 0, 0, true, false},
		{"a tenth", runs(0), runs(2), 2, 18, true, false},
		{"more", runs(0), runs(3), 3, 17, true, true},
		{"made inputs", runs(0), runs(3), 3, 17, false, false},
		{"rows of a batch", [][]*execute.Tensor{{rows(t, "x", 1, 1, 2, 3, 4)}}, [][]*execute.Tensor{{batch}}, 2, 1, true, true},
		{"rows that are not samples", [][]*execute.Tensor{{rows(t, "x", 4, 1, 2, 3, 4)}}, [][]*execute.Tensor{{batch}}, 0, 0, true, false},
		{"another output is finite", [][]*execute.Tensor{{rows(t, "x", 1, 1)}}, [][]*execute.Tensor{{rows(t, "y", 1, nan), rows(t, "z", 1, 1)}}, 0, 0, true, false},
	} {
		n := notFinite(c.inputs, c.want)
		if c.samples == 0 != (n == nil) || n != nil && (n.Samples != c.samples || n.First != c.first) {
			t.Errorf("%s: %+v", c.name, n)
		}
		v := &verifier{report: &Report{Failed: map[Check]int{}, Limited: true, Given: c.given, Execution: Execution{Compared: true, Required: true, NotFinite: n}}}
		if c.given {
			v.opts.Inputs = []string{"x.npz"}
		}
		v.judgeFinite()
		if v.report.Verdict = v.verdict(); c.failed != (v.report.Verdict == Failed) || c.failed != v.report.NotCompared() {
			t.Errorf("%s: %v: %q", c.name, v.report.Verdict, v.report.Failures)
		}
		if said := len(v.report.Warnings) + len(v.report.Failures); said != min(c.samples, 1) {
			t.Errorf("%s: %q, %q", c.name, v.report.Warnings, v.report.Failures)
		}
	}
}
