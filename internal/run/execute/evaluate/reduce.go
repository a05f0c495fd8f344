package evaluate

import (
	"fmt"
	"math"
	"slices"

	"onnxquant/internal/run/execute"
)

func sum(x []float64) float64 {
	s := 0.0
	for _, v := range x {
		s += v
	}
	return s
}

func mean(x []float64) float64 { return sum(x) / float64(len(x)) }

func most(x []float64) float64 {
	m := math.Inf(-1)
	for _, v := range x {
		m = max(m, v)
	}
	return m
}

// reduceAxes applies f along the marked axes. Their dims become 1.
func reduceAxes(t *execute.Tensor, marks []bool, f func([]float64) float64) (*execute.Tensor, error) {
	if !t.IsFloat() {
		return nil, unsupported("elements of type %v", t.DType)
	}
	var kept, gone []int
	dims, n := slices.Clone(t.Dims), 1
	for i, reduce := range marks {
		if reduce {
			gone = append(gone, i)
			n *= int(t.Dims[i])
			dims[i] = 1
		} else {
			kept = append(kept, i)
		}
	}
	t, err := transpose(t, append(kept, gone...))
	if err != nil {
		return nil, err
	}
	x := t.Float64s()
	y := make([]float64, product(dims))
	for i := range y {
		y[i] = f(x[i*n : (i+1)*n])
	}
	return execute.FromFloat64s(t.DType, dims, y)
}

func (c *call) reduce(f func([]float64) float64) (*execute.Tensor, error) {
	t, list := c.in[0], c.list(1, "axes")
	if len(list) == 0 && c.int("noop_with_empty_axes", 0) != 0 {
		return t, nil
	}
	marks, err := axes(list, len(t.Dims))
	if err != nil {
		return nil, err
	}
	if len(list) == 0 {
		marks = slices.Repeat([]bool{true}, len(t.Dims))
	}
	out, err := reduceAxes(t, marks, f)
	if err != nil || c.int("keepdims", 1) != 0 {
		return out, err
	}
	dims := []int64{}
	for i, d := range out.Dims {
		if !marks[i] {
			dims = append(dims, d)
		}
	}
	return reshaped(out, dims)
}

func runGlobalAveragePool(c *call) ([]*execute.Tensor, error) {
	rank := len(c.in[0].Dims)
	if rank < 3 {
		return nil, fmt.Errorf("it has %d dimensions, want at least 3", rank)
	}
	marks := slices.Repeat([]bool{true}, rank)
	marks[0], marks[1] = false, false
	return oneOutput(reduceAxes(c.in[0], marks, mean))
}

// runSoftmax normalizes along one axis; before opset 13 over that axis and all after it.
func runSoftmax(c *call) ([]*execute.Tensor, error) {
	t := c.in[0]
	first := int64(-1)
	if c.opset < 13 {
		first = 1
	}
	a, err := axis(c.int("axis", first), len(t.Dims))
	if err != nil {
		return nil, err
	}
	marks := make([]bool, len(t.Dims))
	marks[a] = true
	for i := a; c.opset < 13 && i < len(marks); i++ {
		marks[i] = true
	}
	peak, err := reduceAxes(t, marks, most)
	if err != nil {
		return nil, err
	}
	if t, err = c.binary("Sub", t, peak); err != nil {
		return nil, err
	}
	if t, err = c.function("Exp", t); err != nil {
		return nil, err
	}
	total, err := reduceAxes(t, marks, sum)
	if err != nil {
		return nil, err
	}
	return oneOutput(c.binary("Div", t, total))
}

func runLayerNormalization(c *call) ([]*execute.Tensor, error) {
	t := c.in[0]
	a, err := axis(c.int("axis", -1), len(t.Dims))
	if err != nil {
		return nil, err
	}
	if len(c.node.Output) > 1 {
		return nil, unsupported("a second output")
	}
	marks := make([]bool, len(t.Dims))
	for i := a; i < len(marks); i++ {
		marks[i] = true
	}
	center, err := reduceAxes(t, marks, mean)
	if err != nil {
		return nil, err
	}
	if t, err = c.binary("Sub", t, center); err != nil {
		return nil, err
	}
	epsilon := float64(c.float("epsilon", 1e-5))
	deviation, err := reduceAxes(t, marks, func(x []float64) float64 {
		s := 0.0
		for _, v := range x {
			s += v * v
		}
		return math.Sqrt(s/float64(len(x)) + epsilon)
	})
	if err != nil {
		return nil, err
	}
	if t, err = c.binary("Div", t, deviation); err != nil {
		return nil, err
	}
	return oneOutput(c.affine(t, c.in[1], c.input(2)))
}

// affine is t·scale + bias.
func (c *call) affine(t, scale, bias *execute.Tensor) (*execute.Tensor, error) {
	t, err := c.binary("Mul", t, scale)
	if err != nil || bias == nil {
		return t, err
	}
	return c.binary("Add", t, bias)
}

func runBatchNormalization(c *call) ([]*execute.Tensor, error) {
	t := c.in[0]
	if c.int("training_mode", 0) != 0 || c.int("spatial", 1) != 1 || len(c.node.Output) > 1 || len(t.Dims) < 2 {
		return nil, unsupported("training_mode, spatial=0 or more than one output")
	}
	column := slices.Repeat([]int64{1}, len(t.Dims)-1)
	column[0] = t.Dims[1]
	in := slices.Clone(c.in[1:5])
	for i := range in {
		var err error
		if in[i], err = reshaped(in[i], column); err != nil {
			return nil, err
		}
	}
	epsilon := float64(c.float("epsilon", 1e-5))
	deviation, err := mapFloats(in[3], func(v float64) float64 { return math.Sqrt(v + epsilon) })
	if err != nil {
		return nil, err
	}
	if t, err = c.binary("Sub", t, in[2]); err != nil {
		return nil, err
	}
	if t, err = c.binary("Div", t, deviation); err != nil {
		return nil, err
	}
	return oneOutput(c.affine(t, in[0], in[1]))
}
