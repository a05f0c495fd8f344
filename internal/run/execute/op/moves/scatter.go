package moves

import (
	"errors"
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// element copies element j of from to element i of to.
func element(to *execute.Tensor, i int, from *execute.Tensor, j int) {
	if to.Text != nil {
		to.Text[i] = from.Text[j]
		return
	}
	size := to.Size()
	copy(to.Data[i*size:(i+1)*size], from.Data[j*size:])
}

// clone copies a tensor that will change.
func clone(t *execute.Tensor) *execute.Tensor {
	return &execute.Tensor{DType: t.DType, Dims: t.Dims, Data: slices.Clone(t.Data), Text: slices.Clone(t.Text)}
}

// index checks an index, which may count from the end.
func index(i, n int64) (int64, error) {
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return 0, fmt.Errorf("index %d is out of range for %d elements", i, n)
	}
	return i, nil
}

// alongAxis calls do with the number of each element of indices and with that of the element of data that it
// names along an axis.
func alongAxis(data, indices *execute.Tensor, a int, do func(i, at int)) error {
	if len(data.Dims) != len(indices.Dims) {
		return fmt.Errorf("indices with dims %v for dims %v", indices.Dims, data.Dims)
	}
	for k, d := range indices.Dims {
		if k != a && d > data.Dims[k] {
			return fmt.Errorf("indices with dims %v for dims %v", indices.Dims, data.Dims)
		}
	}
	steps := op.Strides(data.Dims)
	along := steps[a]
	steps[a] = 0
	list := indices.Int64s()
	var failed error
	w := op.NewWalk(indices.Dims, op.Strides(indices.Dims), steps)
	w.Runs(func(at []int, n int) {
		for k := range n {
			i := at[0] + k*w.Step(0)
			chosen, err := index(list[i], data.Dims[a])
			if err != nil {
				failed = err
				return
			}
			do(i, at[1]+k*w.Step(1)+int(chosen*along))
		}
	})
	return failed
}

func runGatherElements(c *op.Call) ([]*execute.Tensor, error) {
	t := c.In[0]
	a, err := op.Axis(c.Int("axis", 0), len(t.Dims))
	if err != nil {
		return nil, err
	}
	if err := c.Room(t.DType, c.In[1].Dims); err != nil {
		return nil, err
	}
	out, err := c.New(t.DType, c.In[1].Dims)
	if err != nil {
		return nil, err
	}
	return op.One(out, alongAxis(t, c.In[1], a, func(i, at int) { element(out, i, t, at) }))
}

// combiners are what the attribute reduction of scatters names.
var combiners = map[string]func(a, b float64) float64{
	"add": func(a, b float64) float64 { return a + b },
	"mul": func(a, b float64) float64 { return a * b },
	"max": func(a, b float64) float64 { return max(a, b) },
	"min": func(a, b float64) float64 { return min(a, b) },
}

// scatter changes elements of a copy of data. walk calls do with the numbers of elements in it and in updates.
func scatter(c *op.Call, data, updates *execute.Tensor, walk func(do func(at, from int)) error) ([]*execute.Tensor, error) {
	if data.DType != updates.DType {
		return nil, op.ErrTypes
	}
	if err := c.Room(data.DType, data.Dims); err != nil {
		return nil, err
	}
	how := c.Text("reduction", "none")
	if how == "none" {
		out := clone(data)
		return op.One(out, walk(func(at, from int) { element(out, at, updates, from) }))
	}
	f := combiners[how]
	if f == nil || data.DType == dtype.String {
		return nil, op.Unsupported("reduction %q of %v", how, data.DType)
	}
	x, y := data.Float64s(), updates.Float64s()
	if err := walk(func(at, from int) { x[at] = f(x[at], y[from]) }); err != nil {
		return nil, err
	}
	return op.One(op.Numbers(data.DType, data.Dims, x))
}

func runScatterElements(c *op.Call) ([]*execute.Tensor, error) {
	data, indices, updates := c.In[0], c.In[1], c.In[2]
	a, err := op.Axis(c.Int("axis", 0), len(data.Dims))
	if err != nil {
		return nil, err
	}
	if !slices.Equal(indices.Dims, updates.Dims) {
		return nil, fmt.Errorf("indices with dims %v, updates with dims %v", indices.Dims, updates.Dims)
	}
	return scatter(c, data, updates, func(do func(at, from int)) error {
		return alongAxis(data, indices, a, func(i, at int) { do(at, i) })
	})
}

// slices finds the part of data, of size elements, that each vector of indices names, behind some batch axes.
func eachSlice(data, indices *execute.Tensor, batch int, do func(number, at int)) (size int, err error) {
	rank := len(indices.Dims) - 1
	if rank < batch || batch < 0 || batch > len(data.Dims) || indices.Dims[rank] > int64(len(data.Dims)-batch) || !slices.Equal(data.Dims[:batch], indices.Dims[:batch]) {
		return 0, fmt.Errorf("indices with dims %v for dims %v, %d of them in common", indices.Dims, data.Dims, batch)
	}
	width := int(indices.Dims[rank])
	steps := op.Strides(data.Dims)
	size = int(op.Product(data.Dims[batch+width:]))
	list := indices.Int64s()
	perBatch := int(op.Product(indices.Dims[batch:rank]))
	inBatch := int(op.Product(data.Dims[batch:]))
	for n := range int(op.Product(indices.Dims[:rank])) {
		at := n / perBatch * inBatch
		for k := range width {
			i, err := index(list[n*width+k], data.Dims[batch+k])
			if err != nil {
				return 0, err
			}
			at += int(i * steps[batch+k])
		}
		do(n, at)
	}
	return size, nil
}

