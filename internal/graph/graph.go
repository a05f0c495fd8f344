package graph

import (
	"errors"
	"iter"
	"slices"

	"onnxquant/internal/modelfile"
	"onnxquant/internal/onnxpb"
)

// ErrModel is wrapped by errors about a graph that makes no sense.
var ErrModel = errors.New("invalid model")

// Graph knows where every value of a model comes from and who reads it.
type Graph struct {
	Values  []*Value                     // those with a tensor, in the order of the file
	Unusual []*Value                     // floats that are stored in no tensor
	Names   map[string]bool              // names of values and nodes, anywhere in the model
	Nodes   []string                     // names of nodes
	Home    map[*onnxpb.NodeProto]*Scope // where nodes lie
	File    *modelfile.Model

	Inputs, Outputs map[*onnxpb.NodeProto][]*Value  // by position; nil where there is none
	Returned        map[*onnxpb.GraphProto][]*Value // by graphs
	functions       map[string]*Function

	paths  map[string]bool // of subgraphs
	suffix map[string]int  // the last one tried for a path that is taken
	ir     int64
	Opset  int64
}

// Source returns what is read, or nil.
func (x *Graph) Source(n *onnxpb.NodeProto, input int) *Value {
	if inputs := x.Inputs[n]; input < len(inputs) {
		return inputs[input]
	}
	return nil
}

// Made returns the first of a node's outputs, or nil.
func (x *Graph) Made(n *onnxpb.NodeProto) *Value {
	for _, v := range x.Outputs[n] {
		if v != nil {
			return v
		}
	}
	return nil
}

// Elsewhere walks the tensors that are no values: those of training graphs, and those in
// attributes other than a Constant's.
func (x *Graph) Elsewhere() iter.Seq2[string, *onnxpb.TensorProto] {
	held := map[*onnxpb.TensorProto]bool{}
	for _, v := range x.Values {
		held[v.Tensor] = true
	}
	for _, v := range x.Unusual {
		held[v.Unusual.Sparse.GetValues()] = true
	}
	return func(yield func(string, *onnxpb.TensorProto) bool) {
		for where, t := range modelfile.Tensors(x.File.Proto) {
			if !held[t] && !yield(where, t) {
				return
			}
		}
	}
}

// Scanned tells whether the body of a Scan reads a value from outside.
func (x *Graph) Scanned(v *Value) bool {
	return slices.ContainsFunc(v.Uses, func(u Use) bool {
		for s := x.Home[u.Node]; s != nil && s.Values[v.Name] != v; s = s.outer {
			if s.Owner.GetOpType() == "Scan" {
				return true
			}
		}
		return false
	})
}
