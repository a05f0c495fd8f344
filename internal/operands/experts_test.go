package operands

import (
	"slices"
	"testing"

	"onnxquant/internal/experts"
)

// An expert gets the rows that the router gives to it, and fc2 what fc1 and fc3 make of them.
func TestExperts(t *testing.T) {
	input := Value{Dims: []int64{3, 2}, Data: []float32{1, 2, 3, 4, 5, 6}}
	router := Value{Dims: []int64{3, 2}, Data: []float32{1, 0, 0, 1, 2, 0}}
	e := Experts{N: 2, Top: 1, Width: 2}
	r := e.Begin()
	if err := r.Take(input, router); err != nil {
		t.Fatal(err)
	}
	for expert, want := range [][]float32{{1, 2, 5, 6}, {3, 4}} {
		rows, at, err := r.Of(t.Context(), 1, expert)
		if err != nil || !slices.Equal(rows, want) || len(at) != len(want)/2 {
			t.Errorf("expert %d: %v, %v, %v", expert, rows, at, err)
		}
	}
	times := func(factor float32) Affine {
		return Affine{Rows: 2, Read: func(expert int) ([]float32, []float32, error) {
			return []float32{factor, 0, 0, factor}, []float32{float32(expert), 0}, nil
		}}
	}
	fc3 := times(10)
	e.Inner = &Inner{Name: "n", Activation: experts.Activation{Type: "identity"}, FC1: times(2), FC3: &fc3}
	r = e.Begin()
	if err := r.Take(input, router); err != nil {
		t.Fatal(err)
	}
	// (2x + bias)·(10x + bias)
	if rows, _, err := r.Of(t.Context(), 1, 1); err != nil || !slices.Equal(rows, []float32{7 * 31, 8 * 40}) {
		t.Errorf("%v, %v", rows, err)
	}
	if e.Kept() != 2*4*2*3 || e.All(input, router) != 3 || e.GoString() != `operands.Experts{2, 1, 2} of "n"` {
		t.Errorf("%d bytes, %v rows, %s", e.Kept(), e.All(input, router), e.GoString())
	}
	if err := r.Take(input, Value{Data: make([]float32, 5)}); err == nil {
		t.Error("a router of another size")
	}
}
