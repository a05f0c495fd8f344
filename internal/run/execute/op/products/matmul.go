// Package products has the operators that are sums of products: of matrices, convolutions, and what models do
// with these.
package products

import (
	"errors"
	"fmt"
	"slices"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"

	"onnxquant/formats/dtype"
	"onnxquant/internal/linalg"
	"onnxquant/internal/run/execute"
	"onnxquant/internal/run/execute/op"
)

// operand is a stack of matrices [rows, columns] in a tensor. Its rows or its columns are contiguous.
type operand struct {
	*execute.Tensor
	lead          []int64
	rows, columns int
	transposed    bool // the tensor has the columns one after another
}

// matrices sees a tensor as a stack of matrices, a vector as one row or column.
func matrices(t *execute.Tensor, column bool) (operand, error) {
	switch n := len(t.Dims); {
	case n == 0:
		return operand{}, errors.New("an operand is a scalar")
	case n == 1 && column:
		return operand{t, nil, int(t.Dims[0]), 1, false}, nil
	case n == 1:
		return operand{t, nil, 1, int(t.Dims[0]), false}, nil
	default:
		return operand{t, t.Dims[:n-2], int(t.Dims[n-2]), int(t.Dims[n-1]), false}, nil
	}
}

func (o operand) transpose() operand {
	o.rows, o.columns, o.transposed = o.columns, o.rows, !o.transposed
	return o
}

// matrix is number i of the stack.
func (o operand) matrix(data []float32, i int) linalg.Matrix {
	data = data[i*o.rows*o.columns:][:o.rows*o.columns]
	if o.transposed {
		return linalg.Of(data, o.columns, o.rows).T()
	}
	return linalg.Of(data, o.rows, o.columns)
}

// product multiplies stacks of matrices, which are broadcast, to a tensor with dims lead…, rows, columns. start
// is what they are added to, or empty.
func product(c *op.Call, a, b operand, start linalg.Matrix) (*execute.Tensor, error) {
	if a.DType != b.DType {
		return nil, op.ErrTypes
	}
	if a.columns != b.rows {
		return nil, fmt.Errorf("cannot multiply matrices with dims %v and %v", a.Dims, b.Dims)
	}
	lead, err := op.Broadcast(a.lead, b.lead)
	if err != nil {
		return nil, err
	}
	dims := slices.Concat(lead, []int64{int64(a.rows), int64(b.columns)})
	if op.Product(b.lead) == 1 && !a.transposed { // one matrix for all rows
		a.rows *= int(op.Product(a.lead))
		a.lead, lead = nil, nil
	}
	if err := c.Spend(float64(op.Product(dims)) * float64(a.columns)); err != nil {
		return nil, err
	}
	if err := c.Room(a.DType, dims); err != nil {
		return nil, err
	}
	places := newStack(lead, a.lead, b.lead)
	switch {
	case !a.IsFloat():
		return wholeProduct(places, a, b, dims)
	case c.Arithmetic() != nil && op.Product(dims) > 0 && a.columns > 0:
		return otherProduct(c, places, a, b, dims)
	case a.DType == dtype.Float64:
		return doubleProduct(c, places, a, b, dims)
	}
	return c.NewFloats(a.DType, dims, func(y []float32) error {
		left, right := op.Floats(a.Tensor), op.Floats(b.Tensor)
		list := make([]linalg.Product, len(places))
		size := a.rows * b.columns
		for i, p := range places {
			list[i] = linalg.Product{C: linalg.Of(y[i*size:], a.rows, b.columns), A: a.matrix(left, p[0]), B: b.matrix(right, p[1]), Fresh: true, Start: start}
		}
		if c.Last != nil {
			for i := range list {
				list[i].Last = op.Floats(c.Last)
			}
		}
		return linalg.AddProducts(c.Context(), op.Workers(), list)
	})
}

// newStack lists which matrices of two stacks meet when they are broadcast to lead.
func newStack(lead, a, b []int64) (pairs [][2]int) {
	w := op.NewWalk(lead, op.Spread(a, lead), op.Spread(b, lead))
	w.Runs(func(at []int, n int) {
		for i := range n {
			pairs = append(pairs, [2]int{at[0] + i*w.Step(0), at[1] + i*w.Step(1)})
		}
	})
	return pairs
}

// wholeProduct multiplies integers.
func wholeProduct(places [][2]int, a, b operand, dims []int64) (*execute.Tensor, error) {
	if a.DType == dtype.String || a.DType == dtype.Bool {
		return nil, op.BadType(a.Tensor)
	}
	return execute.FromInt64s(a.DType, dims, wholes(places, a, b, a.Int64s(), b.Int64s()))
}

func wholes(places [][2]int, a, b operand, x, y []int64) []int64 {
	step := func(o operand) (row, column int) {
		if o.transposed {
			return 1, o.rows
		}
		return o.columns, 1
	}
	ar, ac := step(a)
	br, bc := step(b)
	z := make([]int64, 0, len(places)*a.rows*b.columns)
	for _, p := range places {
		for i := range a.rows {
			for j := range b.columns {
				sum := int64(0)
				for k := range a.columns {
					sum += x[p[0]*a.rows*a.columns+i*ar+k*ac] * y[p[1]*b.rows*b.columns+k*br+j*bc]
				}
				z = append(z, sum)
			}
		}
	}
	return z
}

