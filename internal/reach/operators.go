package reach

import (
	"fmt"
	"slices"

	"onnxquant/internal/graph"
	"onnxquant/internal/onnxpb"
)

// Operator is an operator whose weights can be quantized.
type Operator struct {
	domain, name string
	inputs       []int    // positions of weights; nil: any
	attributes   []string // attributes that Sums reads

	// Sums returns the axes of a weight of the given rank that the operator sums over; for a lookup,
	// the axis of its rows. It returns none if a tensor of that rank is no weight there. why, which
	// may be empty, explains it.
	Sums func(n *onnxpb.NodeProto, input, rank int) (axes []int, why string)

	Whole bool // for convolutions: merge axes (see layout.sum), so that one scale per channel is possible
}

// weightOps lists the operators whose weights can be quantized.
var weightOps = []Operator{
	{"", "MatMul", []int{0, 1}, nil, matMul, false},
	{"", "Gemm", []int{0, 1}, []string{"transA", "transB"}, gemm, false},
	{"", "Gather", []int{0}, nil, rows, false},
	{"", "GatherND", []int{0}, nil, rows, false},
	{"", "Conv", []int{1}, nil, conv, true},
	{"", "ConvTranspose", []int{1}, nil, convTranspose, true},
	{"", "Einsum", nil, []string{"equation"}, einsum, false},
	{"", "LSTM", []int{1, 2}, nil, recurrent, false},
	{"", "GRU", []int{1, 2}, nil, recurrent, false},
	{"", "RNN", []int{1, 2}, nil, recurrent, false},

	// ONNX Runtime's own: see docs/ContribOperators.md in its source.
	{graph.Contrib, "Attention", []int{1}, nil, projection, false},
	{graph.Contrib, "EmbedLayerNormalization", []int{2, 3, 4}, nil, rows, false},
	{graph.Contrib, "FusedConv", []int{1}, nil, conv, true},
	{graph.Contrib, "FusedGemm", []int{0, 1}, []string{"transA", "transB"}, gemm, false},
	{graph.Contrib, "FusedMatMul", []int{0, 1}, fusedAttributes, fusedMatMul, false},
	{graph.Contrib, "TransposeMatMul", []int{0, 1}, fusedAttributes, fusedMatMul, false},
	{graph.Contrib, "MoE", []int{2, 4, 6}, nil, experts, false},
}

var fusedAttributes = []string{"transA", "transB", "transBatchA", "transBatchB"}

// KnownOps names the operators whose weights can be quantized, of ONNX and of com.microsoft.
var KnownOps = knownOps()

func knownOps() (names []string) {
	for _, o := range weightOps {
		names = append(names, o.name)
	}
	return names
}

// OperatorOf returns the entry of weightOps for a use, or nil if it takes no weight there.
func OperatorOf(u graph.Use) *Operator {
	if u.Node.GetOverload() != "" {
		return nil // only functions have overloads
	}
	domain := u.Node.GetDomain()
	if graph.IsStandard(domain) {
		domain = ""
	}
	for i := range weightOps {
		if o := &weightOps[i]; o.name == u.Node.GetOpType() && o.domain == domain {
			if o.inputs == nil || slices.Contains(o.inputs, u.Input) {
				return o
			}
		}
	}
	return nil
}

// matMul: [batch…, M, K] times [batch…, K, N]; either may be a vector [K].
func matMul(_ *onnxpb.NodeProto, input, rank int) ([]int, string) {
	switch {
	case rank == 0:
		return nil, ""
	case input == 0:
		return []int{rank - 1}, ""
	}
	return []int{max(rank-2, 0)}, ""
}

// gemm: A is [M, K], B is [K, N], and either may be transposed.
func gemm(n *onnxpb.NodeProto, input, rank int) ([]int, string) {
	if rank != 2 {
		return nil, ""
	}
	transposed := graph.IntAttribute(n, [...]string{"transA", "transB"}[input]) != 0
	if (input == 0) != transposed {
		return []int{1}, ""
	}
	return []int{0}, ""
}

// fusedMatMul: like matMul; trans swaps the last two axes, and with transBatch a matrix
// lies in the first and the last axis.
func fusedMatMul(n *onnxpb.NodeProto, input, rank int) ([]int, string) {
	if rank < 2 {
		return matMul(n, input, rank)
	}
	side := [...]string{"A", "B"}[input]
	if transposed := graph.IntAttribute(n, "trans"+side) != 0; (input == 0) != transposed {
		return []int{rank - 1}, ""
	}
	if graph.IntAttribute(n, "transBatch"+side) != 0 {
		return []int{0}, ""
	}
	return []int{rank - 2}, ""
}

// rows: a lookup sums over nothing; blocks run along the rows of the table.
func rows(_ *onnxpb.NodeProto, _, rank int) ([]int, string) {
	if rank < 2 {
		return nil, ""
	}
	return []int{rank - 1}, ""
}

// conv: [M, C/groups, kernel…], sums over input channels and kernel.
func conv(_ *onnxpb.NodeProto, _, rank int) (axes []int, why string) {
	if rank < 3 {
		return nil, ""
	}
	for i := range rank - 1 {
		axes = append(axes, i+1)
	}
	return axes, ""
}

// convTranspose: [C, M/groups, kernel…], sums over input channels.
func convTranspose(_ *onnxpb.NodeProto, _, rank int) ([]int, string) {
	if rank < 3 {
		return nil, ""
	}
	return []int{0}, ""
}

// recurrent: W is [directions, gates, inputs], R is [directions, gates, hidden].
func recurrent(_ *onnxpb.NodeProto, _, rank int) ([]int, string) {
	if rank != 3 {
		return nil, ""
	}
	return []int{2}, ""
}

// projection: [K, N].
func projection(_ *onnxpb.NodeProto, _, rank int) ([]int, string) {
	if rank != 2 {
		return nil, ""
	}
	return []int{0}, ""
}

// experts: [experts, N, K].
func experts(_ *onnxpb.NodeProto, _, rank int) ([]int, string) {
	if rank != 3 {
		return nil, ""
	}
	return []int{2}, ""
}

// errParameter is the reason for an attribute whose value is known only at a call.
func errParameter(n *onnxpb.NodeProto, attribute string) string {
	return fmt.Sprintf("%s's %s is a parameter of the function that it is in", n.GetOpType(), attribute)
}

// Convolves reports whether the reader is a convolution.
func (l Leaf) Convolves() bool {
	row := OperatorOf(l.Use)
	return row != nil && row.Whole
}
