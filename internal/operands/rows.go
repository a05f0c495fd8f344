// Package operands finds the rows that a weight is multiplied by: the rows of a value that a MatMul or
// Gemm reads, the patches under the kernel of a convolution, the hidden states of a recurrent
// operator, the rows that a router gives to experts.
//
// An [Operation] is made from the model, without values. [Dense.Rows] and [Routes] read the values of one
// sample, which the caller owns; it neither copies nor changes them.
package operands

import "fmt"

// Value is a tensor that a model has computed.
type Value struct {
	Dims []int64
	Data []float32
}

// whole returns an error unless there is an element for each place of Dims.
func (v Value) whole() error {
	if want := (Value{Dims: v.Dims}).Len(); int64(len(v.Data)) != want {
		return fmt.Errorf("a value with dims %v has %d elements", v.Dims, len(v.Data))
	}
	return nil
}

// Len is the number of elements, also of a value without Data, of which only the shape is known.
func (v Value) Len() int64 {
	if v.Data != nil || v.Dims == nil {
		return int64(len(v.Data))
	}
	n := int64(1)
	for _, d := range v.Dims {
		n *= d
	}
	return n
}

// Operation is an operator that multiplies rows by a weight: Dense or Routed. The columns of the weight have Parts parts
// of the same size; each part has its own rows of K elements.
type Operation interface {
	Parts() int
}

// Dense is an Operation whose parts get as many rows. It finds these, and the products, in the inputs and outputs of
// the operator. A matrix product is a Matrix.
type Dense interface {
	Operation
	// Rows returns the rows of an input; k is the length of a row over all parts. initial has the
	// initial states of a Recurrence.
	Rows(input, initial Value, k int) (Rows, error)
}

// Rows are rows of inputs.
type Rows interface {
	Len() int
	// Input returns row i, all parts one after another. The next call overwrites it.
	Input(i int) []float32
	// Output finds in a product the row, of len(to) elements, that row i of the input makes. It may
	// use to.
	Output(i int, product Value, to []float32) []float32
}

// Matrix is a product whose rows are the rows of the input.
type Matrix struct{}

// Parts is 1.
func (Matrix) Parts() int { return 1 }

func (Matrix) Rows(input, _ Value, k int) (Rows, error) {
	n := int(input.Len())
	if n%k != 0 {
		return nil, fmt.Errorf("it has %d elements, not rows of %d", n, k)
	}
	return matrixRows{input.Data, k, n / k}, nil
}

type matrixRows struct {
	data []float32
	k, n int
}

func (m matrixRows) Len() int              { return m.n }
func (m matrixRows) Input(i int) []float32 { return m.data[i*m.k:][:m.k] }

func (m matrixRows) Output(i int, product Value, to []float32) []float32 {
	return product.Data[i*len(to):][:len(to)]
}

// Some are at most N of all rows, evenly spread. First chooses which.
type Some struct {
	All      Rows
	N, First int
}

func (s Some) Len() int { return min(s.N, s.All.Len()) }

func (s Some) at(i int) int {
	all := s.All.Len()
	if all <= s.N {
		return i
	}
	return (int(int64(i)*int64(all)/int64(s.N)) + s.First) % all
}

func (s Some) Input(i int) []float32 { return s.All.Input(s.at(i)) }

func (s Some) Output(i int, product Value, to []float32) []float32 {
	return s.All.Output(s.at(i), product, to)
}
