package reach

import (
	"math"
	"slices"

	"google.golang.org/protobuf/proto"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// This file predicts which operator reads a value when ONNX Runtime fuses. Before that, ONNX Runtime
// removes nodes that change nothing, merges equal nodes, and moves each Transpose down to its inverse.

// reader is the only operator that reads a value. Node is nil if there is no reader or more than one.
type reader struct {
	graph.Use
	made   []*graph.Value // its output, and the outputs of the equal nodes that are merged with it
	turned bool           // it read a transposed value before the Transpose moved
	moving bool           // it is a Transpose that moves if the Gemms that read its inverse get another form
}

// readerOf returns the only reader of a value after nodes are removed and merged. A node that makes an
// output of the graph is not removed, unless it is an Identity.
func (f products) readerOf(same ...*graph.Value) reader {
	for range maxDepth {
		r := f.next(same)
		if i, ok := f.skipped(r.Node); !ok || i != r.Input || r.made[0] != nil && r.made[0].Output && !graph.IsOperator(r.Node, "Identity") {
			return r
		}
		same = r.made
	}
	return reader{}
}

// readerOfMoved is readerOf after each Transpose has moved down to its inverse. A Transpose may move
// past operators; then the first of these operators is returned.
func (f products) readerOfMoved(same ...*graph.Value) reader {
	for range maxDepth {
		r := f.readerOf(same...)
		if !graph.IsOperator(r.Node, "Transpose") || graph.Attribute(r.Node, "perm") == nil {
			return r
		}
		var moved []reader
		last := f.readerOf(r.made...)
		for slices.Contains(movable, last.Node.GetOpType()) && graph.IsStandard(last.Node.GetDomain()) && len(moved) < maxDepth {
			moved = append(moved, last)
			last = f.readerOf(last.made...)
		}
		switch {
		case !graph.IsOperator(last.Node, "Transpose") || !inverse(permOf(r.Node), permOf(last.Node)):
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

// readerOfGemm is readerOf for the result of a Gemm without C. Such a Gemm takes over each Transpose
// behind it before any is moved. Two of them cancel, except if the Gemm behind takes over the second.
func (f products) readerOfGemm(same ...*graph.Value) reader {
	for range maxDepth {
		r := f.readerOf(same...)
		if !swapsAxes(r.Node) {
			return r
		}
		second := f.readerOf(r.made...)
		if !swapsAxes(second.Node) || f.takenOver(second.Node, nil) {
			return r
		}
		same = second.made
	}
	return reader{}
}

// next returns the only operator that reads a value, which equal nodes may make. An output of the
// graph has no such operator.
func (f products) next(same []*graph.Value) reader {
	r, several := f.reads(same)
	if several || slices.ContainsFunc(same, func(v *graph.Value) bool { return v == nil || v.Output || len(v.Returned()) > 0 }) {
		return reader{}
	}
	return r
}

// reads returns an operator that reads a value, which equal nodes may make, and whether different
// operators read it. Equal operators count once.
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

// swapsAxes reports whether a node swaps the axes of a matrix.
func swapsAxes(n *onnxpb.NodeProto) bool {
	if !graph.IsOperator(n, "Transpose") {
		return false
	}
	perm := permOf(n)
	return perm == nil || slices.Equal(perm, []int64{1, 0})
}

func permOf(n *onnxpb.NodeProto) []int64 { return graph.Attribute(n, "perm").GetInts() }

// inverse reports whether a Transpose undoes another. A Transpose without perm is never moved.
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

// skipped reports whether ONNX Runtime removes a node before fusion because its output equals one of
// its inputs. It returns the number of that input.
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
		return f.besideNeutral(n, 0, true)
	case "Sub":
		return f.besideNeutral(n, 0, false)
	case "Mul":
		return f.besideNeutral(n, 1, true)
	case "Div":
		return f.besideNeutral(n, 1, false)
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

// besideNeutral returns the input beside a scalar constant that is neutral; with either, the constant may be
// the first input. A constant of more than two axes is not neutral: it adds axes to the product.
func (f products) besideNeutral(n *onnxpb.NodeProto, neutral float32, either bool) (input int, ok bool) {
	for i := range 2 {
		constant := f.x.Source(n, 1-i)
		if c, ok := f.x.ConstantFloat(constant); ok && c == neutral && len(constant.Tensor.GetDims()) <= 2 {
			return i, i == 0 || either
		}
	}
	return 0, false
}
