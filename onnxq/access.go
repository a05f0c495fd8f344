package onnxq

import (
	"context"
	"errors"
	"slices"

	"onnxquant/internal/balance"
	"onnxquant/internal/convert"
	"onnxquant/internal/discover"
	"onnxquant/internal/graph"
	"onnxquant/internal/simplify"
	"onnxquant/internal/work"
)

// The methods in this file are for the other packages of this module: they return internal types, or
// check what public functions require.

// Graph returns the index of the values of the model, or nil if the model was not opened.
func (m *Model) Graph() *graph.Graph {
	if m == nil {
		return nil
	}
	return m.graph
}

// SetGraph replaces the graph of the model by one whose file is a view of the model's.
func (m *Model) SetGraph(x *graph.Graph) { m.graph = x }

// Folded returns the model as Options.Fold makes it. It shares the files of m: one of the two is closed. Its plans are
// those of m with Options.Fold.
func (m *Model) Folded() (*Model, error) {
	if err := m.Opened(); err != nil || m.folded != nil {
		return m, err
	}
	s, err := simplify.New(m.graph)
	if err != nil {
		return nil, err
	}
	return &Model{graph: s.Graph, folded: s}, nil
}

// Balanced returns the model with factors, as Options.Balance makes it. It shares the files of m: one of the two is
// closed. Its plans are those of m with Options.Balance.
func (m *Model) Balanced(exponents map[string][]int8) (*Model, error) {
	if err := m.Opened(); err != nil {
		return nil, err
	}
	x, err := balance.Apply(m.graph, exponents)
	return &Model{x, m.folded, exponents}, err
}

// OfFile reports whether the file of the model has a value with this path. A folded model may have others.
func (m *Model) OfFile(path string) bool {
	return m.folded == nil || !slices.ContainsFunc(m.folded.New, func(v simplify.NewValue) bool { return v.Path == path })
}

// Stages returns the plan of the stages behind p.
func (p *Plan) Stages() *convert.Plan { return p.plan }

// Planner returns a function that makes the result of Plan.Stages. Its options must select the same
// tensors each time. It is faster than Model.Plan, because it describes no plan for a reader.
func (m *Model) Planner() func(Options) (*convert.Plan, error) {
	known := &discover.Known{}
	return func(o Options) (*convert.Plan, error) {
		p, _, err := m.stages(o, known)
		return p, err
	}
}

// Opened returns an error if the model was not opened.
func (m *Model) Opened() error {
	if m.Graph() == nil {
		return errNotOpened
	}
	return nil
}

// Ready returns an error if the context is nil, or the model was not opened.
func (m *Model) Ready(ctx context.Context) error {
	if err := work.CheckContext(ctx); err != nil {
		return err
	}
	return m.Opened()
}

var errNotOpened = errors.New("the model is not open: use a model from onnxq.Open")
