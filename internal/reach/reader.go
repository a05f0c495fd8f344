package reach

import (
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// This file knows which operator reads a value when ONNX Runtime fuses: before that it removes nodes that
// change nothing, merges equal ones, and moves a Transpose behind others to where it meets its inverse.

// reader is an operator that reads a value alone; there is none if Node is nil.
type reader struct {
	graph.Use
	made   []*graph.Value // what it makes, by each of the equal nodes that it stands for
	turned bool           // it read a transposed value before the Transpose moved
	moving bool           // it is a Transpose that moves if the Gemms that read its inverse get another form
}

// readerOf returns the operator that reads a value alone once nodes are removed and merged. What makes an output of
// the graph stays, unless it is an Identity.
func (f products) readerOf(same ...*graph.Value) reader {
	for range maxDepth {
		r := f.next(same)
		if i, ok := f.skipped(r.Node); !ok || i != r.Input || r.made[0] != nil && r.made[0].Output && !isOperator(r.Node, "Identity") {
			return r
		}
		same = r.made
	}
	return reader{}
}

// readerOfMoved does the same once each Transpose that meets its inverse has moved there. It may move behind
// other operators then, of which the first one is the reader.
func (f products) readerOfMoved(same ...*graph.Value) reader {
	for range maxDepth {
		r := f.readerOf(same...)
		if !isOperator(r.Node, "Transpose") || graph.Attribute(r.Node, "perm") == nil {
			return r
		}
		var moved []reader
		last := f.readerOf(r.made...)
		for slices.Contains(movable, last.Node.GetOpType()) && graph.IsStandard(last.Node.GetDomain()) && len(moved) < maxDepth {
			moved = append(moved, last)
			last = f.readerOf(last.made...)
		}
		switch {
		case !isOperator(last.Node, "Transpose") || !inverse(permOf(r.Node), permOf(last.Node)):
			return r
		case f.takenOver(last.Node, nil):
			r.moving = len(moved) > 0
			return r
		case len(moved) > 0:
			moved[0].turned = true
			if len(moved) == 1 {
				moved[0].made = last.made
			}
			return moved[0]
		}
		same = last.made
	}
	return reader{}
}

// readerOfGemm does the same for the result of a Gemm without C, which takes over each Transpose behind it before
// any is moved: an even number of them changes nothing, except where the Gemm behind takes the last one over.
func (f products) readerOfGemm(same ...*graph.Value) reader {
	for range maxDepth {
		r := f.readerOf(same...)
		if !turns(r.Node) {
			return r
		}
		second := f.readerOf(r.made...)
		if !turns(second.Node) || f.takenOver(second.Node, nil) {
			return r
		}
		same = second.made
	}
	return reader{}
}

// next returns the only operator that reads a value, which equal nodes may make. There is none if the value is
// an output of the graph.
func (f products) next(same []*graph.Value) reader {
	r, several := f.reads(same)
	if several || slices.ContainsFunc(same, func(v *graph.Value) bool { return v == nil || v.Output || len(v.Returned()) > 0 }) {
		return reader{}
	}
	return r
}

// reads returns an operator that reads a value, which equal nodes may make, and whether there are several.
// Equal operators count as one.
func (f products) reads(same []*graph.Value) (r reader, several bool) {
	for _, v := range same {
		if v == nil {
			continue
		}
		for _, u := range v.Uses {
			if r.Node != nil && (u.Input != r.Input || u.Node == r.Node || !f.equal(u.Node, r.Node, 0)) {
				return r, true
			}
			r.Use, r.made = u, append(r.made, f.x.Made(u.Node))
		}
	}
	return r, false
}

// mostEqual bounds the nodes in front of two for which these are compared.
const mostEqual = 8

// equal reports whether ONNX Runtime merges two nodes: they are the same operator, with the same attributes,
// of the same inputs.
func (f products) equal(a, b *onnxpb.NodeProto, depth int) bool {
	if a == b {
		return true
	}
	if depth > mostEqual || a.GetOpType() != b.GetOpType() || a.GetDomain() != b.GetDomain() || !graph.IsStandard(a.GetDomain()) ||
		f.x.Home(a) != f.x.Home(b) || len(a.Input) != len(b.Input) || len(a.Output) != len(b.Output) ||
		slices.Contains(random, a.GetOpType()) || !slices.EqualFunc(a.Attribute, b.Attribute, equalAttributes) {
		return false
	}
	for i := range a.Input {
		v, w := f.x.Source(a, i), f.x.Source(b, i)
		if v == w {
			continue
		}
		if v == nil || w == nil {
			return false
		}
		x, ok := f.x.ConstantFloat(v)
		if y, also := f.x.ConstantFloat(w); ok && also {
			if x != y || v.Tensor == nil || w.Tensor == nil || !slices.Equal(v.Tensor.Dims, w.Tensor.Dims) {
				return false
			}
			continue
		}
		if v.Node == nil || w.Node == nil || slices.Index(f.x.Outputs(v.Node), v) != slices.Index(f.x.Outputs(w.Node), w) || !f.equal(v.Node, w.Node, depth+1) {
			return false
		}
	}
	return true
}

// random lists operators that make another result each time.
var random = []string{"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}

// equalAttributes reports whether two attributes are equal. Tensors and graphs are not compared.
func equalAttributes(a, b *onnxpb.AttributeProto) bool {
	switch a.GetType() {
	case onnxpb.AttributeProto_FLOAT, onnxpb.AttributeProto_FLOATS, onnxpb.AttributeProto_INT, onnxpb.AttributeProto_INTS, onnxpb.AttributeProto_STRING:
		return proto.Equal(a, b)
	}
	return false
}

// movable lists operators behind which ONNX Runtime moves a Transpose.
var movable = []string{
	"Abs", "Add", "Cast", "Ceil", "Clip", "Div", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "LeakyRelu", "Log", "Max", "Min", "Mul", "Neg",
	"Pow", "Reciprocal", "Relu", "Sigmoid", "Softmax", "Softplus", "Sqrt", "Sub", "Sum", "Tanh",
}

// turns reports whether a node swaps the axes of a matrix.
func turns(n *onnxpb.NodeProto) bool {
	if !isOperator(n, "Transpose") {
		return false
	}
	perm := permOf(n)
	return perm == nil || slices.Equal(perm, []int64{1, 0})
}

func permOf(n *onnxpb.NodeProto) []int64 { return graph.Attribute(n, "perm").GetInts() }

// inverse reports whether a Transpose undoes another one. Those without perm stay where they are.
func inverse(perm, other []int64) bool {
	if len(other) != len(perm) {
		return false
	}
	for i, from := range other {
		if from < 0 || from >= int64(len(perm)) || perm[from] != int64(i) {
			return false
		}
	}
	return true
}

// skipped reports whether ONNX Runtime removes a node before it fuses any, because its output is
// one of its inputs, and which input that is.
func (f products) skipped(n *onnxpb.NodeProto) (input int, ok bool) {
	if n == nil || !graph.IsStandard(n.GetDomain()) {
		return 0, false
	}
	switch n.GetOpType() {
	case "Identity":
		return 0, true
	case "Dropout":
		made := f.x.Outputs(n)
		return 0, len(made) < 2 || made[1] == nil || len(made[1].Uses) == 0 && !made[1].Output
	case "Cast":
		return 0, dtype.DType(graph.IntAttribute(n, "to")) == f.typ
	case "Add":
		return f.besides(n, 0, true)
	case "Sub":
		return f.besides(n, 0, false)
	case "Mul":
		return f.besides(n, 1, true)
	case "Div":
		return f.besides(n, 1, false)
	case "Expand":
		return 0, f.expandsNothing(n)
	case "Slice":
		ends, _ := f.x.ConstantInts(n, 2)
		return 0, f.x.TakesAll(n, 2) && !slices.ContainsFunc(ends, func(end int64) bool { return end != math.MaxInt64 })
	}
	return 0, false
}

// expandsNothing reports whether an Expand has the lengths of its input, as far as they are not 1.
func (f products) expandsNothing(n *onnxpb.NodeProto) bool {
	dims := f.s.Of(f.x.Source(n, 0))
	lengths, ok := f.x.ConstantInts(n, 1)
	if !ok || len(dims) < len(lengths) {
		return f.x.TakesAll(n, 2)
	}
	for i, length := range lengths {
		if length != 1 && dims[len(dims)-len(lengths)+i] != (graph.Dim{Length: length}) {
			return false
		}
	}
	return true
}

// besides returns the input beside a constant of one element that changes nothing: the second
// input, or either. A constant with more axes than a matrix has gives the product more, too.
func (f products) besides(n *onnxpb.NodeProto, neutral float32, either bool) (input int, ok bool) {
	for i := range 2 {
		constant := f.x.Source(n, 1-i)
		if c, ok := f.x.ConstantFloat(constant); ok && c == neutral && len(constant.Tensor.GetDims()) <= 2 {
			return i, i == 0 || either
		}
	}
	return 0, false
}

func isOperator(n *onnxpb.NodeProto, op string) bool {
	return n.GetOpType() == op && graph.IsStandard(n.GetDomain())
}
