package reach

import (
	"slices"

	"onnxquant/formats/dtype"
	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// Product is a MatMul of matrices out of a stack [N, rows, columns], such as those of experts.
type Product struct {
	graph.Use      // of the matrices, by the MatMul
	Turned    bool // a Transpose behind the Gather turns them
	Squeezed  bool // a Squeeze behind the Gather drops axes
}

// SumAxis is the axis over which the product sums, of a stack that the Gather reads as it is stored.
func (p Product) SumAxis() int {
	if (p.Input == 1) != p.Turned {
		return 1
	}
	return 2
}

// mostBehind bounds the nodes between a Gather and its MatMul.
const mostBehind = 8

// Takes reports whether a node takes matrices out of the stack that it reads.
func (l Leaf) Takes() bool {
	n := l.Node
	return graph.IsStandard(n.GetDomain()) && (n.GetOpType() == "Gather" || n.GetOpType() == "GatherND") &&
		l.Input == 0 && graph.IntAttribute(n, "axis") == 0 && graph.IntAttribute(n, "batch_dims") == 0
}

// Taken returns the MatMul for which a Gather takes whole matrices. ok is false if there is none, such as for a table of rows.
func (l Leaf) Taken(x *graph.Graph) (p Product, ok bool) {
	if !l.Takes() {
		return p, false
	}
	n := l.Node
	for range mostBehind {
		made := x.Made(n)
		if made == nil || made.Output || len(made.Returned()) > 0 {
			return p, false
		}
		uses := slices.DeleteFunc(slices.Clone(made.Uses), func(u graph.Use) bool { return graph.IsOperator(u.Node, "Shape") })
		if len(uses) != 1 || !graph.IsStandard(uses[0].Node.GetDomain()) {
			return p, false
		}
		p.Use = uses[0]
		if n = p.Node; n.GetOpType() == "MatMul" {
			return p, true
		}
		if p.Input != 0 {
			return p, false
		}
		switch n.GetOpType() {
		case "Identity":
		case "Cast":
			if !dtype.DType(graph.IntAttribute(n, "to")).Float() {
				return p, false
			}
		case "Squeeze":
			p.Squeezed = true
		case "Transpose":
			if !turnsMatrices(n) {
				return p, false
			}
			p.Turned = !p.Turned
		default:
			return p, false
		}
	}
	return p, false
}

// turnsMatrices reports whether a Transpose swaps the last two axes, and no others.
func turnsMatrices(n *onnxpb.NodeProto) bool {
	perm := permOf(n)
	last := int64(len(perm)) - 1
	return last >= 1 && perm[last] == last-1 && perm[last-1] == last && slices.IsSorted(perm[:last-1])
}

// ReadTurned reports whether products sum over the rows of the matrices of a stack, whose last two axes are rows and columns; they
// read [K, N] then, else [N, K]. ok is false if no product tells, or if two differ.
func (r Reach) ReadTurned(x *graph.Graph, shape []int64) (turned, ok bool) {
	for _, l := range r.Leaves {
		p, found := l.Taken(x)
		if graph.IsOperator(l.Node, "MatMul") {
			p, found = Product{Use: l.Use}, true
		}
		before, known := l.Layout.turned(shape)
		if !found || !known {
			continue
		}
		now := (p.SumAxis() == 1) != before
		if ok && now != turned {
			return false, false
		}
		turned, ok = now, true
	}
	return turned, ok
}

// turned reports whether the last two axes of a stored tensor are swapped. ok is false if they are not the last ones.
func (l layout) turned(shape []int64) (turned, ok bool) {
	own := layoutOf(shape).Axes
	n, m := len(own), len(l.Axes)
	if n < 2 || m < 2 {
		return false, false
	}
	are := func(rows, columns int) bool {
		return slices.Equal(l.Axes[m-2], own[rows]) && slices.Equal(l.Axes[m-1], own[columns])
	}
	return are(n-1, n-2), are(n-2, n-1) || are(n-1, n-2)
}
