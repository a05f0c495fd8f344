package graph

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/onnxpb"
)

// Given is a value that a model gets from outside instead of computing it.
type Given struct {
	Name string
	Type dtype.DType
	Rank int
}

// info describes it as an input of a model.
func (g Given) info() *onnxpb.ValueInfoProto {
	tensor := &onnxpb.TypeProto_Tensor{ElemType: new(int32(g.Type)), Shape: &onnxpb.TensorShapeProto{}}
	for range g.Rank {
		tensor.Shape.Dim = append(tensor.Shape.Dim, &onnxpb.TensorShapeProto_Dimension{})
	}
	return &onnxpb.ValueInfoProto{Name: &g.Name, Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: tensor}}}
}

// Crossing lists the values that cross the cut before a node of the main graph, by the node's Number: nodes
// before the cut compute them from the inputs, and nodes behind it read them. A model can be run in two
// parts if these values are kept: Only needs no node before the cut if they are given. The second result is
// false if the nodes are not in order, or if some value may not be a tensor of numbers.
func (x *Graph) Crossing(node int) (names []string, ok bool) {
	g := x.File.Proto.GetGraph()
	varies := map[string]bool{}
	for _, i := range RuntimeInputs(g) {
		varies[i.GetName()] = true
	}
	maker := map[string]*onnxpb.NodeProto{}
	for _, n := range g.Node {
		for _, name := range n.Output {
			maker[name] = n
		}
	}
	listed := map[string]bool{}
	for _, n := range g.Node {
		reads := Reads(n)
		from := slices.ContainsFunc(reads, func(name string) bool { return varies[name] })
		for _, name := range n.Output {
			varies[name] = from
		}
		for _, name := range reads {
			m := maker[name]
			switch {
			case m == nil || name == "":
			case x.Number(m) >= x.Number(n):
				return nil, false
			case x.Number(m) >= node || x.Number(n) < node || !varies[name] || listed[name]:
			case NoNumbers(m.GetOpType()):
				return nil, false
			default:
				names, listed[name] = append(names, name), true
			}
		}
	}
	return names, true
}

// NoNumbers reports whether an operator makes sequences, optional values or strings.
func NoNumbers(operator string) bool { return noNumbers[operator] }

var noNumbers = map[string]bool{
	"SequenceConstruct": true, "SequenceEmpty": true, "SequenceErase": true, "SequenceInsert": true, "SequenceMap": true, "SplitToSequence": true,
	"Optional": true, "StringConcat": true, "StringNormalizer": true, "StringSplit": true, "ZipMap": true,
}
