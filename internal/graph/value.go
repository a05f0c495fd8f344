package graph

import (
	"fmt"
	"strconv"

	"onnxquant/formats/dtype"
	"onnxquant/internal/msg"
	"onnxquant/internal/onnxpb"
)

// Value is a named value of one graph.
type Value struct {
	Name        string
	Path        string              // name with the path of its subgraph or function; unique in the model
	Tensor      *onnxpb.TensorProto // content of an initializer or Constant node, or nil
	Node        *onnxpb.NodeProto   // the node that computes it; nil for inputs and initializers
	Input       bool                // an input of its graph
	MustBeInput bool                // an initializer listed as an input only because old IR versions want that
	Output      bool                // an output of its graph
	at          int32               // position in Graph.Values, if it is there as an initializer
	Body        *Function           // the function that contains the value; nil outside of functions
	Uses        []Use               // the nodes that read it
	Graph       *onnxpb.GraphProto  // the graph that contains it; nil in the body of a function
	declared    *onnxpb.TypeProto   // as the model declares it, or nil
	rare        *rare
}

// rare is what few values have: a model may have very many.
type rare struct {
	unusual  *Unusual
	returned []int
	yields   []Yield
	from     []*Value
}

// rarely returns what few values have, to be changed.
func (v *Value) rarely() *rare {
	if v.rare == nil {
		v.rare = &rare{}
	}
	return v.rare
}

// ElemType is the type of the elements, 0 if neither a tensor nor a declaration has it.
func (v *Value) ElemType() dtype.DType {
	if v.Tensor != nil {
		return dtype.DType(v.Tensor.GetDataType())
	}
	return dtype.DType(v.declared.GetTensorType().GetElemType())
}

// Unusual describes content that is not a dense tensor; nil for other values.
func (v *Value) Unusual() *Unusual {
	if v.rare == nil {
		return nil
	}
	return v.rare.unusual
}

// Returned lists the positions of the value among the outputs of the function Body.
func (v *Value) Returned() []int {
	if v.rare == nil {
		return nil
	}
	return v.rare.returned
}

// Yields lists the outputs of graphs that the value is.
func (v *Value) Yields() []Yield {
	if v.rare == nil {
		return nil
	}
	return v.rare.yields
}

// From lists the values of another graph that package fold made this one of, stored ones first.
func (v *Value) From() []*Value {
	if v.rare == nil {
		return nil
	}
	return v.rare.from
}

// SetFrom sets From, before the graph is shared.
func (v *Value) SetFrom(values []*Value) { v.rarely().from = values }

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

func (u Use) String() string { return Operator(u.Node) + ":" + strconv.Itoa(u.Input) }

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
		return fmt.Errorf("%s exists twice", msg.Quote(s.path+v.Name))
	}
	s.Values[v.Name] = v
	return nil
}
