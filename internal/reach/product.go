package reach

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/target"
)

// ProductOf describes the MatMul or Gemm that reads a decoded matrix of floats of a type, alone,
// as its second factor, perhaps behind a Transpose. other explains that there is none.
func ProductOf(x *graph.Graph, s *graph.Shapes, matrix *graph.Value, typ dtype.DType) (p target.Product, other string) {
	return products{x, s, typ}.of(matrix)
}

// products describes products of floats of a type.
type products struct {
	x   *graph.Graph
	s   *graph.Shapes
	typ dtype.DType
}

func (f products) of(matrix *graph.Value) (p target.Product, other string) {
	// ONNX Runtime joins the DequantizeLinear only with a Transpose that has its perm.
	x := f.x
	if n := f.soleReader(matrix).Node; turns(n) && graph.Attribute(n, "perm") != nil && x.Home(n).Values[matrix.Name] == matrix && x.Made(n) != nil {
		if p, other = f.direct(x.Made(n)); other == "" {
			p.WTransposed = true
			return p, ""
		}
	}
	return f.direct(matrix)
}

// direct describes the product that reads a matrix itself.
func (f products) direct(matrix *graph.Value) (p target.Product, other string) {
	x, s := f.x, f.s
	switch {
	case matrix.Output:
		return p, "it is an output of the graph"
	case len(matrix.Uses) == 0:
		return p, "nothing reads it where it is stored"
	case len(matrix.Uses) > 1:
		return p, "it has several readers"
	}
	u := matrix.Uses[0]
	n, op := u.Node, u.Node.GetOpType()
	switch {
	case x.Home(n).Values[matrix.Name] != matrix:
		return p, "it is read in a subgraph"
	case !graph.IsStandard(n.GetDomain()) || op != "MatMul" && op != "Gemm" || u.Input != 1:
		return p, "it is read by " + u.String()
	case x.Made(n) == nil:
		return p, "its product has no name"
	}
	made, columns := x.Made(n), graph.Dim{}
	if w := s.Of(matrix); len(w) == 2 {
		columns = w[1-graph.IntAttribute(n, "transB")&1]
	}
	join := "Add" // the operator that becomes the C of a Gemm: a MatMul becomes one for it
	if op == "Gemm" {
		join = "Sum"
		p = gemmOf(n, s.Of(x.Source(n, 2)), columns)
	}
	a := s.Of(x.Source(n, 0))
	if next := f.soleReader(made); p.C == target.NoAddend && (a == nil || len(a) == 2) && isOperator(next.Node, join) && len(next.Node.Input) == 2 {
		p.C = addendOf(s.Of(x.Source(next.Node, 1-next.Input)), s.Of(made), columns)
		if p.C == target.Bias || p.C == target.Matrix {
			p.Gemm, made = true, x.Made(next.Node)
		}
	}
	if p.Gemm && len(made.Uses) < 2 {
		p.Transposed = f.readsTransposed(n) || p.C == target.NoAddend && turns(f.soleReader(made).Node)
	}
	if next := f.soleReader(made).Node; (isOperator(next, "Relu") || isOperator(next, "Clip")) && f.soleReader(x.Made(next)).Node != nil {
		p.Clamped = next.GetOpType()
	}
	return p, ""
}

// gemmOf describes a Gemm, given the shape of its C and the number of its columns.
func gemmOf(n *onnxpb.NodeProto, c []graph.Dim, columns graph.Dim) target.Product {
	p := target.Product{Gemm: true, TransB: graph.IntAttribute(n, "transB") != 0}
	hasC := graph.HasInput(n, 2)
	p.Scaled = graph.IntAttribute(n, "transA") != 0 || graph.FloatAttributeOr(n, "alpha", 1) != 1 || hasC && graph.FloatAttributeOr(n, "beta", 1) != 1
	switch {
	case hasC && len(c) == 1 && c[0] == columns:
		p.C = target.Bias
	case hasC:
		p.C = target.Matrix
	}
	return p
}

// addendOf says what ONNX Runtime makes of a tensor that is added to a product with two axes:
// the C of a Gemm if it knows that the shapes suit that.
func addendOf(dims, product []graph.Dim, columns graph.Dim) target.Addend {
	switch {
	case dims == nil:
		return target.UnknownAddend
	case len(dims) == 1 && dims[0] == columns:
		return target.Bias
	case len(dims) == 1 && dims[0] == graph.Dim{}:
		return target.UnknownAddend
	case len(dims) != 2:
		return target.NoAddend
	}
	unknown, one := graph.Dim{}, graph.Dim{Length: 1}
	switch {
	case len(product) != 2:
		return target.UnknownAddend
	case dims[0] == one && dims[1] == columns:
		return target.Matrix
	case product[0] == unknown || dims[0] == unknown || dims[1] == unknown:
		return target.UnknownAddend
	case dims[0] == product[0] && (dims[1] == columns || dims[1] == one):
		return target.Matrix
	}
	return target.NoAddend
}

// readsTransposed reports whether ONNX Runtime makes the Transpose of a Gemm's first factor
// part of the Gemm: all that read the result must be Gemms.
func (f products) readsTransposed(n *onnxpb.NodeProto) bool {
	v := f.x.Source(n, 0)
	for v != nil && v.Node != nil {
		i, ok := f.skipped(v.Node)
		if !ok {
			break
		}
		v = f.x.Source(v.Node, i)
	}
	return v != nil && !v.Output && turns(v.Node) && !slices.ContainsFunc(v.Uses, func(u graph.Use) bool {
		if _, ok := f.skipped(u.Node); ok {
			return false
		}
		return u.Node != n && !isOperator(u.Node, "Gemm")
	})
}

// turns reports whether a node swaps the axes of a matrix.
func turns(n *onnxpb.NodeProto) bool {
	if !isOperator(n, "Transpose") {
		return false
	}
	perm := graph.Attribute(n, "perm").GetInts()
	return perm == nil || slices.Equal(perm, []int64{1, 0})
}

// soleReader returns the only use of a value, or no node if there are several or it is an
// output of the graph.
func (f products) soleReader(v *graph.Value) graph.Use {
	for range maxDepth {
		if v == nil || v.Output || len(v.Uses) != 1 || len(v.Returned()) > 0 {
			break
		}
		u := v.Uses[0]
		if i, ok := f.skipped(u.Node); !ok || i != u.Input {
			return u
		}
		v = f.x.Made(u.Node)
	}
	return graph.Use{}
}

// skipped reports whether ONNX Runtime removes a node before it fuses any, because its output is
// one of its inputs, and which input that is.
func (f products) skipped(n *onnxpb.NodeProto) (input int, ok bool) {
	if n == nil || !graph.IsStandard(n.GetDomain()) {
		return 0, false
	}
	switch n.GetOpType() {
	case "Identity", "Dropout":
		return 0, true
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
	case "Expand", "Slice":
		return 0, f.x.TakesAll(n, 2)
	}
	return 0, false
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
