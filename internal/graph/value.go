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
	Path        string              // name with the path of its subgraph or function; unique in the model
	Tensor      *onnxpb.TensorProto // content of an initializer or Constant node, or nil
	Unusual     *Unusual            // content that is stored in another way, or nil
	Node        *onnxpb.NodeProto   // the node that computes it; nil for inputs and initializers
	Input       bool                // an input of its graph
	MustBeInput bool                // an initializer listed as an input only because old IR versions want that
	Output      bool                // an output of its graph
	Body        *Function           // the function whose body, or a subgraph of it, contains the value; or nil
	Returned    []int               // positions among that function's outputs
	Yields      []Yield             // the outputs of graphs that it is
	Uses        []Use               // where it is read
	Graph       *onnxpb.GraphProto  // the graph that contains it; nil in the body of a function
	From        []*Value            // values of another graph that package fold made it of, stored ones first; else nil
	declared    *onnxpb.TypeProto   // as the model declares it, or nil
}

// Unusual describes floats that are not stored in a dense tensor.
type Unusual struct {
	Form   string // for messages
	DType  dtype.DType
	Shape  []int64
	Bytes  int64
	Sparse *onnxpb.SparseTensorProto
}

// sparseTensor describes the content of a sparse tensor.
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

// Yield is an output of a graph.
type Yield struct {
	Owner  *onnxpb.NodeProto // the node that has the graph as an attribute, nil for the main graph
	Output int               // position among the graph's outputs
}

// Scope is a graph or a function body: its values, and the scope around it.
type Scope struct {
	Body   *Function          // the function it belongs to, or nil
	outer  *Scope             // nil for the main graph and for functions
	Owner  *onnxpb.NodeProto  // the node that has the graph as an attribute, or nil
	Graph  *onnxpb.GraphProto // nil for a function body
	Values map[string]*Value  // defined here, by name
	path   string
}

// lookup finds a value here or in a scope around, or returns nil.
func (s *Scope) lookup(name string) *Value {
	for ; s != nil; s = s.outer {
		if v := s.Values[name]; v != nil {
			return v
		}
	}
	return nil
}

// define adds a value. Two values with one name are an error.
func (s *Scope) define(v *Value) error {
	if s.Values[v.Name] != nil {
		return fmt.Errorf("%s is there twice", msg.Quote(s.path+v.Name))
	}
	s.Values[v.Name] = v
	return nil
}
