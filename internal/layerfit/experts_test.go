package layerfit

import (
	"strings"
	"testing"

	"onnxquant/internal/operands"
	"onnxquant/spec"
)

// Values that do not fit a weight are no error: its parts have no codes by data, and are named with the reason.
func TestValuesThatDoNotFit(t *testing.T) {
	stack := operands.Stack{N: 2, Width: 4}
	c := newCalibration([]Layer{{Products: []Product{{Operation: stack, Input: "x"}}}}, counted{n: 20}, Options{Algorithm: spec.GPTQ, Memory: 1 << 20})
	in := &inputs{parts: 2, layers: []int{0}}
	of := span{in, 0, 2, stack.Begin()}
	parts := []*moments{newMoments(4, 2, nil), newMoments(4, 2, nil)}
	value := operands.Value{Dims: []int64{3, 2, 4}, Data: make([]float32, 24)}
	s := &sample{interim: func(string) operands.Value { return value }}
	if err := c.addSample(t.Context(), of, parts, s); err != nil {
		t.Fatal(err)
	}
	f := &fit{inputs: in, experts: make([]FallbackExperts, 1)}
	for i, m := range parts {
		if left, err := c.leave(t.Context(), f, i, m); left || err != nil {
			t.Errorf("too few rows, or %v", err)
		}
		found, err := newSolver(t.Context(), c, m)
		if err != nil || found.known {
			t.Fatalf("codes by data, or %v", err)
		}
		if err := c.keepBetterExpert(t.Context(), f, 0, i, m, found.why, new(sums)); err != nil {
			t.Fatal(err)
		}
	}
	if e := f.experts[0]; len(e.Unsolved) != 2 || e.None() || !strings.Contains(e.why(), `value "x": its dims [3 2 4] do not fit`) {
		t.Errorf("%+v", e)
	}
}
