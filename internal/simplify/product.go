package simplify

import (
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/opset"
)

// product is a node that multiplies by a stored weight.
type product struct {
	node   *onnxpb.NodeProto
	weight *stored
	axis   int // of the output that has the channels, from the right
	rank   int // of the output; 0: unknown
	bias   int // the input that is added; -1: it has none, an Add is needed
	had    *numbers

	// Channels of the elements of the weight. Elements of a row are for the same channels.
	row         int64 // elements of a row
	alike       int64 // consecutive rows for the same channel of the output
	turns       bool  // each element is for the next channel of the output
	out, in     int64 // numbers of channels of the output and of the input
	outOf, inOf func(row int64) int64
}

// product describes a node as a product; nil if it is none that can take factors.
func (f *finder) product(n *onnxpb.NodeProto) *product {
	if !graph.IsStandard(n.GetDomain()) || len(n.Output) != 1 || n.Output[0] == "" || f.taken[f.Number(n)] {
		return nil
	}
	p := &product{node: n, bias: 2, alike: 1}
	var ok bool
	switch n.GetOpType() {
	case "Conv", "ConvTranspose":
		ok = f.convolution(p)
	case "Gemm":
		ok = f.gemm(p)
	case "MatMul":
		ok = f.matMul(p)
	}
	if !ok || p.out < 1 || p.in < 1 || p.row < 1 {
		return nil
	}
	if p.bias > 0 && graph.HasInput(n, p.bias) {
		if p.had = f.numbers(f.Source(n, p.bias), p.out); p.had == nil || !isLine(p.had.dims, p.out) {
			return nil
		}
	}
	return p
}

// isLine reports whether a shape has n or one elements along its last axis, and one along the others.
func isLine(dims []int64, n int64) bool {
	last := len(dims) - 1
	return last < 0 || (dims[last] == 1 || dims[last] == n) && !slices.ContainsFunc(dims[:last], func(d int64) bool { return d != 1 })
}

func (f *finder) convolution(p *product) bool {
	n := p.node
	if graph.Parameter(n, "group", "pads", "auto_pad") != "" {
		return false
	}
	w := f.stored(f.Source(n, 1))
	if w == nil || len(w.dims) < 3 {
		return false
	}
	groups := graph.IntAttributeOr(n, "group", 1)
	kernel := int64(1)
	for _, d := range w.dims[2:] {
		kernel *= d
	}
	first, second := w.dims[0], w.dims[1]
	if groups < 1 || first%groups != 0 || first == 0 || second == 0 {
		return false
	}
	p.weight, p.rank, p.row = w, len(w.dims), kernel
	p.axis = p.rank - 2
	each := first / groups
	if n.GetOpType() == "Conv" {
		p.out, p.in, p.alike = first, groups*second, second
		p.outOf = func(row int64) int64 { return row / second }
		p.inOf = func(row int64) int64 { return row/second/each*second + row%second }
		return true
	}
	p.out, p.in = groups*second, first
	p.outOf = func(row int64) int64 { return row/second/each*second + row%second }
	p.inOf = func(row int64) int64 { return row / second }
	return true
}

func (f *finder) gemm(p *product) bool {
	n := p.node
	if graph.Parameter(n, "alpha", "beta", "transA", "transB") != "" || f.opsetOf(n) < 7 && graph.HasInput(n, 2) && graph.IntAttribute(n, "broadcast") == 0 {
		return false
	}
	w := f.stored(f.Source(n, 1))
	if w == nil || len(w.dims) != 2 {
		return false
	}
	p.weight, p.rank = w, 2
	p.matrix(graph.IntAttribute(n, "transB") != 0)
	return true
}

func (f *finder) matMul(p *product) bool {
	w := f.stored(f.Source(p.node, 1))
	if w == nil || len(w.dims) != 2 {
		return false
	}
	p.weight, p.bias, p.rank = w, -1, len(f.shapes.Of(f.Source(p.node, 0)))
	p.matrix(false)
	return true
}

// matrix sets the layout of a matrix of inputs by outputs, or of its transpose.
func (p *product) matrix(transposed bool) {
	p.row, p.in, p.out = 1, p.weight.dims[0], p.weight.dims[1]
	n := p.weight.dims[1]
	quotient, rest := func(row int64) int64 { return row / n }, func(row int64) int64 { return row % n }
	p.inOf, p.outOf, p.turns = quotient, rest, true
	if transposed {
		p.in, p.out, p.inOf, p.outOf, p.alike, p.turns = p.out, p.in, rest, quotient, n, false
	}
}

// opsetOf is the version of ONNX's operators that a node is of.
func (f *finder) opsetOf(n *onnxpb.NodeProto) int64 {
	if body := f.Home(n).Body; body != nil {
		if version, ok := opset.Of(body.Proto.OpsetImport); ok {
			return version
		}
	}
	return f.Opset
}