func doubleProduct(c *op.Call, places [][2]int, a, b operand, dims []int64) (*execute.Tensor, error) {
	z := make([]float64, op.Product(dims))
	if len(z) == 0 || a.columns == 0 {
		return execute.FromFloat64s(a.DType, dims, z)
	}
	general := func(o operand, x []float64, i int) (blas.Transpose, blas64.General) {
		x = x[i*o.rows*o.columns:][:o.rows*o.columns]
		if o.transposed {
			return blas.Trans, blas64.General{Rows: o.columns, Cols: o.rows, Stride: o.rows, Data: x}
		}
		return blas.NoTrans, blas64.General{Rows: o.rows, Cols: o.columns, Stride: o.columns, Data: x}
	}
	x, y := op.Doubles(a.Tensor), op.Doubles(b.Tensor)
	if !finite(y) {
		// gonum does not multiply zeros of a, and 0·∞ is NaN. It does if b is transposed.
		var err error
		if b, err = turned(c, b); err != nil {
			return nil, err
		}
		y = op.Doubles(b.Tensor)
	}
	size := a.rows * b.columns
	for i, p := range places {
		ta, left := general(a, x, p[0])
		tb, right := general(b, y, p[1])
		blas64.Gemm(ta, tb, 1, left, right, 0, blas64.General{Rows: a.rows, Cols: b.columns, Stride: b.columns, Data: z[i*size:][:size]})
	}
	return execute.FromFloat64s(a.DType, dims, z)
}

// turned has the columns of an operand one after another.
func turned(c *op.Call, o operand) (operand, error) {
	if o.transposed {
		return o, nil
	}
	t, err := op.Reshaped(o.Tensor, []int64{op.Product(o.lead), int64(o.rows), int64(o.columns)})
	if err != nil {
		return o, err
	}
	t, err = c.Transpose(t, []int{0, 2, 1})
	o.Tensor, o.transposed = t, true
	return o, err
}

func finite(x []float64) bool {
	for _, v := range x {
		if v-v != 0 {
			return false
		}
	}
	return true
}

// otherProduct multiplies by another engine's arithmetic.
func otherProduct(c *op.Call, places [][2]int, a, b operand, dims []int64) (*execute.Tensor, error) {
	part := func(o operand, i int) (*execute.Tensor, error) {
		n := o.rows * o.columns * o.Size()
		t := &execute.Tensor{DType: o.DType, Dims: []int64{int64(o.columns), int64(o.rows)}, Data: o.Data[i*n:][:n]}
		if o.transposed {
			return c.Transpose(t, []int{1, 0})
		}
		return t, nil
	}
	out, err := execute.New(a.DType, dims)
	if err != nil {
		return nil, err
	}
	for i, p := range places {
		x, err := part(a, p[0])
		if err != nil {
			return nil, err
		}
		y, err := part(b, p[1])
		if err != nil {
			return nil, err
		}
		z, err := c.Arithmetic().MatMul(x, y, int64(a.rows), int64(a.columns), int64(b.columns))
		if err != nil {
			return nil, err
		}
		copy(out.Data[i*len(z.Data):], z.Data)
	}
	return out, nil
}

// MatMul multiplies matrices, stacks of matrices and vectors as numpy.matmul does.
func MatMul(c *op.Call, x, y *execute.Tensor) (*execute.Tensor, error) {
	a, err := matrices(x, false)
	if err != nil {
		return nil, err
	}
	b, err := matrices(y, true)
	if err != nil {
		return nil, err
	}
	t, err := product(c, a, b, linalg.Matrix{})
	if err != nil {
		return nil, err
	}
	return op.Reshaped(t, matMulDims(x, y, t.Dims))
}

// matMulDims leaves out the axes that vectors do not have.
func matMulDims(x, y *execute.Tensor, dims []int64) []int64 {
	n := len(dims)
	result := slices.Clone(dims[:n-2])
	if len(x.Dims) > 1 {
		result = append(result, dims[n-2])
	}
	if len(y.Dims) > 1 {
		result = append(result, dims[n-1])
	}
	return result
}

func runMatMul(c *op.Call) ([]*execute.Tensor, error) { return op.One(MatMul(c, c.In[0], c.In[1])) }

func runGemm(c *op.Call) ([]*execute.Tensor, error) {
	if len(c.In[0].Dims) != 2 || len(c.In[1].Dims) != 2 {
		return nil, errors.New("an operand is not a matrix")
	}
	a, err := matrices(c.In[0], false)
	if err != nil {
		return nil, err
	}
	b, err := matrices(c.In[1], true)
	if err != nil {
		return nil, err
	}
	if c.Is("transA") {
		a = a.transpose()
	}
	if c.Is("transB") {
		b = b.transpose()
	}
	alpha, beta := float64(c.Float("alpha", 1)), float64(c.Float("beta", 1))
	dims := []int64{int64(a.rows), int64(b.columns)}
	bias := c.Input(2)
	if alpha == 1 && beta == 1 && bias != nil && a.DType == dtype.Float32 && bias.DType == a.DType && c.Arithmetic() == nil {
		if same, err := op.Broadcast(bias.Dims, dims); err != nil || !slices.Equal(same, dims) {
			return nil, fmt.Errorf("cannot add dims %v to %v", bias.Dims, dims)
		}
		steps := op.Spread(bias.Dims, dims)
		return op.One(product(c, a, b, linalg.Matrix{Data: op.Floats(bias), Rows: a.rows, Columns: b.columns, Row: int(steps[0]), Column: int(steps[1])}))
	}
	if bias != nil {
		if bias, err = c.Expand(bias, dims); err != nil {
			return nil, err
		}
	}
	t, err := product(c, a, b, linalg.Matrix{})
	if err != nil || bias == nil && alpha == 1 {
		return op.One(t, err)
	}
	y := t.Float64s()
	for i := range y {
		y[i] *= alpha
	}
	if bias != nil {
		for i, v := range bias.Float64s() {
			y[i] += float64(beta * v)
		}
	}
	return op.One(op.Numbers(t.DType, t.Dims, y))
}
