// Package simplify folds constants behind a product into its weight and bias, so that fewer nodes are left
// to quantize: a BatchNormalization, Mul, Div, Add or Sub by a number for each channel behind a Conv,
// ConvTranspose, Gemm or MatMul; and a BatchNormalization in front of one. It also replaces constants of
// which only the shape is read, and removes those that nothing reads. The model computes the same, up to
// the rounding of floats.
//
// Package fold is about another thing: it stores the parts of weights that Slice, Split and Concat make.
//
// [New] gets a graph, which it only reads, and returns a new graph. The caller owns the new graph and must
// keep the original open. Numbers for channels are read at once. Weights are computed when they are read.
package simplify

import (
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
)

// Model is a simplified model.
type Model struct {
	Original *graph.Graph
	Graph    *graph.Graph // Original itself, if there is nothing to simplify
	Counts
	New []NewValue
}

// NewValue is a value that the original does not have: what a MatMul makes, if its weight has factors and an Add stays
// behind it. Ranges of the original do not have it.
type NewValue struct {
	Path    string
	Of      string     // the value that is multiplied by Factors; "" if there is none
	Factors [2]float64 // the least and the most
	Sum     string     // the value that Added makes of it
	Added   [2]float64 // the least and the most
}

// Counts say what was simplified.
type Counts struct {
	Nodes  map[string]int // folded nodes by operator
	Shapes int            // nodes that read the shape of a constant, and became constants
	Unread int            // stored tensors that nothing reads
}

// Total is the number of all changes.
func (c Counts) Total() int {
	n := c.Shapes + c.Unread
	for _, k := range c.Nodes {
		n += k
	}
	return n
}

// mostPasses bounds the passes over a model. A pass may make way for another one; real models need two.
const mostPasses = 8

// New simplifies a model.
func New(x *graph.Graph) (*Model, error) {
	m := &Model{Original: x, Graph: x, Counts: Counts{Nodes: map[string]int{}}}
	for range mostPasses {
		before := m.Total()
		y, err := m.pass(m.Graph)
		if err != nil || m.Total() == before {
			return m, err
		}
		m.Graph = y
	}
	return m, nil
}

// pass simplifies a graph once.
func (m *Model) pass(x *graph.Graph) (*graph.Graph, error) {
	f := newFinder(x)
	e := &editor{Graph: x, find: f, model: m, stale: map[int]map[string]bool{}, fronts: map[int][]*onnxpb.NodeProto{}}
	for _, s := range f.sites() {
		e.apply(s)
	}
	e.shapesOfConstants()
	e.countUnread()
	if e.copy == nil {
		return x, nil
	}
	e.finish()
	view, err := x.File.View(e.copy.Proto, func(t *onnxpb.TensorProto) (*modelfile.Payload, error) {
		if old := e.copy.OriginalTensor(t); old != nil {
			return x.File.Payload(old)
		}
		return e.copy.Content(t), nil
	})
	if err != nil {
		return nil, err
	}
	return graph.New(view)
}

// within reports whether all numbers are at most most in size.
func within(list []float64, most float64) bool {
	return !slices.ContainsFunc(list, func(v float64) bool { return !(v >= -most && v <= most) })
}
