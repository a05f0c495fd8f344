package evaluate

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/run/execute"
)

// function applies an operator to one tensor or to tensors of the same shape.
func (e *evaluator) function(op string, in ...*execute.Tensor) (*execute.Tensor, error) {
	if !in[0].IsFloat() {
		return nil, unsupported("elements of type %v", in[0].DType)
	}
	if in[0].Len() == 0 {
		return in[0], nil
	}
	return e.elementwise(op, in...)
}

// binary broadcasts two tensors and applies an operator.
func (e *evaluator) binary(op string, a, b *execute.Tensor) (*execute.Tensor, error) {
	if a.DType != b.DType {
		return nil, errTypes
	}
	pair, err := e.broadcastAll(a, b)
	if err != nil {
		return nil, err
	}
	return e.function(op, pair...)
}

// broadcastAll expands tensors to their common shape.
func (e *evaluator) broadcastAll(in ...*execute.Tensor) ([]*execute.Tensor, error) {
	var shapes [][]int64
	for _, t := range in {
		shapes = append(shapes, t.Dims)
	}
	dims, err := broadcast(shapes...)
	if err != nil {
		return nil, err
	}
	if err := e.checkRoom(in[0].DType, dims); err != nil {
		return nil, err
	}
	out := slices.Clone(in)
	for i := range out {
		if out[i], err = expand(out[i], dims); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (c *call) calculate(ints func(a, b int64) int64) (*execute.Tensor, error) {
	if c.in[0].IsFloat() {
		return c.binary(c.node.GetOpType(), c.in[0], c.in[1])
	}
	return c.integers(c.in[0], c.in[1], ints)
}

func (e *evaluator) integers(a, b *execute.Tensor, f func(a, b int64) int64) (*execute.Tensor, error) {
	if a.DType != b.DType || a.IsFloat() {
		return nil, errTypes
	}
	pair, err := e.broadcastAll(a, b)
	if err != nil {
		return nil, err
	}
	x, y := pair[0].Int64s(), pair[1].Int64s()
	for i := range x {
		x[i] = f(x[i], y[i])
	}
	return execute.FromInt64s(a.DType, pair[0].Dims, x)
}

func logic(f func(a, b int64) int64) func(*call) ([]*execute.Tensor, error) {
	return func(c *call) ([]*execute.Tensor, error) { return oneOutput(c.integers(c.in[0], c.in[1], f)) }
}

// matrixProduct multiplies matrices, stacks of matrices and vectors as numpy.matmul does. The
// result may have merged leading dimensions, or dimensions of size 1 for vectors: the
// caller reshapes it.
func (e *evaluator) matrixProduct(a, b *execute.Tensor) (*execute.Tensor, error) {
	if a.DType != b.DType {
		return nil, errTypes
	}
	if !a.IsFloat() {
		return nil, unsupported("elements of type %v", a.DType)
	}
	if len(a.Dims) == 0 || len(b.Dims) == 0 {
		return nil, errors.New("an operand is a scalar")
	}
	ad, bd := a.Dims, b.Dims
	if len(ad) == 1 {
		ad = []int64{1, ad[0]}
	}
	if len(bd) == 1 {
		bd = []int64{bd[0], 1}
	}
	m, k, n := ad[len(ad)-2], ad[len(ad)-1], bd[len(bd)-1]
	if bd[len(bd)-2] != k {
		return nil, fmt.Errorf("cannot multiply matrices with dims %v and %v", a.Dims, b.Dims)
	}
	lead, err := broadcast(ad[:len(ad)-2], bd[:len(bd)-2])
	if err != nil {
		return nil, err
	}
	if product(bd[:len(bd)-2]) == 1 { // one matrix for all rows
		m *= product(lead)
		ad, bd = []int64{m, k}, []int64{k, n}
	}
	stack := lead
	if len(bd) == 2 && len(ad) == 2 {
		stack = nil
	}
	if a, err = reshaped(a, ad); err != nil {
		return nil, err
	}
	if a, err = expand(a, slices.Concat(stack, []int64{m, k})); err != nil {
		return nil, err
	}
	if b, err = reshaped(b, bd); err != nil {
		return nil, err
	}
	if b, err = expand(b, slices.Concat(stack, []int64{k, n})); err != nil {
		return nil, err
	}
	if err := e.checkRoom(a.DType, slices.Concat(stack, []int64{m, n})); err != nil {
		return nil, err
	}
	out, err := execute.New(a.DType, slices.Concat(stack, []int64{m, n}))
	if err != nil || len(out.Data) == 0 || k == 0 {
		return out, err
	}
	size := int64(a.Size())
	for i := range product(stack) {
		x := &execute.Tensor{DType: a.DType, Data: a.Data[i*m*k*size : (i+1)*m*k*size]}
		y := &execute.Tensor{DType: b.DType, Data: b.Data[i*k*n*size : (i+1)*k*n*size]}
		z, err := e.matMul(x, y, m, k, n)
		if err != nil {
			return nil, err
		}
		copy(out.Data[i*m*n*size:], z.Data)
	}
	return out, nil
}

func runMatMul(c *call) ([]*execute.Tensor, error) {
	a, b := c.in[0], c.in[1]
	t, err := c.matrixProduct(a, b)
	if err != nil {
		return nil, err
	}
	var am, bn []int64
	if n := len(a.Dims); n > 1 {
		am = a.Dims[n-2 : n-1]
	}
	if n := len(b.Dims); n > 1 {
		bn = b.Dims[n-1:]
	}
	lead, err := broadcast(a.Dims[:max(len(a.Dims)-2, 0)], b.Dims[:max(len(b.Dims)-2, 0)])
	if err != nil {
		return nil, err
	}
	return oneOutput(reshaped(t, slices.Concat(lead, am, bn)))
}

func runGemm(c *call) ([]*execute.Tensor, error) {
	a, b := c.in[0], c.in[1]
	if len(a.Dims) != 2 || len(b.Dims) != 2 {
		return nil, errors.New("an operand is not a matrix")
	}
	var err error
	if c.int("transA", 0) != 0 {
		if a, err = transpose(a, []int{1, 0}); err != nil {
			return nil, err
		}
	}
	if c.int("transB", 0) != 0 {
		if b, err = transpose(b, []int{1, 0}); err != nil {
			return nil, err
		}
	}
	y, err := c.matrixProduct(a, b)
	if err != nil {
		return nil, err
	}
	if y, err = c.scaled(y, c.float("alpha", 1)); err != nil {
		return nil, err
	}
	if bias := c.input(2); bias != nil {
		if bias, err = c.scaled(bias, c.float("beta", 1)); err != nil {
			return nil, err
		}
		if bias, err = expand(bias, y.Dims); err != nil {
			return nil, err
		}
		y, err = c.binary("Add", y, bias)
	}
	return oneOutput(y, err)
}

func (e *evaluator) scaled(t *execute.Tensor, by float32) (*execute.Tensor, error) {
	if by == 1 {
		return t, nil
	}
	s, err := execute.FromFloat64s(t.DType, nil, []float64{float64(by)})
	if err != nil {
		return nil, err
	}
	return e.binary("Mul", t, s)
}

// mapped is an operator that applies f to each element of a float tensor.
func mapped(f func(float64) float64) func(*call) ([]*execute.Tensor, error) {
	return func(c *call) ([]*execute.Tensor, error) { return oneOutput(mapFloats(c.in[0], f)) }
}

// variadic is an operator that combines any number of float tensors, element by element.
func variadic(f func(a, b float64) float64) func(*call) ([]*execute.Tensor, error) {
	return func(c *call) ([]*execute.Tensor, error) {
		if slices.Contains(c.in, nil) {
			return nil, errMissingInput
		}
		in, err := c.broadcastAll(c.in...)
		if err != nil {
			return nil, err
		}
		x := in[0].Float64s()
		for _, t := range in {
			if t.DType != in[0].DType || !t.IsFloat() {
				return nil, unsupported("elements of type %v", t.DType)
			}
			for i, v := range t.Float64s() {
				x[i] = f(x[i], v)
			}
		}
		return oneOutput(execute.FromFloat64s(in[0].DType, in[0].Dims, x))
	}
}

func runLeakyRelu(c *call) ([]*execute.Tensor, error) {
	alpha := float64(c.float("alpha", 0.01))
	return oneOutput(mapFloats(c.in[0], func(x float64) float64 {
		if x < 0 {
			return alpha * x
		}
		return x
	}))
}

func runClip(c *call) ([]*execute.Tensor, error) {
	lo, hi := math.Inf(-1), math.Inf(1)
	for i, limit := range []*float64{&lo, &hi} {
		name := []string{"min", "max"}[i]
		if t := c.input(i + 1); t != nil && t.Len() == 1 {
			*limit = t.Float64s()[0]
		} else if a := c.attribute(name); a != nil {
			*limit = float64(a.GetF())
		}
	}
	return oneOutput(mapFloats(c.in[0], func(x float64) float64 { return min(max(x, lo), hi) }))
}

func runPow(c *call) ([]*execute.Tensor, error) {
	pair, err := c.broadcastAll(c.in[0], c.in[1])
	if err != nil {
		return nil, err
	}
	if !pair[0].IsFloat() {
		return nil, unsupported("elements of type %v", pair[0].DType)
	}
	x, y := pair[0].Float64s(), pair[1].Float64s()
	for i := range x {
		x[i] = math.Pow(x[i], y[i])
	}
	return oneOutput(execute.FromFloat64s(pair[0].DType, pair[0].Dims, x))
}

// comparison is an operator that compares pairs of elements. holds maps the order of a
// pair, as of cmp.Compare, to the result; with NaN the result is false.
func comparison(holds func(order int) bool) operator {
	return operator{2, nil, func(c *call) ([]*execute.Tensor, error) {
		if c.in[0].DType != c.in[1].DType {
			return nil, errTypes
		}
		pair, err := c.broadcastAll(c.in[0], c.in[1])
		if err != nil {
			return nil, err
		}
		result := make([]int64, pair[0].Len())
		set := func(i, order int) {
			if holds(order) {
				result[i] = 1
			}
		}
		if pair[0].IsFloat() {
			x, y := pair[0].Float64s(), pair[1].Float64s()
			for i := range x {
				if x[i] == x[i] && y[i] == y[i] {
					set(i, cmp.Compare(x[i], y[i]))
				}
			}
		} else {
			x, y := pair[0].Int64s(), pair[1].Int64s()
			for i := range x {
				set(i, cmp.Compare(x[i], y[i]))
			}
		}
		return oneOutput(execute.FromInt64s(dtype.Bool, pair[0].Dims, result))
	}}
}

func runNot(c *call) ([]*execute.Tensor, error) {
	x := c.in[0].Int64s()
	for i := range x {
		x[i] ^= 1
	}
	return oneOutput(execute.FromInt64s(dtype.Bool, c.in[0].Dims, x))
}

func runWhere(c *call) ([]*execute.Tensor, error) {
	if c.in[1].DType != c.in[2].DType {
		return nil, errTypes
	}
	in, err := c.broadcastAll(c.in...)
	if err != nil {
		return nil, err
	}
	out := &execute.Tensor{DType: in[1].DType, Dims: in[1].Dims, Data: slices.Clone(in[2].Data)}
	size := out.Size()
	for i, condition := range in[0].Int64s() {
		if condition != 0 {
			copy(out.Data[i*size:(i+1)*size], in[1].Data[i*size:])
		}
	}
	return oneOutput(out, nil)
}

func runCast(c *call) ([]*execute.Tensor, error) {
	t, to := c.in[0], dtype.DType(c.int("to", 0))
	whole := map[dtype.DType]bool{dtype.Bool: true, dtype.Int64: true, dtype.Int32: true, dtype.Int16: true,
		dtype.Int8: true, dtype.Uint64: true, dtype.Uint32: true, dtype.Uint16: true, dtype.Uint8: true}
	if !t.IsFloat() && !whole[t.DType] || !to.Float() && !whole[to] {
		return nil, unsupported("cast from %v to %v", t.DType, to)
	}
	switch {
	case to.Float():
		return oneOutput(execute.FromFloat64s(to, t.Dims, t.Float64s()))
	case t.IsFloat():
		x := make([]int64, t.Len())
		for i, v := range t.Float64s() {
			if x[i] = int64(v); to == dtype.Bool && v != 0 {
				x[i] = 1
			}
		}
		return oneOutput(execute.FromInt64s(to, t.Dims, x))
	}
	x := t.Int64s()
	if to == dtype.Bool {
		for i := range x {
			x[i] = min(1, max(x[i], -x[i]))
		}
	}
	return oneOutput(execute.FromInt64s(to, t.Dims, x))
}
