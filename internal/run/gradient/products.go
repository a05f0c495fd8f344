package gradient

import (
	"slices"

	"onnxquant/internal/buffer"
	"onnxquant/internal/convolve"
	"onnxquant/internal/kernels"
	"onnxquant/internal/linalg"
	"onnxquant/internal/run/execute/op"
	"onnxquant/internal/run/execute/op/products"
)

// stack is a stack of matrices in a tensor.
type stack struct {
	data          []float32
	lead          []int64
	rows, columns int
	transposed    bool // the tensor has the transposed matrices
}

func (s stack) at(i int) linalg.Matrix {
	part := s.data[i*s.rows*s.columns:][:s.rows*s.columns]
	if s.transposed {
		return linalg.Of(part, s.columns, s.rows).T()
	}
	return linalg.Of(part, s.rows, s.columns)
}

// stackOf sees data with dims as a stack. A vector is one row, or one column.
func stackOf(data []float32, dims []int64, column, transposed bool) stack {
	switch n := len(dims); {
	case n == 1 && column:
		return stack{data, nil, len(data), 1, false}
	case n == 1:
		return stack{data, nil, 1, len(data), false}
	default:
		s := stack{data, dims[:n-2], int(dims[n-2]), int(dims[n-1]), transposed}
		if transposed {
			s.rows, s.columns = s.columns, s.rows
		}
		return s
	}
}

// T has the transposed matrices.
func (s stack) T() stack {
	s.rows, s.columns, s.transposed = s.columns, s.rows, !s.transposed
	return s
}

func matMul(n *node) error { return product(n, false, false, 1) }

func fusedMatMul(n *node) error {
	if n.Is("transBatchA") || n.Is("transBatchB") {
		return op.Unsupported("the gradient of transBatchA and transBatchB")
	}
	return product(n, n.Is("transA"), n.Is("transB"), n.Float("alpha", 1))
}

func gemm(n *node) error {
	if err := product(n, n.Is("transA"), n.Is("transB"), n.Float("alpha", 1)); err != nil {
		return err
	}
	if n.wanted(2) {
		g := append([]float32(nil), reduce(n.dy[0], n.out[0].Dims, n.In[2].Dims)...)
		scale(g, n.Float("beta", 1))
		n.dx[2] = g
	}
	return nil
}

func scale(x []float32, factor float32) {
	if factor != 1 {
		for i := range x {
			x[i] *= factor
		}
	}
}

// product is the rule of y = factor·a·b: da = factor·dy·bᵀ and db = factor·aᵀ·dy.
func product(n *node, transA, transB bool, factor float32) error {
	a, b := stackOf(n.x(0), n.In[0].Dims, false, transA), stackOf(n.x(1), n.In[1].Dims, true, transB)
	dy := stack{n.dy[0], nil, a.rows, b.columns, false}
	da, db := a, b
	da.data, db.data = n.room(0), n.room(1)
	lead, err := op.Broadcast(a.lead, b.lead)
	if err != nil {
		return err
	}
	if op.Product(b.lead) == 1 && !transA { // one matrix for all rows
		rows := a.rows * int(op.Product(a.lead))
		a.rows, da.rows, dy.rows, lead = rows, rows, rows, nil
		a.lead, b.lead = nil, nil
	}
	type one struct{ y, a, b int }
	var places []one
	w := op.NewWalk(lead, op.Spread(a.lead, lead), op.Spread(b.lead, lead))
	w.Runs(func(at []int, count int) {
		for i := range count {
			places = append(places, one{len(places), at[0] + i*w.Step(0), at[1] + i*w.Step(1)})
		}
	})
	add := func(to stack, at func(one) int, left, right func(one) linalg.Matrix) error {
		list := make([]linalg.Product, 0, len(places))
		for _, p := range places {
			c := to.at(at(p))
			x := linalg.Product{C: c, A: left(p), B: right(p)}
			if to.transposed { // rows of C are contiguous
				x = linalg.Product{C: c.T(), A: x.B.T(), B: x.A.T()}
			}
			list = append(list, x)
		}
		together := len(places)
		if int64(len(to.data)) != int64(len(places)*to.rows*to.columns) {
			together = 1 // several add to the same matrix
		}
		for part := range slices.Chunk(list, max(together, 1)) {
			if err := linalg.AddProducts(n.Context(), op.Workers(), part); err != nil {
				return err
			}
		}
		scale(to.data, factor)
		return nil
	}
	if da.data != nil {
		err := add(da, func(p one) int { return p.a }, func(p one) linalg.Matrix { return dy.at(p.y) }, func(p one) linalg.Matrix { return b.at(p.b).T() })
		if err != nil {
			return err
		}
	}
	if db.data != nil {
		return add(db, func(p one) int { return p.b }, func(p one) linalg.Matrix { return a.at(p.a).T() }, func(p one) linalg.Matrix { return dy.at(p.y) })
	}
	return nil
}

