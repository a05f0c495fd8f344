package op

import (
	"errors"
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/kernels"
	"onnxquant/internal/run/execute"
)

// copyStrided copies elements of size bytes between tensors.
func copyStrided(size int, dims []int64, to []byte, toSteps []int64, toStart int, from []byte, fromSteps []int64, fromStart int) {
	w := NewWalk(dims, toSteps, fromSteps)
	if w.Step(0) == 1 && w.Step(1) == 1 {
		w.Runs(func(at []int, n int) {
			copy(to[(toStart+at[0])*size:][:n*size], from[(fromStart+at[1])*size:])
		})
		return
	}
	switch size {
	case 1:
		copyRuns(w, to, toStart, from, fromStart)
		return
	case 4:
		if x, y := kernels.View[uint32](from), kernels.View[uint32](to); x != nil && y != nil {
			copyRuns(w, y, toStart, x, fromStart)
			return
		}
	case 8:
		if x, y := kernels.View[uint64](from), kernels.View[uint64](to); x != nil && y != nil {
			copyRuns(w, y, toStart, x, fromStart)
			return
		}
	}
	w.Runs(func(at []int, n int) {
		i, j := (toStart+at[0])*size, (fromStart+at[1])*size
		for range n {
			copy(to[i:i+size], from[j:])
			i, j = i+w.Step(0)*size, j+w.Step(1)*size
		}
	})
}

func copyRuns[T any](w *Walk, to []T, toStart int, from []T, fromStart int) {
	a, b := w.Step(0), w.Step(1)
	w.Runs(func(at []int, n int) {
		i, j := toStart+at[0], fromStart+at[1]
		for range n {
			to[i] = from[j]
			i, j = i+a, j+b
		}
	})
}

// View copies the elements of t at start + Σ index·steps. A step of 0 repeats elements, a
// negative one reverses them.
func (c *Call) View(t *execute.Tensor, dims, steps []int64, start int64) (*execute.Tensor, error) {
	out, err := c.New(t.DType, dims)
	if err != nil {
		return nil, err
	}
	if t.Text != nil {
		copyRuns(NewWalk(dims, Strides(dims), steps), out.Text, 0, t.Text, int(start))
		return out, nil
	}
	copyStrided(t.Size(), dims, out.Data, Strides(dims), 0, t.Data, steps, int(start))
	return out, nil
}

// Paste is the inverse of View: it copies the elements of t into out.
func Paste(out, t *execute.Tensor, steps []int64, start int64) {
	if t.Text != nil {
		copyRuns(NewWalk(t.Dims, steps, Strides(t.Dims)), out.Text, int(start), t.Text, 0)
		return
	}
	copyStrided(t.Size(), t.Dims, out.Data, steps, int(start), t.Data, Strides(t.Dims), 0)
}

// Filled makes a tensor of copies of an element.
func (c *Call) Filled(typ dtype.DType, dims []int64, element []byte) (*execute.Tensor, error) {
	t, err := c.New(typ, dims)
	if err != nil || len(t.Data) == 0 {
		return t, err
	}
	if slices.Equal(element, make([]byte, len(element))) {
		clear(t.Data)
		return t, nil
	}
	for n := copy(t.Data, element); n < len(t.Data); n *= 2 {
		copy(t.Data[n:], t.Data[:n])
	}
	return t, nil
}

// Expand broadcasts t to dims.
func (c *Call) Expand(t *execute.Tensor, dims []int64) (*execute.Tensor, error) {
	if slices.Equal(t.Dims, dims) {
		return t, nil
	}
	return c.View(t, dims, Spread(t.Dims, dims), 0)
}

// Transpose moves axis perm[i] to place i.
func (c *Call) Transpose(t *execute.Tensor, perm []int) (*execute.Tensor, error) {
	from := Strides(t.Dims)
	dims, steps := make([]int64, len(perm)), make([]int64, len(perm))
	moved, last := false, -1
	for i, p := range perm {
		dims[i], steps[i] = t.Dims[p], from[p]
		if t.Dims[p] != 1 { // axes of size 1 may move
			moved = moved || p < last
			last = p
		}
	}
	if !moved {
		return Reshaped(t, dims)
	}
	return c.View(t, dims, steps, 0)
}

