package discover

import (
	"cmp"
	"math"

	"onnxquant/formats/dtype"
	"onnxquant/internal/buffer"
	"onnxquant/internal/experts"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/operands"
	"onnxquant/internal/reach"
)

// Inputs of com.microsoft's MoE. A bias follows each weight.
const (
	routerInput = 1
	fc1Input    = 2
	fc2Input    = 4
	fc3Input    = 6
)

// mostExperts bounds the experts of a node.
const mostExperts = 1 << 16

// mixture returns the layer of a weight of a MoE. fc1 and fc3 multiply its input. What fc2 multiplies is in no value of
// the model: it follows from fc1 and fc3.
func (d *Decision) mixture(x *graph.Graph, l reach.Leaf) (Layer, string) {
	n := l.Node
	top := graph.IntAttributeOr(n, "k", 1)
	switch {
	case !l.Layout.Is(d.Shape) || len(d.Shape) != 3 || d.Shape[0] > mostExperts:
		return Layer{}, "calibration is for experts [experts, N, K]"
	case x.Source(n, routerInput) == nil || x.Source(n, routerInput).Tensor != nil || top < 1 || top > d.Shape[0]:
		return Layer{}, "the router of its experts is not known"
	case graph.IntAttribute(n, "use_sparse_mixer") != 0:
		return Layer{}, "calibration does not follow a router with use_sparse_mixer"
	}
	e := operands.Experts{N: int(d.Shape[0]), Top: int(top), Width: int(d.Shape[2])}
	if l.Input == fc2Input {
		var why string
		if e.Inner, e.Width, why = d.inner(x, n); why != "" {
			return Layer{}, why
		}
	}
	return Layer{Operation: e, Input: x.Source(n, 0), Second: x.Source(n, routerInput)}, ""
}

// inner says what fc2 of a MoE multiplies, and how long the rows of its input are.
func (d *Decision) inner(x *graph.Graph, n *onnxpb.NodeProto) (*operands.Inner, int, string) {
	const unknown = "what it multiplies follows from fc1, fc3 and the activation, which are not constants of a known kind"
	a := experts.Activation{
		Type: cmp.Or(string(graph.Attribute(n, "activation_type").GetS()), "relu"), Fusion: graph.IntAttribute(n, "swiglu_fusion"),
		Alpha: float64(graph.FloatAttributeOr(n, "activation_alpha", 1)), Beta: float64(graph.FloatAttributeOr(n, "activation_beta", 0)),
		Limit: float64(graph.FloatAttributeOr(n, "swiglu_limit", float32(math.Inf(1)))),
	}
	inner := &operands.Inner{Name: graph.Describe(n), Activation: a}
	if !a.Known(graph.HasInput(n, fc3Input)) {
		return nil, 0, unknown
	}
	rows := d.Shape[2]
	if a.Doubles() {
		rows *= 2
	}
	fc1, width := affineOf(x, n, fc1Input, d.Shape[0], rows)
	if fc1 == nil {
		return nil, 0, unknown
	}
	inner.FC1 = *fc1
	if graph.HasInput(n, fc3Input) {
		var same int
		if inner.FC3, same = affineOf(x, n, fc3Input, d.Shape[0], d.Shape[2]); inner.FC3 == nil || same != width {
			return nil, 0, unknown
		}
	}
	return inner, width, ""
}

// affineOf reads a constant weight [experts, rows, K] of a MoE, and the bias beside it. It also returns K.
func affineOf(x *graph.Graph, n *onnxpb.NodeProto, input int, experts, rows int64) (*operands.Affine, int) {
	w := x.Source(n, input)
	if w == nil || w.Tensor == nil {
		return nil, 0
	}
	dims := w.Tensor.GetDims()
	if len(dims) != 3 || dims[0] != experts || dims[1] != rows {
		return nil, 0
	}
	matrix := floatsOf(x, w.Tensor, dims[1]*dims[2])
	bias := func(int) ([]float32, error) { return nil, nil }
	if b := x.Source(n, input+1); b != nil {
		if b.Tensor == nil || len(b.Tensor.GetDims()) != 2 || b.Tensor.GetDims()[0] != experts || b.Tensor.GetDims()[1] != rows {
			return nil, 0
		}
		bias = floatsOf(x, b.Tensor, rows)
	}
	if matrix == nil || bias == nil {
		return nil, 0
	}
	return &operands.Affine{Rows: int(rows), Read: func(expert int) (w, b []float32, err error) {
		if w, err = matrix(expert); err == nil {
			b, err = bias(expert)
		}
		return w, b, err
	}}, int(dims[2])
}

// floatsOf returns a function that reads n elements of an expert, or nil if the tensor has no floats.
func floatsOf(x *graph.Graph, t *onnxpb.TensorProto, n int64) func(expert int) ([]float32, error) {
	typ := dtype.DType(t.GetDataType())
	if !typ.Float() || typ.Bits()%8 != 0 {
		return nil
	}
	return func(expert int) ([]float32, error) {
		p, err := x.File.Payload(t)
		if err != nil {
			return nil, err
		}
		raw, size := make([]byte, typ.Bytes(n)), typ.Bytes(n)
		if err := buffer.ReadFull(p, raw, int64(expert)*size); err != nil {
			return nil, err
		}
		values := make([]float32, n)
		typ.Decode(values, raw)
		return values, nil
	}
}