// convolution is the rule of Conv.
func convolution(n *node) error {
	s, err := products.ConvolutionShape(n.Call, n.In[0], n.In[1])
	if err != nil {
		return err
	}
	if g := n.room(0); g != nil {
		if err := s.Transpose(n.Context(), op.Workers(), g, n.dy[0], n.x(1)); err != nil {
			return err
		}
	}
	if g := n.room(1); g != nil {
		if err := kernelGradient(n, s, g, n.x(0), n.dy[0]); err != nil {
			return err
		}
	}
	channelSums(n.room(2), n.dy[0], s.Images)
	return nil
}

// transposed is the rule of ConvTranspose, which is that of a convolution the other way round.
func transposed(n *node) error {
	s, _, err := products.TransposedShape(n.Call, n.In[0], n.In[1])
	if err != nil {
		return err
	}
	if g := n.room(0); g != nil {
		if err := s.Convolve(n.Context(), op.Workers(), g, n.dy[0], n.x(1), nil); err != nil {
			return err
		}
	}
	if g := n.room(1); g != nil {
		if err := kernelGradient(n, s, g, n.dy[0], n.x(0)); err != nil {
			return err
		}
	}
	channelSums(n.room(2), n.dy[0], s.Images)
	return nil
}

// channelSums adds the elements of each channel.
func channelSums(sums, dy []float32, images int) {
	if len(sums) == 0 {
		return
	}
	size := len(dy) / images / len(sums)
	for i := range images * len(sums) {
		total := float32(0)
		for _, v := range dy[i*size:][:size] {
			total += v
		}
		sums[i%len(sums)] += total
	}
}

// patchElements limits the elements under the taps of some channels that are in memory.
const patchElements = 1 << 20

// kernelGradient adds to the gradient of a kernel [to, from/groups, taps] the products of images x
// [images, from, in] and gradients dy [images, to, out].
func kernelGradient(n *node, s *convolve.Shape, kernel, x, dy []float32) error {
	from, to, taps := s.From/s.Groups, s.To/s.Groups, s.Taps()
	in, out := len(x)/(s.Images*s.From), len(dy)/(s.Images*s.To)
	inner := from * taps
	several := min(max(patchElements/out, 1), inner)
	var rows []float32
	for i := range s.Images * s.Groups {
		group := i % s.Groups
		channels, g := x[i*from*in:], dy[i*to*out:][:to*out]
		for first := 0; first < inner; first += several {
			count := min(several, inner-first)
			buffer.Grow(&rows, int64(count*out))
			for k := range count {
				convolve.Row(&s.Geometry, rows[k*out:][:out], channels[(first+k)/taps*in:][:in], (first+k)%taps, 0, 0)
			}
			if to <= 3 {
				for m := range to {
					for k := range count {
						kernel[(group*to+m)*inner+first+k] += kernels.Dot(g[m*out:][:out], rows[k*out:][:out])
					}
				}
				continue
			}
			c := linalg.Matrix{Data: kernel[group*to*inner+first:], Rows: to, Columns: count, Row: inner, Column: 1}
			p := linalg.Product{C: c, A: linalg.Of(g, to, out), B: linalg.Of(rows, count, out).T()}
			if err := linalg.AddProducts(n.Context(), op.Workers(), []linalg.Product{p}); err != nil {
				return err
			}
		}
	}
	return nil
}
