package experts

import (
	"math"
	"slices"
	"testing"
)

// Gates and values of swiglu in each order give the same.
func TestActivation(t *testing.T) {
	a := Activation{Type: "swiglu", Alpha: 1.5, Beta: 1, Limit: 3}
	gates, values := []float64{-1, 0.5, 7}, []float64{2, -9, 0.25}
	want := make([]float64, 3)
	for i, g := range gates {
		g, v := min(g, 3), max(-3, min(values[i], 3))
		want[i] = g / (1 + math.Exp(-1.5*g)) * (v + 1)
	}
	for fusion, in := range map[int64][]float64{0: gates, 1: {-1, 2, 0.5, -9, 7, 0.25}, 2: {-1, 0.5, 7, 2, -9, 0.25}} {
		a.Fusion = fusion
		var fc3 []float64
		if fusion == 0 {
			fc3 = values
		}
		if !a.Known(fc3 != nil) || a.Known(fc3 == nil) {
			t.Errorf("fusion %d is not known", fusion)
		}
		if got := a.Apply(slices.Clone(in), fc3); !slices.Equal(got, want) {
			t.Errorf("fusion %d: %v, want %v", fusion, got, want)
		}
	}
	relu := Activation{Type: "relu"}
	if got := relu.Apply([]float64{-1, 2}, []float64{5, 7}); !slices.Equal(got, []float64{0, 14}) {
		t.Errorf("relu: %v", got)
	}
	if (Activation{Type: "tanh"}).Known(false) {
		t.Error("tanh is known")
	}
}

// The largest logits are chosen, the later one of two equal ones first, as in ONNX Runtime.
func TestRoute(t *testing.T) {
	chosen, shares := Route([]float64{0, math.Log(3), 0}, 2, true)
	if !slices.Equal(chosen, []int{1, 2}) || math.Abs(shares[0]-0.75) > 1e-12 || math.Abs(shares[1]-0.25) > 1e-12 {
		t.Errorf("%v, %v", chosen, shares)
	}
}