// ToLast moves an axis to the end.
func (c *Call) ToLast(t *execute.Tensor, axis int) (*execute.Tensor, error) {
	return c.Transpose(t, moved(len(t.Dims), axis, len(t.Dims)-1))
}

// FromLast is the inverse of ToLast.
func (c *Call) FromLast(t *execute.Tensor, axis int) (*execute.Tensor, error) {
	return c.Transpose(t, moved(len(t.Dims), len(t.Dims)-1, axis))
}

// moved is the permutation that moves one axis.
func moved(rank, from, to int) []int {
	perm := []int{}
	for i := range rank {
		if i != from {
			perm = append(perm, i)
		}
	}
	return slices.Insert(perm, to, from)
}

// Slice copies n elements along an axis, from start on.
func (c *Call) Slice(t *execute.Tensor, axis int, start, n int64) (*execute.Tensor, error) {
	dims := slices.Clone(t.Dims)
	dims[axis] = n
	s := Strides(t.Dims)
	return c.View(t, dims, s, start*s[axis])
}

// Pad adds elements at both ends of each axis. A negative number removes elements.
func (c *Call) Pad(t *execute.Tensor, before, after []int64, element []byte) (*execute.Tensor, error) {
	for i := range t.Dims {
		if cut := max(-before[i], 0) + max(-after[i], 0); cut > 0 {
			if cut > t.Dims[i] {
				return nil, errors.New("negative pads remove more elements than there are")
			}
			var err error
			if t, err = c.Slice(t, i, max(-before[i], 0), t.Dims[i]-cut); err != nil {
				return nil, err
			}
		}
	}
	dims := slices.Clone(t.Dims)
	for i := range dims {
		dims[i] += max(before[i], 0) + max(after[i], 0)
	}
	if slices.Equal(dims, t.Dims) {
		return t, nil
	}
	out, err := c.Filled(t.DType, dims, element)
	if err != nil {
		return nil, err
	}
	start := int64(0)
	s := Strides(dims)
	for i := range dims {
		start += max(before[i], 0) * s[i]
	}
	Paste(out, t, s, start)
	return out, nil
}

// Concat joins tensors along an axis.
func (c *Call) Concat(parts []*execute.Tensor, a int) (*execute.Tensor, error) {
	dims := slices.Clone(parts[0].Dims)
	for _, p := range parts[1:] {
		if len(p.Dims) != len(dims) || p.DType != parts[0].DType {
			return nil, ErrTypes
		}
		for i, d := range p.Dims {
			if i != a && d != dims[i] {
				return nil, fmt.Errorf("cannot concatenate dims %v and %v", dims, p.Dims)
			}
		}
		dims[a] += p.Dims[a]
	}
	out, err := c.New(parts[0].DType, dims)
	if err != nil {
		return nil, err
	}
	s := Strides(dims)
	at := int64(0)
	for _, p := range parts {
		Paste(out, p, s, at*s[a])
		at += p.Dims[a]
	}
	return out, nil
}

// Gather copies the slices of t at the indices along an axis.
func (c *Call) Gather(t, indices *execute.Tensor, a int) (*execute.Tensor, error) {
	out, err := c.New(t.DType, slices.Concat(t.Dims[:a], indices.Dims, t.Dims[a+1:]))
	if err != nil {
		return nil, err
	}
	outer, n, inner := Sizes(t.Dims, a)
	list := indices.Int64s()
	for k, i := range list {
		if i < 0 {
			list[k] += int64(n)
		}
		if list[k] < 0 || list[k] >= int64(n) {
			return nil, fmt.Errorf("index %d is out of range for %d elements", i, n)
		}
	}
	if t.Text != nil {
		gatherRows(out.Text, t.Text, outer, n, inner, list)
	} else {
		gatherRows(out.Data, t.Data, outer, n, inner*t.Size(), list)
	}
	return out, nil
}

func gatherRows[T any](to, from []T, outer, n, inner int, list []int64) {
	for o := range outer {
		for _, i := range list {
			at := (o*n + int(i)) * inner
			to = to[copy(to, from[at:at+inner]):]
		}
	}
}
