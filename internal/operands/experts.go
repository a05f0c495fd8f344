package operands

import (
	"context"
	"fmt"

	"onnxquant/internal/experts"
	"onnxquant/internal/linalg"
)

// Routed is an Operation whose parts do not all get every row.
type Routed interface {
	Operation
	// Part names a part: "expert" or "matrix".
	Part() string
	// Begin returns what finds the rows of samples. It keeps what it has read of other weights.
	Begin() Routes
	// Kept is how many bytes Routes keeps for a part at most.
	Kept() int64
	// All is how many rows the parts get together.
	All(input, second Value) float64
}

// Routes finds the rows of one sample after another.
type Routes interface {
	// Take takes the values of a sample.
	Take(input, second Value) error
	// Of returns the rows of K elements that a part gets, one after another, and their positions among all rows.
	Of(ctx context.Context, workers, part int) (rows []float32, at []int, err error)
}

// Experts is a product with the matrices of all experts of a MoE. Each expert is a part, and gets the rows that
// the router gives to it. The second value has the router's logits.
type Experts struct {
	N, Top int    // experts, and how many get a row
	Width  int    // of a row of the input
	Inner  *Inner // of fc2; nil for fc1 and fc3, which read the input
}

// Inner says what fc2 multiplies: the activation of the products with fc1, and perhaps with fc3.
type Inner struct {
	Name       string // of the node: another one has other weights
	Activation experts.Activation
	FC1        Affine
	FC3        *Affine // or nil
}

// Affine reads a matrix and a bias of each expert.
type Affine struct {
	Rows int                                                  // of the matrix
	Read func(expert int) (matrix, bias []float32, err error) // bias may be nil
}

// GoString tells products apart. It is the same in every process.
func (e Experts) GoString() string {
	s := fmt.Sprintf("operands.Experts{%d, %d, %d}", e.N, e.Top, e.Width)
	if e.Inner != nil {
		s += fmt.Sprintf(" of %q", e.Inner.Name)
	}
	return s
}

// Parts is the number of experts.
func (e Experts) Parts() int { return e.N }

// Part implements Routed.
func (e Experts) Part() string { return "expert" }

// Kept is the size of fc1 and fc3 of an expert, if they are needed.
func (e Experts) Kept() (bytes int64) {
	if e.Inner == nil {
		return 0
	}
	bytes = 4 * int64(e.Inner.FC1.Rows) * int64(e.Width+1)
	if e.Inner.FC3 != nil {
		bytes += 4 * int64(e.Inner.FC3.Rows) * int64(e.Width+1)
	}
	return bytes
}

// All implements Routed. The router has a number for each row and expert.
func (e Experts) All(_, router Value) float64 {
	return float64(router.Len()) / float64(e.N) * float64(e.Top)
}

// Begin implements Routed.
func (e Experts) Begin() Routes { return &routes{Experts: e, read: map[int][2]affine{}} }

// routes are the rows of Experts.
type routes struct {
	Experts
	read   map[int][2]affine // fc1 and fc3 of experts
	input  []float32
	chosen [][]int // rows, by expert
	rows   []float32
}

// affine is a matrix and a bias, or nothing.
type affine struct {
	matrix, bias []float32
}

func (r *routes) Take(input, router Value) error {
	n := int(input.Len()) / r.Width
	if int(input.Len()) != n*r.Width || int(router.Len()) != n*r.N {
		return fmt.Errorf("its dims %v and those of the router, %v, do not fit %d experts with rows of %d", input.Dims, router.Dims, r.N, r.Width)
	}
	r.input, r.chosen = input.Data, make([][]int, r.N)
	logits := make([]float64, r.N)
	for i := range n {
		row := router.Data[i*r.N:][:r.N]
		if !finite(row) {
			continue
		}
		for e, v := range row {
			logits[e] = float64(v)
		}
		chosen, _ := experts.Route(logits, r.Top, false)
		for _, e := range chosen {
			r.chosen[e] = append(r.chosen[e], i)
		}
	}
	return nil
}

func finite(x []float32) bool {
	for _, v := range x {
		if v-v != 0 {
			return false
		}
	}
	return true
}

func (r *routes) Of(ctx context.Context, workers, part int) (rows []float32, at []int, err error) {
	at = r.chosen[part]
	r.rows = r.rows[:0]
	for _, i := range at {
		r.rows = append(r.rows, r.input[i*r.Width:][:r.Width]...)
	}
	if r.Inner == nil || len(at) == 0 {
		return r.rows, at, nil
	}
	read, ok := r.read[part]
	if !ok {
		if read, err = r.Inner.readAll(part); err != nil {
			return nil, nil, err
		}
		r.read[part] = read
	}
	first, err := r.multiply(ctx, workers, read[0], r.Inner.FC1.Rows)
	if err != nil {
		return nil, nil, err
	}
	var third []float32
	if f := r.Inner.FC3; f != nil {
		if third, err = r.multiply(ctx, workers, read[1], f.Rows); err != nil {
			return nil, nil, err
		}
	}
	return r.Inner.activated(first, third, len(at)), at, nil
}

// readAll reads fc1 and fc3 of an expert.
func (n *Inner) readAll(expert int) (all [2]affine, err error) {
	if all[0].matrix, all[0].bias, err = n.FC1.Read(expert); err != nil || n.FC3 == nil {
		return all, err
	}
	all[1].matrix, all[1].bias, err = n.FC3.Read(expert)
	return all, err
}

// multiply multiplies the rows by a matrix, and adds its bias.
func (r *routes) multiply(ctx context.Context, workers int, by affine, n int) ([]float32, error) {
	rows := len(r.rows) / r.Width
	product := make([]float32, rows*n)
	if by.bias != nil {
		for i := range rows {
			copy(product[i*n:], by.bias)
		}
	}
	return product, linalg.Add(ctx, workers, linalg.Of(product, rows, n), 1, linalg.Of(r.rows, rows, r.Width), linalg.Of(by.matrix, n, r.Width).T())
}

// activated returns the rows that fc2 gets.
func (n *Inner) activated(first, third []float32, rows int) (all []float32) {
	h := make([]float64, len(first)/rows)
	var values []float64
	for i := range rows {
		widen(h, first[i*len(h):])
		if third != nil {
			if values == nil {
				values = make([]float64, len(third)/rows)
			}
			widen(values, third[i*len(values):])
		}
		for _, v := range n.Activation.Apply(h, values) {
			all = append(all, float32(v))
		}
	}
	return all
}

func widen(to []float64, from []float32) {
	for i := range to {
		to[i] = float64(from[i])
	}
}
