package intops

import (
	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// product replaces an operator whose integer result is decoded by a Cast and a Mul by the scales:
//
//	codes ── MatMulInteger ── Cast ── Mul(scale of A · scale of B) ── y
//
// The scales may be multiplied with each other first, or applied one after the other.
func (r *rewriting) product(n *onnxpb.NodeProto, op struct {
	product string
	zeros   int
}) {
	result, scales := r.scaled(n)
	if result == nil || r.x.Home(n).Graph == nil {
		return
	}
	a := quantity{codes: r.x.Source(n, 0), zero: r.x.Source(n, op.zeros)}
	b := quantity{codes: r.x.Source(n, 1), zero: r.x.Source(n, op.zeros+1)}
	a.scale, b.scale = scales[0], scales[1]
	if !r.scaleFits(a) || !r.scaleFits(b) {
		a.scale, b.scale = scales[1], scales[0]
	}
	if !r.scaleFits(a) || !r.scaleFits(b) {
		return
	}
	x, ok := r.factor(n, a)
	if !ok {
		return
	}
	w, ok := r.factor(n, b)
	if !ok {
		return
	}
	inputs := []string{x, w}
	if op.product == "Conv" {
		if sum, bias := r.biasOf(result); sum != nil {
			inputs, result = append(inputs, bias), r.x.Made(sum)
		}
	}
	r.drop(result.Node)
	r.replaceBy(n, op.product, "", inputs, []string{result.Name}, n.Attribute...)
}

// scaled follows an integer result through a Cast to floats and multiplication by two scales.
func (r *rewriting) scaled(n *onnxpb.NodeProto) (result *graph.Value, scales []*graph.Value) {
	cast := r.reader(r.x.Made(n))
	if cast == nil || cast.GetOpType() != "Cast" || !dtype.DType(graph.IntAttribute(cast, "to")).Float() {
		return nil, nil
	}
	result = r.x.Made(cast)
	for len(scales) < 2 {
		mul := r.reader(result)
		if mul == nil || mul.GetOpType() != "Mul" || len(mul.Input) != 2 {
			return nil, nil
		}
		other := r.x.Source(mul, 0)
		if other == result {
			other = r.x.Source(mul, 1)
		}
		if other == nil || other == result {
			return nil, nil
		}
		if m := other.Node; m != nil && other.Tensor == nil && graph.Operator(m) == "Mul" && len(scales) == 0 {
			scales = append(scales, r.x.Source(m, 0), r.x.Source(m, 1))
		} else {
			scales = append(scales, other)
		}
		result = r.x.Made(mul)
	}
	if scales[0] == nil || scales[1] == nil {
		return nil, nil
	}
	return result, scales
}

// reader returns the only reader of a value, an operator of ONNX in the same graph, or nil.
func (r *rewriting) reader(v *graph.Value) *onnxpb.NodeProto {
	if v == nil || v.Output || len(v.Uses) != 1 || !graph.IsStandard(v.Uses[0].Node.GetDomain()) || r.x.Home(v.Uses[0].Node).Graph != v.Graph {
		return nil
	}
	return v.Uses[0].Node
}

// scaleFits reports whether codes may have the scale of a quantity.
func (r *rewriting) scaleFits(q quantity) bool {
	if constant(q.codes) {
		return constant(q.scale)
	}
	own := r.quantityOf(q.codes)
	return own.scale == nil || r.equalScales(own.scale, q.scale)
}

// biasOf finds the Add of a bias after a convolution. The bias is a vector, reshaped.
func (r *rewriting) biasOf(v *graph.Value) (sum *onnxpb.NodeProto, bias string) {
	add := r.reader(v)
	if add == nil || add.GetOpType() != "Add" || len(add.Input) != 2 {
		return nil, ""
	}
	other := r.x.Source(add, 1)
	if other == v {
		other = r.x.Source(add, 0)
	}
	if other == nil || other.Node == nil || graph.Operator(other.Node) != "Reshape" || r.reader(other) != add {
		return nil, ""
	}
	vector, shape := r.x.Source(other.Node, 0), r.x.Source(other.Node, 1)
	if !constant(vector) || len(vector.Tensor.Dims) != 1 || !constant(shape) || dtype.DType(shape.Tensor.GetDataType()) != dtype.Int64 {
		return nil, ""
	}
	p, err := r.x.File.Payload(shape.Tensor)
	if err != nil {
		return nil, ""
	}
	dims, ok := graph.ReadIntegers(p, dtype.Int64, 0, min(elements(shape), 16))
	for i, d := range dims {
		if i == 1 && d != -1 && d != vector.Tensor.Dims[0] || i != 1 && d != 1 {
			return nil, ""
		}
	}
	if !ok || len(dims) < 3 {
		return nil, ""
	}
	return add, vector.Name
}
