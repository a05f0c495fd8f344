package moves

import (
	"errors"
	"fmt"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

func runSize(c *op.Call) ([]*execute.Tensor, error) {
	return op.One(op.Int64(nil, []int64{op.Product(c.In[0].Dims)}), nil)
}

func runTile(c *op.Call) ([]*execute.Tensor, error) {
	t, repeats := c.In[0], c.In[1].Int64s()
	if len(repeats) != len(t.Dims) {
		return nil, fmt.Errorf("%d repeats for %d dimensions", len(repeats), len(t.Dims))
	}
	// Axis i becomes two: repeats and the axis.
	var dims, steps, result []int64
	for i, s := range op.Strides(t.Dims) {
		if repeats[i] < 0 || repeats[i] > execute.MaxBytes {
			return nil, fmt.Errorf("repeats %v", repeats)
		}
		dims, steps = append(dims, repeats[i], t.Dims[i]), append(steps, 0, s)
		result = append(result, repeats[i]*t.Dims[i])
	}
	if err := c.Room(t.DType, result); err != nil {
		return nil, err
	}
	out, err := c.View(t, dims, steps, 0)
	if err != nil {
		return nil, err
	}
	return op.One(op.Reshaped(out, result))
}

// runTrilu keeps a triangle of matrices.
func runTrilu(c *op.Call) ([]*execute.Tensor, error) {
	t := c.In[0]
	k, err := c.Whole(1, 0)
	if err != nil {
		return nil, err
	}
	if len(t.Dims) < 2 {
		return nil, fmt.Errorf("dims %v are no matrices", t.Dims)
	}
	upper := c.Int("upper", 1) != 0
	rows, columns := t.Dims[len(t.Dims)-2], t.Dims[len(t.Dims)-1]
	out, size := clone(t), t.Size()
	for i := range out.Len() {
		row, column := int64(i)/columns%rows, int64(i)%columns
		if upper && column-row < k || !upper && column-row > k {
			clear(out.Data[i*size : (i+1)*size])
		}
	}
	return op.One(out, nil)
}

func runEyeLike(c *op.Call) ([]*execute.Tensor, error) {
	t, k := c.In[0], c.Int("k", 0)
	if len(t.Dims) != 2 {
		return nil, fmt.Errorf("dims %v are no matrix", t.Dims)
	}
	x := make([]float64, t.Len())
	for i := range t.Dims[0] {
		if j := i + k; j >= 0 && j < t.Dims[1] {
			x[i*t.Dims[1]+j] = 1
		}
	}
	return op.One(op.Numbers(dtype.DType(c.Int("dtype", int64(t.DType))), t.Dims, x))
}

func runOneHot(c *op.Call) ([]*execute.Tensor, error) {
	indices, values := c.In[0], c.In[2]
	depth, err := c.Whole(1, 0)
	if err != nil {
		return nil, err
	}
	if values.Len() != 2 || depth < 1 {
		return nil, fmt.Errorf("depth %d, %d values", depth, values.Len())
	}
	a, err := op.Axis(c.Int("axis", -1), len(indices.Dims)+1)
	if err != nil {
		return nil, err
	}
	dims := slices.Insert(slices.Clone(indices.Dims), a, depth)
	if err := c.Room(values.DType, dims); err != nil {
		return nil, err
	}
	out, err := c.New(values.DType, dims)
	if err != nil {
		return nil, err
	}
	_, _, inner := op.Sizes(dims, a)
	list := indices.Float64s()
	for i := range out.Len() {
		at, k := i/inner/int(depth)*inner+i%inner, int64(i/inner)%depth
		hot := int64(list[at])
		if hot < 0 {
			hot += depth
		}
		if hot == k {
			element(out, i, values, 1)
		} else {
			element(out, i, values, 0)
		}
	}
	return op.One(out, nil)
}

func runNonZero(c *op.Call) ([]*execute.Tensor, error) {
	t := c.In[0]
	var found []int
	for i, v := range t.Float64s() {
		if v != 0 {
			found = append(found, i)
		}
	}
	steps := op.Strides(t.Dims)
	list := make([]int64, 0, len(steps)*len(found))
	for axis, s := range steps {
		for _, i := range found {
			list = append(list, int64(i)/s%t.Dims[axis])
		}
	}
	return op.One(op.Int64([]int64{int64(len(steps)), int64(len(found))}, list), nil)
}

func runSpaceToDepth(c *op.Call) ([]*execute.Tensor, error) {
	t, b := c.In[0], c.Int("blocksize", 0)
	if len(t.Dims) != 4 || b < 1 || t.Dims[2]%b != 0 || t.Dims[3]%b != 0 {
		return nil, fmt.Errorf("blocksize %d does not fit dims %v", b, t.Dims)
	}
	n, ch, h, w := t.Dims[0], t.Dims[1], t.Dims[2]/b, t.Dims[3]/b
	t, err := op.Reshaped(t, []int64{n, ch, h, b, w, b})
	if err != nil {
		return nil, err
	}
	perm := []int{0, 3, 5, 1, 2, 4}
	if c.Text("mode", "DCR") == "CRD" {
		perm = []int{0, 1, 3, 5, 2, 4}
	}
	if t, err = c.Transpose(t, perm); err != nil {
		return nil, err
	}
	return op.One(op.Reshaped(t, []int64{n, ch * b * b, h, w}))
}

// runCenterCropPad cuts or pads both ends of axes to sizes.
func runCenterCropPad(c *op.Call) ([]*execute.Tensor, error) {
	t, sizes := c.In[0], c.In[1].Int64s()
	list := c.Ints("axes", nil)
	if list == nil {
		for i := range t.Dims {
			list = append(list, int64(i))
		}
	}
	if len(list) != len(sizes) {
		return nil, fmt.Errorf("%d sizes for %d axes", len(sizes), len(list))
	}
	for i, axis := range list {
		a, err := op.Axis(axis, len(t.Dims))
		if err != nil {
			return nil, err
		}
		d := t.Dims[a]
		if sizes[i] < 0 || sizes[i] > execute.MaxBytes {
			return nil, fmt.Errorf("sizes %v", sizes)
		}
		if sizes[i] <= d {
			if t, err = c.Slice(t, a, (d-sizes[i])/2, sizes[i]); err != nil {
				return nil, err
			}
			continue
		}
		before, after := make([]int64, len(t.Dims)), make([]int64, len(t.Dims))
		before[a] = (sizes[i] - d) / 2
		after[a] = sizes[i] - d - before[a]
		padded := slices.Clone(t.Dims)
		padded[a] = sizes[i]
		if err := c.Room(t.DType, padded); err != nil {
			return nil, err
		}
		if t, err = c.Pad(t, before, after, make([]byte, t.Size())); err != nil {
			return nil, err
		}
	}
	return op.One(t, nil)
}

// runUnique sorts the slices along an axis, or all elements, and drops what is equal.
func runUnique(c *op.Call) ([]*execute.Tensor, error) {
	t, a := c.In[0], 0
	var err error
	if c.Attribute("axis") == nil {
		t, err = op.Reshaped(t, []int64{int64(t.Len())})
	} else {
		a, err = op.Axis(c.Int("axis", 0), len(t.Dims))
	}
	if err != nil {
		return nil, err
	}
	if t.DType == dtype.String {
		return nil, op.BadType(t)
	}
	rows, err := c.Transpose(t, toFirst(len(t.Dims), a))
	if err != nil {
		return nil, err
	}
	n := int(t.Dims[a])
	if n == 0 {
		return nil, errors.New("it has no elements")
	}
	x := rows.Float64s()
	size := len(x) / n
	row := func(i int) []float64 { return x[i*size:][:size] }
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return slices.Compare(row(i), row(j)) })
	var first, inverse, counts []int64
	inverse = make([]int64, n)
	for k, i := range order {
		if k == 0 || slices.Compare(row(order[k-1]), row(i)) != 0 {
			first, counts = append(first, int64(i)), append(counts, 0)
		}
		inverse[i] = int64(len(first) - 1)
		counts[len(counts)-1]++
	}
	if c.Int("sorted", 1) == 0 {
		first, inverse, counts = byAppearance(first, inverse, counts)
	}
	list := func(x []int64) *execute.Tensor { return op.Int64([]int64{int64(len(x))}, x) }
	y, err := c.Gather(t, list(first), a)
	return []*execute.Tensor{y, list(first), list(inverse), list(counts)}, err
}

// byAppearance reorders groups by their first members.
func byAppearance(first, inverse, counts []int64) (a, b, c []int64) {
	order := make([]int, len(first))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return int(first[i] - first[j]) })
	place := make([]int64, len(order))
	for k, i := range order {
		a, c, place[i] = append(a, first[i]), append(c, counts[i]), int64(k)
	}
	for _, group := range inverse {
		b = append(b, place[group])
	}
	return a, b, c
}

// toFirst is the permutation that moves an axis to the front.
func toFirst(rank, axis int) []int {
	perm := []int{axis}
	for i := range rank {
		if i != axis {
			perm = append(perm, i)
		}
	}
	return perm
}
