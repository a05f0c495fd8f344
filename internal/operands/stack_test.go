package operands

import (
	"slices"
	"testing"
)

// counting is a value of these dims with elements 1, 2, 3 ….
func counting(dims []int64) Value {
	v := Value{Dims: dims, Data: make([]float32, max(Value{Dims: dims}.Len(), 1))}
	for i := range v.Data {
		v.Data[i] = float32(i + 1)
	}
	return v
}

// Each matrix gets its own rows, or all rows of an input that has one matrix, or is one row. Rows of zeros are left out.
func TestStack(t *testing.T) {
	s := Stack{N: 2, Width: 2}
	for _, c := range []struct {
		dims []int64
		want [2][]int // positions
	}{
		{[]int64{2}, [2][]int{{0}, {0}}},
		{[]int64{3, 2}, [2][]int{{0, 1, 2}, {0, 1, 2}}},
		{[]int64{1, 3, 2}, [2][]int{{0, 1, 2}, {0, 1, 2}}},
		{[]int64{2, 3, 2}, [2][]int{{0, 1, 2}, {3, 5}}},
		{[]int64{2, 1, 2, 2}, [2][]int{{0, 1, 2, 3}, {0, 1, 2, 3}}},
		{[]int64{2, 2, 2, 2}, [2][]int{{0, 1, 5}, {2, 3, 6, 7}}},
		{[]int64{3, 3, 2}, [2][]int{}},
		{[]int64{2, 2, 3}, [2][]int{}},
		{[]int64{}, [2][]int{}},
	} {
		input := counting(c.dims)
		if len(input.Data) >= 10 {
			clear(input.Data[8:10]) // a row of zeros
		}
		r := s.Begin()
		if err := r.Take(input, Value{}); err != nil {
			if c.want[0] != nil {
				t.Errorf("%v: %v", c.dims, err)
			}
			continue
		}
		all := 0
		for part, want := range c.want {
			rows, at, err := r.Of(t.Context(), 1, part)
			if err != nil || !slices.Equal(at, want) || len(rows) != 2*len(at) || len(rows) > 0 && rows[0] != float32(2*at[0]+1) {
				t.Errorf("%v, matrix %d: %v at %v, %v", c.dims, part, rows, at, err)
			}
			all += len(at)
		}
		if zeros := int(s.All(input, Value{})) - all; zeros < 0 || zeros > 1 {
			t.Errorf("%v: %v rows, not %d", c.dims, s.All(input, Value{}), all)
		}
	}
}
