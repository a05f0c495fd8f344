package graph

import (
	"fmt"

	"onnxquant/formats/dtype"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
)

// Value is a named value of one graph.
type Value struct {
	Name        string
	Path        string              // name with the subgraphs it lies in, unique in messages
	Tensor      *onnxpb.TensorProto // what an initializer or a Constant node holds
	Unusual     *Unusual            // how else floats are stored, if so
	Node        *onnxpb.NodeProto   // the node that makes it
	Input       bool                // an input of its graph
	MustBeInput bool                // an initializer that is an input only because all are
	Output      bool                // an output of its graph
	Body        *Function           // the function that it lies in, also if in a graph there
	Returned    []int               // which outputs of that function it is
	Uses        []Use
}

// unusual is how floats are stored that are in no tensor.
type Unusual struct {
	Form   string // for messages
	DType  dtype.DType
	Shape  []int64
	Bytes  int64
	Sparse *onnxpb.SparseTensorProto
}

// sparseTensor is a tensor of which only some elements are stored.
func sparseTensor(t *onnxpb.SparseTensorProto) Unusual {
	return Unusual{
		Form:   "a sparse tensor",
		DType:  dtype.DType(t.GetValues().GetDataType()),
		Shape:  t.GetDims(),
		Bytes:  SizeOf(t.GetValues()) + SizeOf(t.GetIndices()),
		Sparse: t,
	}
}

// Use is one place where a value is read.
type Use struct {
	Node  *onnxpb.NodeProto
	Input int // position among the node's inputs
}

func (u Use) String() string { return fmt.Sprintf("%s:%d", Operator(u.Node), u.Input) }

// scope is a graph or a function body, inside of those that enclose it.
type Scope struct {
	Body   *Function // the function that it is or lies in
	outer  *Scope
	Owner  *onnxpb.NodeProto // the node that holds the graph, if one does
	Values map[string]*Value
	path   string
}

func (s *Scope) lookup(name string) *Value {
	for ; s != nil; s = s.outer {
		if v := s.Values[name]; v != nil {
			return v
		}
	}
	return nil
}

// define adds a value to its graph, where its name must be new.
func (s *Scope) define(v *Value) error {
	if s.Values[v.Name] != nil {
		return fmt.Errorf("%s is there twice", msg.Quote(s.path+v.Name))
	}
	s.Values[v.Name] = v
	return nil
}
