package operands

import (
	"slices"
	"testing"
)

// Each matrix gets the rows that meet it, also where axes are broadcast, and whichever factor it is.
func TestChosen(t *testing.T) {
	for _, c := range []struct {
		dims, indices []int64
		columns, nd   bool
		want          [2][]float32 // first elements of rows of width 2
	}{
		{[]int64{4, 1, 2}, []int64{4}, false, false, [2][]float32{{1, 7}, {3, 5}}},                                                 // a row for each index
		{[]int64{4, 2, 1}, []int64{4, 1}, true, true, [2][]float32{{1, 7}, {3, 5}}},                                                // columns, and GatherND
		{[]int64{2, 1, 1, 2}, []int64{2, 2}, false, false, [2][]float32{{1, 3}, {1, 3}}},                                           // two matrices for each row
		{[]int64{2, 1, 2, 2}, []int64{2, 2}, true, false, [2][]float32{{1, 2, 5, 6}, {1, 2, 5, 6}}},                                // two columns
		{[]int64{2}, []int64{4}, false, false, [2][]float32{{1, 1}, {1, 1}}},                                                       // one vector
		{[]int64{3, 1, 2}, []int64{4}, false, false, [2][]float32{}}, {[]int64{4, 1, 3}, []int64{4}, false, false, [2][]float32{}}, // misfits
	} {
		input := counting(c.dims)
		indices := Value{Dims: c.indices, Data: []float32{0, 1, -1, 0}}
		o := Chosen{N: 2, Width: 2, Columns: c.columns, Coordinates: c.nd}
		r := o.Begin()
		if err := r.Take(input, indices); err != nil {
			if c.want[0] != nil {
				t.Errorf("%v: %v", c.dims, err)
			}
			continue
		}
		all := 0
		for part, want := range c.want {
			rows, at, err := r.Of(t.Context(), 1, part)
			var first []float32
			for i := range at {
				first = append(first, rows[2*i])
			}
			if err != nil || !slices.Equal(first, want) {
				t.Errorf("%v, matrix %d: rows begin with %v, want %v, %v", c.dims, part, first, want, err)
			}
			all += len(at)
		}
		if o.All(Value{Dims: c.dims}, Value{Dims: c.indices}) != float64(all) {
			t.Errorf("%v: %v rows, not %d", c.dims, o.All(input, indices), all)
		}
	}
	r := Chosen{N: 2, Width: 2}.Begin()
	if err := r.Take(Value{Dims: []int64{1, 2}}, Value{Dims: []int64{1}, Data: []float32{1}}); err == nil {
		t.Error("an input without elements is taken")
	}
	for _, wrong := range []float32{2, -3, .5} {
		if err := r.Take(Value{Dims: []int64{1, 2}, Data: make([]float32, 2)}, Value{Dims: []int64{1}, Data: []float32{wrong}}); err == nil {
			t.Errorf("index %v is taken", wrong)
		}
	}
}