func runGatherND(c *op.Call) ([]*execute.Tensor, error) {
	t, indices := c.In[0], c.In[1]
	batch := int(c.Int("batch_dims", 0))
	var places []int
	if len(indices.Dims) == 0 {
		return nil, errors.New("its indices are a scalar")
	}
	size, err := eachSlice(t, indices, batch, func(_, at int) { places = append(places, at) })
	if err != nil {
		return nil, err
	}
	last := len(indices.Dims) - 1
	dims := slices.Concat(indices.Dims[:last], t.Dims[batch+int(indices.Dims[last]):])
	if err := c.Room(t.DType, dims); err != nil {
		return nil, err
	}
	out, err := c.New(t.DType, dims)
	if err != nil {
		return nil, err
	}
	for n, at := range places {
		for k := range size {
			element(out, n*size+k, t, at+k)
		}
	}
	return op.One(out, nil)
}

func runScatterND(c *op.Call) ([]*execute.Tensor, error) {
	data, indices, updates := c.In[0], c.In[1], c.In[2]
	if len(indices.Dims) == 0 {
		return nil, errors.New("its indices are a scalar")
	}
	var places []int
	size, err := eachSlice(data, indices, 0, func(_, at int) { places = append(places, at) })
	if err != nil {
		return nil, err
	}
	if updates.Len() != size*len(places) {
		return nil, fmt.Errorf("%d updates for %d elements", updates.Len(), size*len(places))
	}
	return scatter(c, data, updates, func(do func(at, from int)) error {
		for n, at := range places {
			for k := range size {
				do(at+k, n*size+k)
			}
		}
		return nil
	})
}

// runTensorScatter writes updates into a cache, from the given positions on.
func runTensorScatter(c *op.Call) ([]*execute.Tensor, error) {
	cache, updates := c.In[0], c.In[1]
	a, err := op.Axis(c.Int("axis", -2), len(cache.Dims))
	if err != nil {
		return nil, err
	}
	if len(updates.Dims) != len(cache.Dims) || a == 0 || cache.DType != updates.DType {
		return nil, fmt.Errorf("updates with dims %v for dims %v", updates.Dims, cache.Dims)
	}
	for k, d := range updates.Dims {
		if k != a && d != cache.Dims[k] || d > cache.Dims[k] {
			return nil, fmt.Errorf("updates with dims %v for dims %v", updates.Dims, cache.Dims)
		}
	}
	starts := make([]int64, cache.Dims[0])
	if t := c.Input(2); t != nil {
		starts = t.Int64s()
	}
	if int64(len(starts)) != cache.Dims[0] {
		return nil, fmt.Errorf("%d positions for %d caches", len(starts), cache.Dims[0])
	}
	circular := c.Text("mode", "linear") == "circular"
	out := clone(cache)
	outer, n, inner := op.Sizes(cache.Dims, a)
	length := int(updates.Dims[a])
	for o := range outer {
		start := starts[o/(outer/len(starts))]
		for k := range length {
			at := start + int64(k)
			if circular {
				at = (at%int64(n) + int64(n)) % int64(n)
			}
			if at < 0 || at >= int64(n) {
				return nil, fmt.Errorf("position %d is out of range for %d elements", at, n)
			}
			for i := range inner {
				element(out, (o*n+int(at))*inner+i, updates, (o*length+k)*inner+i)
			}
		}
	}
	return op.One(out, nil)
}

// runCompress keeps the slices for which a condition holds.
func runCompress(c *op.Call) ([]*execute.Tensor, error) {
	t, condition := c.In[0], c.In[1].Int64s()
	a := 0
	var err error
	if c.Attribute("axis") == nil {
		t, err = op.Reshaped(t, []int64{int64(t.Len())})
	} else {
		a, err = op.Axis(c.Int("axis", 0), len(t.Dims))
	}
	if err != nil {
		return nil, err
	}
	var kept []int64
	for i, v := range condition {
		if v != 0 {
			kept = append(kept, int64(i))
		}
	}
	return op.One(c.Gather(t, op.Int64([]int64{int64(len(kept))}, kept), a))
}

func runReverseSequence(c *op.Call) ([]*execute.Tensor, error) {
	t := c.In[0]
	time, batch := int(c.Int("time_axis", 0)), int(c.Int("batch_axis", 1))
	if len(t.Dims) < 2 || time == batch || min(time, batch) < 0 || max(time, batch) > 1 {
		return nil, fmt.Errorf("time_axis %d and batch_axis %d of dims %v", time, batch, t.Dims)
	}
	lengths := c.In[1].Int64s()
	if int64(len(lengths)) != t.Dims[batch] {
		return nil, fmt.Errorf("%d lengths for %d sequences", len(lengths), t.Dims[batch])
	}
	out := clone(t)
	inner := int(op.Product(t.Dims[2:]))
	place := func(b, k int64) int {
		at := [2]int64{}
		at[time], at[batch] = k, b
		return int(at[0]*t.Dims[1]+at[1]) * inner
	}
	for b, n := range lengths {
		if n < 0 || n > t.Dims[time] {
			return nil, fmt.Errorf("a sequence of length %d among %d", n, t.Dims[time])
		}
		for k := range n {
			for i := range inner {
				element(out, place(int64(b), k)+i, t, place(int64(b), n-1-k)+i)
			}
		}
	}
	return op.One(out, nil)
}
