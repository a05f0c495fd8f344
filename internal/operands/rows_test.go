package operands

import (
	"slices"
	"testing"
)

// count returns numbers from first on.
func count(first, n int) []float32 {
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(first + i)
	}
	return x
}

// A patch has, for each channel, what the kernel covers, and zeros beside the image.
func TestPatches(t *testing.T) {
	image := Value{Dims: []int64{2, 2, 2, 3}, Data: count(1, 24)}
	c := Convolution{Groups: 1, Kernel: []int64{2, 2}, Strides: []int64{1, 2}, Dilations: []int64{1, 2}, Before: []int64{0, 1}, After: []int64{0, 0}}
	r, err := c.Rows(image, Value{}, 8)
	if err != nil || r.Len() != 2 {
		t.Fatalf("%v, %d rows", err, r.Len())
	}
	// The kernel covers columns -1 and 1 of both rows; the second image follows 12 elements later.
	for i, want := range [][]float32{{0, 2, 0, 5, 0, 8, 0, 11}, {0, 14, 0, 17, 0, 20, 0, 23}} {
		if got := r.Input(i); !slices.Equal(got, want) {
			t.Errorf("row %d: %v, want %v", i, got, want)
		}
	}
	product := Value{Data: count(1, 6)} // three channels of one position, in two images
	if got := r.Output(1, product, make([]float32, 3)); !slices.Equal(got, []float32{4, 5, 6}) {
		t.Errorf("output %v", got)
	}
	for _, dims := range [][]int64{{2, 12}, {1, 3, 2, 4}} {
		if _, err := c.Rows(Value{Dims: dims, Data: image.Data}, Value{}, 8); err == nil {
			t.Errorf("an image of %v", dims)
		}
	}
}

// The states before each step: those of the step before, or after it in the direction that goes back.
func TestStates(t *testing.T) {
	// Three steps, two directions, one sample, two elements.
	states, initial := count(0, 12), count(100, 4)
	want := [][]float32{{100, 101, 6, 7}, {0, 1, 10, 11}, {4, 5, 102, 103}}
	for _, first := range []bool{false, true} {
		dims := []int64{3, 2, 1, 2}
		if first {
			dims = []int64{1, 3, 2, 2} // with one sample, the elements lie alike
		}
		r, err := Recurrence{Directions: 2, BatchFirst: first}.Rows(Value{dims, states}, Value{Data: initial}, 4)
		if err != nil {
			t.Fatal(err)
		}
		for i, w := range want {
			if got := r.Input(i); !slices.Equal(got, w) {
				t.Errorf("batch first %v, row %d: %v, want %v", first, i, got, w)
			}
		}
	}
	back, err := Recurrence{Directions: 1, Reverse: true}.Rows(Value{[]int64{2, 1, 1, 2}, count(0, 4)}, Value{}, 2)
	if err != nil || !slices.Equal(back.Input(0), []float32{2, 3}) || !slices.Equal(back.Input(1), []float32{0, 0}) {
		t.Errorf("%v: %v", err, back)
	}
	for _, bad := range []struct{ states, initial Value }{
		{Value{[]int64{3, 4}, states}, Value{}}, {Value{[]int64{3, 1, 2, 2}, states}, Value{}}, {Value{[]int64{3, 2, 1, 2}, states}, Value{Data: count(0, 3)}},
	} {
		if _, err := (Recurrence{Directions: 2}).Rows(bad.states, bad.initial, 4); err == nil {
			t.Errorf("%v, %v: no error", bad.states.Dims, bad.initial.Data)
		}
	}
}

// Some rows are different ones, from all over.
func TestSome(t *testing.T) {
	all, err := Matrix{}.Rows(Value{Data: count(0, 100)}, Value{}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for first := range 3 {
		s, seen := Some{all, 40, first}, map[float32]bool{}
		for i := range s.Len() {
			seen[s.Input(i)[0]] = true
		}
		if len(seen) != 40 || !seen[float32(first)] {
			t.Errorf("from %d: %d rows, %v", first, len(seen), seen)
		}
	}
	if s := (Some{all, 200, 7}); s.Len() != 100 || s.Input(3)[0] != 3 {
		t.Error("all of them")
	}
	if _, err := (Matrix{}).Rows(Value{Data: count(0, 100)}, Value{}, 7); err == nil {
		t.Error("rows of 7")
	}
}
