package bodies

import (
	"errors"
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// list makes a sequence.
func list(items []*execute.Tensor) *execute.Tensor {
	return &execute.Tensor{List: append([]*execute.Tensor{}, items...)}
}

func items(t *execute.Tensor) ([]*execute.Tensor, error) {
	if t.List == nil {
		return nil, errors.New("its input is no sequence")
	}
	return t.List, nil
}

// place returns a position in a sequence, which may count from the end.
func place(c *op.Call, input int, n, unset int64) (int, error) {
	i, err := c.Whole(input, unset)
	if i < 0 {
		i += n
	}
	if err == nil && (i < 0 || i > n) {
		err = fmt.Errorf("position %d in a sequence of %d", i, n)
	}
	return int(i), err
}

func runSequenceConstruct(c *op.Call) ([]*execute.Tensor, error) {
	if slices.Contains(c.In, nil) {
		return nil, op.ErrMissingInput
	}
	return op.One(list(c.In), nil)
}

func runSequenceAt(c *op.Call) ([]*execute.Tensor, error) {
	s, err := items(c.In[0])
	if err != nil {
		return nil, err
	}
	i, err := place(c, 1, int64(len(s)), 0)
	if err == nil && i == len(s) {
		err = fmt.Errorf("position %d in a sequence of %d", i, len(s))
	}
	if err != nil {
		return nil, err
	}
	return op.One(s[i], nil)
}

func runSequenceErase(c *op.Call) ([]*execute.Tensor, error) {
	s, err := items(c.In[0])
	if err != nil {
		return nil, err
	}
	i, err := place(c, 1, int64(len(s)), int64(len(s)-1))
	if err == nil && i == len(s) {
		err = fmt.Errorf("position %d in a sequence of %d", i, len(s))
	}
	if err != nil {
		return nil, err
	}
	return op.One(list(slices.Delete(slices.Clone(s), i, i+1)), nil)
}

func runSequenceInsert(c *op.Call) ([]*execute.Tensor, error) {
	s, err := items(c.In[0])
	if err != nil {
		return nil, err
	}
	i, err := place(c, 2, int64(len(s)), int64(len(s)))
	if err != nil {
		return nil, err
	}
	return op.One(list(slices.Insert(slices.Clone(s), i, c.In[1])), nil)
}

func runSequenceLength(c *op.Call) ([]*execute.Tensor, error) {
	s, err := items(c.In[0])
	return op.One(op.Int64(nil, []int64{int64(len(s))}), err)
}

func runSplitToSequence(c *op.Call) ([]*execute.Tensor, error) {
	t := c.In[0]
	a, err := op.Axis(c.Int("axis", 0), len(t.Dims))
	if err != nil {
		return nil, err
	}
	sizes, left := []int64{1}, t.Dims[a]
	scalar := true
	if s := c.Input(1); s != nil {
		sizes, scalar = s.Int64s(), len(s.Dims) == 0
	}
	if scalar { // equal parts, the last one may be smaller
		size := sizes[0]
		if size < 1 {
			return nil, fmt.Errorf("parts of %d", size)
		}
		for sizes = nil; left > 0; left -= size {
			sizes = append(sizes, min(size, left))
		}
	}
	var parts []*execute.Tensor
	at := int64(0)
	for _, n := range sizes {
		if n < 0 || at+n > t.Dims[a] {
			return nil, fmt.Errorf("cannot split axis %d of dims %v into %v", a, t.Dims, sizes)
		}
		part, err := c.Slice(t, a, at, n)
		if err != nil {
			return nil, err
		}
		if c.Input(1) == nil && c.Int("keepdims", 1) == 0 {
			part.Dims = slices.Delete(slices.Clone(part.Dims), a, a+1)
		}
		parts, at = append(parts, part), at+n
	}
	return op.One(list(parts), nil)
}

func runConcatFromSequence(c *op.Call) ([]*execute.Tensor, error) {
	s, err := items(c.In[0])
	if err != nil {
		return nil, err
	}
	if len(s) == 0 {
		return nil, errors.New("its sequence is empty")
	}
	if c.Is("new_axis") {
		return op.One(stacked(c, s, c.Int("axis", 0), false))
	}
	a, err := op.Axis(c.Int("axis", 0), len(s[0].Dims))
	if err != nil {
		return nil, err
	}
	total := 0
	for _, t := range s {
		total += t.Len()
	}
	if err := c.Room(s[0].DType, []int64{int64(total)}); err != nil {
		return nil, err
	}
	return op.One(c.Concat(s, a))
}

// runSequenceMap runs its body for each element of a sequence; tensors and further sequences go along.
func runSequenceMap(c *op.Call) ([]*execute.Tensor, error) {
	s, err := items(c.In[0])
	if err != nil {
		return nil, err
	}
	g, err := body(c, "body", len(c.In))
	if err != nil {
		return nil, err
	}
	results := collector{values: make([][]*execute.Tensor, len(g.GetOutput()))}
	for i := range s {
		in := slices.Clone(c.In)
		for k, t := range in {
			if t != nil && t.List != nil {
				if i >= len(t.List) {
					return nil, fmt.Errorf("sequences of %d and %d elements", len(s), len(t.List))
				}
				in[k] = t.List[i]
			}
		}
		out, err := c.Body(g, in)
		if err != nil {
			return nil, err
		}
		if err := results.add(c, out); err != nil {
			return nil, err
		}
	}
	var lists []*execute.Tensor
	for _, r := range results.values {
		lists = append(lists, list(r))
	}
	return lists, nil
}

// runOptional hands its input on; without one, it is an optional without element.
func runOptional(c *op.Call) ([]*execute.Tensor, error) { return op.One(c.Input(0), nil) }

func runOptionalHasElement(c *op.Call) ([]*execute.Tensor, error) {
	has := uint8(0)
	if c.Input(0) != nil {
		has = 1
	}
	return op.One(execute.Made(dtype.Bool, nil, []uint8{has}), nil)
}
