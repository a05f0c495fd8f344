package graph

import (
	"slices"

	"onnxquant/internal/onnxpb"
	"onnxquant/internal/shapes"
)

// Dim is the length of an axis. The zero Dim is unknown.
type Dim struct {
	Length int64  // 0: unknown
	Symbol string // its name in the model; "" for a fixed length
}

// Shapes finds the shapes of values: the declared ones or, for the most common operators, the computed
// ones. It caches its results.
type Shapes struct {
	x     *Graph
	found map[*Value][]Dim
	depth int
}

// NewShapes returns the shapes of the values of a model.
func NewShapes(x *Graph) *Shapes { return &Shapes{x: x, found: map[*Value][]Dim{}} }

// maxInference bounds the number of nodes through which a shape is inferred.
const maxInference = 1000

// Of returns the shape of a value. It is nil if even the number of axes is unknown.
func (s *Shapes) Of(v *Value) []Dim {
	if v == nil || s.depth > maxInference {
		return nil
	}
	dims, ok := s.found[v]
	if !ok {
		s.depth++
		dims = s.find(v)
		s.depth--
		s.found[v] = dims
	}
	return dims
}

func (s *Shapes) find(v *Value) []Dim {
	if v.Tensor != nil {
		dims := make([]Dim, len(v.Tensor.GetDims()))
		for i, n := range v.Tensor.GetDims() {
			dims[i].Length = n
		}
		return dims
	}
	declared := declaredDims(v.declared)
	if v.Node == nil || len(s.x.Outputs(v.Node)) == 0 || s.x.Outputs(v.Node)[0] != v || declared != nil && !slices.Contains(declared, Dim{}) {
		return declared
	}
	made := s.outputShape(v.Node)
	if declared == nil || len(made) != len(declared) {
		return slices.Clone(made)[:min(len(made), shapes.MaxRank)]
	}
	for i, d := range declared {
		if d == (Dim{}) {
			declared[i] = made[i]
		}
	}
	return declared
}

// declaredDims reads the shape in a type; nil if the type has no shape.
func declaredDims(t *onnxpb.TypeProto) []Dim {
	shape := t.GetTensorType().GetShape()
	if shape == nil {
		return nil
	}
	dims := make([]Dim, len(shape.Dim))
	for i, d := range shape.Dim {
		dims[i] = Dim{Length: max(0, d.GetDimValue()), Symbol: d.GetDimParam()}
	}
	return dims
}

// keepShape lists the operators whose first output has the shape of their first input.
var keepShape = []string{
	"Abs", "BatchNormalization", "Cast", "Ceil", "Clip", "Dropout", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish",
	"Identity", "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign",
	"SimplifiedLayerNormalization", "Softmax", "Softplus", "Softsign", "Sqrt", "Tanh", "DequantizeLinear", "QuantizeLinear",
}

// broadcast lists the operators that stretch their inputs to one shape.
var broadcast = []string{"Add", "Div", "Max", "Mean", "Min", "Mul", "Pow", "Sub", "Sum", "Where"}

// outputShape infers the shape of a node's first output, or returns nil.
func (s *Shapes) outputShape(n *onnxpb.NodeProto) []Dim {
	input := func(i int) []Dim { return s.Of(s.x.Source(n, i)) }
	switch op := n.GetOpType(); {
	case (op == "MatMulNBits" || op == "MatMulBnb4") && n.GetDomain() == Contrib:
		if a := input(0); len(a) > 0 {
			return append(slices.Clone(a[:len(a)-1]), Dim{Length: IntAttribute(n, "N")})
		}
	case !IsStandard(n.GetDomain()):
	case slices.Contains(keepShape, op), op == "Slice" && s.x.TakesAll(n, len(input(0))):
		return input(0)
	case op == "Expand":
		if lengths, ok := s.x.ConstantInts(n, 1); ok && input(0) != nil {
			to := make([]Dim, len(lengths))
			for i, length := range lengths {
				to[i].Length = max(0, length)
			}
			return stretched([][]Dim{input(0), to})
		}
	case slices.Contains(broadcast, op):
		all := make([][]Dim, len(n.Input))
		for i := range all {
			if all[i] = input(i); all[i] == nil {
				return nil
			}
		}
		return stretched(all)
	case op == "MatMul":
		if a, b := input(0), input(1); len(a) >= 2 && len(b) == 2 {
			return append(slices.Clone(a[:len(a)-1]), b[1])
		}
	case op == "Gemm":
		if a, b := input(0), input(1); len(a) == 2 && len(b) == 2 {
			return []Dim{a[min(1, IntAttribute(n, "transA"))&1], b[1-IntAttribute(n, "transB")&1]}
		}
	case op == "Gather":
		if a, b := input(0), input(1); len(a) > 0 && b != nil && IntAttribute(n, "axis") == 0 {
			return append(slices.Clone(b), a[1:]...)
		}
	case op == "Transpose":
		return permuted(input(0), Attribute(n, "perm").GetInts())
	case op == "Reshape":
		return s.reshaped(n, input(0))
	}
	return nil
}

// stretched is the shape that tensors of several shapes are broadcast to.
func stretched(all [][]Dim) []Dim {
	rank := 0
	for _, a := range all {
		rank = max(rank, len(a))
	}
	dims := slices.Repeat([]Dim{{Length: 1}}, rank)
	for _, a := range all {
		for i, d := range a {
			if at := rank - len(a) + i; d.Length != 1 && dims[at].Length < 2 {
				dims[at] = d
			}
		}
	}
	return dims
}

func permuted(from []Dim, perm []int64) []Dim {
	dims := slices.Clone(from)
	if perm == nil {
		slices.Reverse(dims)
		return dims
	}
	if len(perm) != len(from) {
		return nil
	}
	for i, p := range perm {
		if p < 0 || p >= int64(len(from)) {
			return nil
		}
		dims[i] = from[p]
	}
	return dims
}

// reshaped is the output shape of a Reshape with a constant shape. A dimension that follows from the
// number of elements is unknown.
func (s *Shapes) reshaped(n *onnxpb.NodeProto, from []Dim) []Dim {
	want, ok := s.x.ConstantInts(n, 1)
	if !ok {
		return nil
	}
	dims := make([]Dim, len(want))
	for i, d := range want {
		switch {
		case d > 0:
			dims[i].Length = d
		case d == 0 && i < len(from):
			dims[i] = from[i]
		}
	}
	return dims
}
