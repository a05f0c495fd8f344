package reach

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
	"onnxquant/internal/target"
)

// ProductOf describes the MatMul or Gemm that reads a decoded matrix of type typ as its second factor,
// perhaps through a Transpose. It must be the only reader; if there is none, other explains why.
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
	if r := f.readerOf(matrix); len(r.made) == 1 && swapsAxes(r.Node) && permOf(r.Node) != nil && x.Home(r.Node).Values[matrix.Name] == matrix && r.made[0] != nil {
		if p, other = f.direct(r.made[0]); other == "" {
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
	join := "Add" // the operator that may become the C of a Gemm; a MatMul becomes a Gemm with it
	if op == "Gemm" {
		join = "Sum"
		p = gemmOf(n, s.Of(x.Source(n, 2)), columns)
	}
	behind := f.readerOfMoved
	if p.Gemm && p.C == target.NoAddend {
		behind = f.readerOfGemm
	}
	a, result := s.Of(x.Source(n, 0)), []*graph.Value{made}
	if next := behind(made); p.C == target.NoAddend && (a == nil || len(a) == 2) && graph.IsOperator(next.Node, join) && len(next.Node.Input) == 2 {
		addend := s.Of(x.Source(next.Node, 1-next.Input))
		if next.turned {
			addend = swapped(addend)
		}
		p.C = addendOf(addend, s.Of(made), columns)
		if p.C == target.Bias || p.C == target.Matrix {
			p.Gemm, result = true, next.made
		}
	}
	next := behind(result...)
	p.Moving = next.moving
	if _, several := f.reads(result); p.Gemm && !several {
		p.Transposed = f.readsTransposed(n) || p.C == target.NoAddend && swapsAxes(next.Node)
	}
	if graph.IsOperator(next.Node, "Relu") || graph.IsOperator(next.Node, "Clip") {
		p.Clamped = next.Node.GetOpType()
		after := f.readerOfMoved(next.made...)
		if p.Clamped == "Relu" && graph.IsOperator(after.Node, "Clip") { // ONNX Runtime fuses a Relu and a Clip to one Clip
			after = f.readerOfMoved(after.made...)
		}
		if after.Node == nil {
			p.Clamped = ""
		}
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

// addendOf classifies a tensor that is added to a matrix product. ONNX Runtime fuses it as C of a Gemm
// only if the shapes are known to allow that.
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

// swapped returns the dimensions of a tensor that is added to a transposed matrix, as if it were added
// to the matrix itself.
func swapped(dims []graph.Dim) []graph.Dim {
	switch len(dims) {
	case 1:
		return []graph.Dim{dims[0], {Length: 1}}
	case 2:
		return []graph.Dim{dims[1], dims[0]}
	}
	return dims
}

// readsTransposed reports whether ONNX Runtime makes the Transpose of a Gemm's first factor
// part of the Gemm. A second one undoes that, unless the Gemm in front takes it over.
func (f products) readsTransposed(n *onnxpb.NodeProto) bool {
	count := 0
	for range maxDepth {
		v := f.unskipped(f.x.Source(n, 0))
		if v == nil || v.Node == nil {
			break
		}
		if !f.takenOver(v.Node, n) {
			if graph.IsOperator(v.Node, "Gemm") && !graph.HasInput(v.Node, 2) {
				count /= 2
			}
			break
		}
		count++
		n = v.Node
	}
	return count%2 == 1
}

// unskipped follows a value back through the nodes that ONNX Runtime removes.
func (f products) unskipped(v *graph.Value) *graph.Value {
	for range maxDepth {
		if v == nil || v.Node == nil {
			break
		}
		i, ok := f.skipped(v.Node)
		if !ok {
			break
		}
		v = f.x.Source(v.Node, i)
	}
	return v
}

// takenOver reports whether ONNX Runtime merges a Transpose into the Gemms that read it: nothing else
// reads the result. The reader named one may still be a MatMul.
func (f products) takenOver(turn, one *onnxpb.NodeProto) bool {
	return swapsAxes(turn) && f.onlyGemms(f.x.Made(turn), one, 0)
}

// onlyGemms reports whether nothing but Gemms and one node read a value once nodes are removed.
func (f products) onlyGemms(v *graph.Value, one *onnxpb.NodeProto, depth int) bool {
	if v == nil || v.Output || depth > maxDepth {
		return false
	}
	return !slices.ContainsFunc(v.Uses, func(u graph.Use) bool {
		if i, ok := f.skipped(u.Node); ok && i == u.Input {
			return !f.onlyGemms(f.x.Made(u.Node), one, depth+1)
		}
		return u.Node != one && !graph.IsOperator(u.Node, "Gemm")
	})
}
